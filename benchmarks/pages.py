"""`docs/performance.md` and `docs/cost.md`, generated from the recorded results by `make docs`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cost import Assumed, Workload, checks, measured, on_paper
from benchmarks.cost import table as cost_table
from benchmarks.harness.plots import plots
from benchmarks.harness.results import QUIET, Result, RunResult, number, read_runs, table

__all__ = ["PAGES"]

_HERE: Final = Path(__file__).parent
_RECORDED: Final = _HERE / "results.json"
_MADE: Final = "<!-- made by `make docs` from benchmarks/{source}; do not edit -->"
_BILLION: Final = 1_000_000_000
_FIGURE: Final = re.compile(r"\{\{ (.+?) \| (.+?) \| (.+?) \}\}")
"""A placeholder in a page's text: a measurement, its case and its figure."""


def _performance() -> str:
    runs = read_runs(_RECORDED)
    text = (_HERE / "performance.md").read_text("utf-8").replace("<!-- made -->", _MADE.format(source="performance.md"))
    recorded = {one.key: one for kind in ("peers", "full") if kind in runs for one in runs[kind].results}
    parts = [_FIGURE.sub(lambda found: _in_short(recorded[found[1], found[2], found[3]]), text)]
    for kind, title in (("full", "All figures"), ("peers", "Figures of other products")):
        if kind in runs:
            drawn = "".join(f"![{name}](images/{name})\n\n" for name in _plots() if kind == "full")
            parts.append(f"## {title}\n\n{_about(kind, runs[kind])}\n\n{drawn}{table(runs[kind].results)}")
    return "\n".join(parts)


def _in_short(one: Result) -> str:
    """Return the median of the rounds, and their range where it is one."""
    least, most = number(min(one.values)), number(max(one.values))
    return number(one.median) if least == most else f"{number(one.median)} ({least} – {most})"


def _about(kind: str, run: RunResult) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    busy = max((one.busy for one in run.results), default=0.0)
    load = f" Other work took up to {busy:.0%} of the machine; each figure says how much." if busy > QUIET else ""
    command = f"`python -m benchmarks{' --peers' * (kind == 'peers')} --record NAME`"
    told = f"Measurements are recorded one by one with {command}, the last one on {run.date}; {machine}.{load}"
    return textwrap.fill(told, 120, break_on_hyphens=False)


def _plots() -> dict[str, str]:
    runs = read_runs(_RECORDED)
    return plots(runs["full"].results) if "full" in runs else {}


def _plot(name: str) -> str:
    return _plots()[name]


def _cost() -> str:
    results = [one for run in read_runs(_RECORDED).values() for one in run.results]
    load, assume, know = Workload(), Assumed(), measured(results)
    assumptions = [*_values(load, ("groups",)), *_values(assume)]
    measures = [f"| `{one.name}` | {number(getattr(know, one.name))} |" for one in fields(know)]
    small = [f"| {name} | {number(model)} | {number(found)} |" for name, model, found in checks(results, assume)]
    paper = [f"| {name} | {value} |" for name, value in on_paper(_BILLION, load, know, assume)]
    text = (_HERE / "cost.md").read_text("utf-8")
    for mark, lines in (
        ("made", [_MADE.format(source="cost.md")]),
        ("table", [cost_table(load, know, assume).rstrip()]),
        ("assumptions", assumptions),
        ("measured", measures),
        ("checks", small),
        ("paper", paper),
    ):
        text = text.replace(f"<!-- {mark} -->", "\n".join(lines))
    return text


def _values(of: Workload | Assumed, without: tuple[str, ...] = ()) -> list[str]:
    meanings = _meanings(type(of).__doc__ or "")
    names = [one.name for one in fields(of) if one.name not in without]
    return [f"| `{name}` | {number(getattr(of, name))} | {meanings[name]} |" for name in names]


def _meanings(docstring: str) -> dict[str, str]:
    """Return the attributes of a docstring, each on one line."""
    lines = docstring.partition("Attributes:")[2].splitlines()
    return {name: meaning.rstrip(".") for name, _, meaning in (line.strip().partition(": ") for line in lines) if name}


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "performance.md": _performance,
    "cost.md": _cost,
    **{f"images/{name}": partial(_plot, name) for name in _plots()},
}
