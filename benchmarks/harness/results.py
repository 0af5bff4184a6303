"""The results of a run: JSON for programs, a Markdown table for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.harness.registry import Sample

__all__ = ["QUIET", "Result", "Results", "RunResult", "number", "read_runs", "table", "write_run"]

QUIET: Final = 0.05
"""A share of all cores: other work beyond it is noted beside a figure."""
_HEAD: Final = "| measurement | case | figure | min | median | max | unit |\n|---|---|---|---:|---:|---:|---|\n"


@dataclass(frozen=True, slots=True)
class Result:
    """A figure of one case, with a value of each round.

    Attributes:
        busy: the largest share of all cores that other work took when a round of it began.
    """

    measurement: str
    case: str
    figure: str
    unit: str
    values: tuple[float, ...]
    busy: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the name of the figure, the same in every run."""
        return self.measurement, self.case, self.figure

    @property
    def median(self) -> float:
        """Return the median of the rounds."""
        return median(self.values)


@dataclass
class Results:
    """Collects the samples of all rounds."""

    _values: dict[tuple[str, str, str, str], list[float]] = field(default_factory=dict)
    _busy: dict[str, float] = field(default_factory=dict)

    def add(self, measurement: str, samples: Iterable[Sample], busy: float) -> None:
        """Add a round of a measurement."""
        self._busy[measurement] = max(busy, self._busy.get(measurement, 0.0))
        for one in samples:
            self._values.setdefault((measurement, one.case, one.figure, one.unit), []).append(float(one.value))

    def listed(self) -> list[Result]:
        """Return all figures, those of a measurement together, each in the order of its first sample."""
        names = list(self._busy)
        found = [Result(*key, values=tuple(values), busy=self._busy[key[0]]) for key, values in self._values.items()]
        return sorted(found, key=lambda one: names.index(one.measurement))


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run with what a reader needs to repeat it."""

    date: str
    command: str
    machine: Mapping[str, Any]
    results: Sequence[Result]


def read_runs(path: Path) -> dict[str, RunResult]:
    """Return the runs of a file by their kind; empty if the file does not exist."""
    if not path.exists():
        return {}
    return {kind: _run(told) for kind, told in json.loads(path.read_text("utf-8")).items()}


def _run(told: dict[str, Any]) -> RunResult:
    results = [Result(**one | {"values": tuple(one["values"])}) for one in told.pop("results")]
    return RunResult(results=results, **told)


def write_run(path: Path, kind: str, run: RunResult) -> None:
    """Write a run into the file; figures of measurements that did not run now are kept."""
    runs = read_runs(path)
    ran = {one.measurement for one in run.results}
    kept = [one for one in runs[kind].results if one.measurement not in ran] if kind in runs else []
    runs[kind] = RunResult(run.date, run.command, run.machine, [*kept, *run.results])
    told = {name: asdict(one) for name, one in runs.items()}
    for one in told.values():
        for result in one["results"]:
            result["values"] = [float(f"{value:.4g}") for value in result["values"]]
            result["busy"] = round(result["busy"], 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_lines(told), "utf-8")


def _lines(told: dict[str, dict[str, Any]]) -> str:
    """JSON with one result a line, so that a diff shows what changed."""
    kinds = []
    for kind, run in told.items():
        results = ",\n".join("    " + json.dumps(one, ensure_ascii=False) for one in run.pop("results"))
        head = "".join(f"   {json.dumps(name)}: {json.dumps(value)},\n" for name, value in run.items())
        kinds.append(f'  {json.dumps(kind)}: {{\n{head}   "results": [\n{results}\n   ]\n  }}')
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table, one line for each figure."""
    rows, last = [], ("", "")
    for one in results:
        name = one.measurement if one.measurement != last[0] else ""
        case = one.case if (one.measurement, one.case) != last else ""
        last = one.measurement, one.case
        note = f" (machine {one.busy:.0%} busy)" if name and one.busy > QUIET else ""
        values = " | ".join(number(value) for value in (min(one.values), one.median, max(one.values)))
        rows.append(f"| {name}{note} | {case} | {one.figure} | {values} | {one.unit} |\n")
    return _HEAD + "".join(rows)


def number(value: float) -> str:
    """Return three significant digits, and all digits before the point; a dash for a value that is not known."""
    if isnan(value):
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
