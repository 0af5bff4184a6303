"""What a run of the benchmarks computes from its samples: statistics, files, tables, plots, regressions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.harness.compare import limit, regressions, unknown
from benchmarks.harness.plots import plots
from benchmarks.harness.registry import CPU, RATE, Measurement, Place, Sample, percentiles
from benchmarks.harness.results import Result, Results, RunResult, number, read_runs, table, write_run
from benchmarks.harness.run import measure


def result(*values: float, unit: str = RATE, case: str = "late", measurement: str = "throughput") -> Result:
    return Result(measurement, case, "to the loop", unit, values)


def run_of(*results: Result) -> RunResult:
    return RunResult("2026-11-24", "python -m benchmarks", {"cores": 2}, results)


def test_rounds_of_a_figure_come_together_in_the_order_of_its_measurement() -> None:
    results = Results()
    for busy, value in ((0.1, 1.0), (0.3, 3.0), (0.2, 2.0)):
        results.add("first", [Sample("a", "rate", RATE, value), Sample("b", "rate", RATE, 9)], busy)
        results.add("second", [Sample("a", "rate", RATE, 7)], 0)
    assert [(one.measurement, one.case, one.values) for one in results.listed()] == [
        ("first", "a", (1.0, 3.0, 2.0)),
        ("first", "b", (9.0, 9.0, 9.0)),
        ("second", "a", (7.0, 7.0, 7.0)),
    ]
    assert results.listed()[0].median == 2
    assert results.listed()[0].busy == 0.3


def test_percentiles_are_values_that_were_measured() -> None:
    found = {one.figure: one.value for one in percentiles("case", range(1, 1_001))}
    assert found == {"p50": 501, "p99": 991, "p99.9": 1_000, "max": 1_000}
    assert {one.value for one in percentiles("case", [5.0])} == {5.0}
    assert list(percentiles("case", [])) == []


@pytest.mark.parametrize(
    ("unit", "recorded", "bound"),
    [
        (RATE, (0.9, 1.0, 1.1), 0.8),  # the worst round, less a tenth of the median
        (CPU, (0.9, 1.0, 1.1), 1.2),
    ],
)
def test_the_limit_is_a_tenth_beyond_the_worst_recorded_round(
    unit: str, recorded: tuple[float, ...], bound: float
) -> None:
    assert limit(result(*recorded, unit=unit)) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("unit", "now", "is_worse"),
    [
        (RATE, (0.2, 0.81, 5.0), False),  # one bad round is noise
        (RATE, (0.2, 0.79, 5.0), True),
        (RATE, (3.0, 3.0, 3.0), False),
        (CPU, (1.19, 1.19, 9.0), False),
        (CPU, (1.0, 1.21, 9.0), True),
        (CPU, (0.1, 0.1, 0.1), False),
    ],
)
def test_a_regression_is_a_median_beyond_the_limit(unit: str, now: tuple[float, ...], is_worse: bool) -> None:
    recorded = result(0.9, 1.0, 1.1, unit=unit)
    assert bool(regressions([recorded], [result(*now, unit=unit)])) is is_worse


def test_absolute_figures_and_figures_without_a_record_are_not_compared() -> None:
    slow = result(1, unit="records/s")
    assert regressions([result(1_000, unit="records/s")], [slow]) == []
    other = result(0.1, case="in time")
    assert regressions([result(1.0)], [other]) == []
    assert unknown([result(1.0)], [other, slow, result(1.0)]) == [other]


def test_a_regression_says_what_was_measured_recorded_and_allowed() -> None:
    (found,) = regressions([result(0.9, 1.0, 1.1)], [result(0.5, 0.6, 0.7)])
    assert str(found) == ("throughput, late, to the loop: 0.60 × rate (0.50, 0.60, 0.70); recorded 1, limit 0.80")


def test_what_is_written_is_read_again_and_other_measurements_stay(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.json"
    write_run(file, "quick", run_of(result(1.0), result(2.0, measurement="push")))
    write_run(file, "full", run_of(result(5.0)))
    write_run(file, "quick", run_of(result(1.23456, 3)))
    runs = read_runs(file)
    assert {kind: [(one.measurement, one.values) for one in run.results] for kind, run in runs.items()} == {
        "quick": [("push", (2.0,)), ("throughput", (1.235, 3.0))],
        "full": [("throughput", (5.0,))],
    }
    assert runs["full"].machine == {"cores": 2}
    assert read_runs(tmp_path / "none.json") == {}


def test_the_table_has_a_line_for_each_figure_and_names_each_case_once() -> None:
    listed = [
        Result("lateness", "100/s", "p50", "ms", (4, 5, 12.34)),
        Result("lateness", "100/s", "p99", "ms", (0.123, 0.2, 0.3)),
        Result("memory", "waiting", "resident", "MiB", (66,), busy=0.42),
    ]
    assert table(listed).splitlines()[2:] == [
        "| lateness | 100/s | p50 | 4 | 5 | 12.3 | ms |",
        "|  |  | p99 | 0.12 | 0.20 | 0.30 | ms |",
        "| memory (machine 42% busy) | waiting | resident | 66 | 66 | 66 | MiB |",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.634, "0.63"), (12.34, "12.3"), (123.4, "123"), (1_234_567.8, "1,234,568"), (float("nan"), "–")],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_plots_are_svg_with_every_ratio_and_every_curve() -> None:
    rates = [Result("lateness", f"{rate:,}/s", "p99", "ms", (rate / 10,)) for rate in (10, 1_000, 50_000)]
    found = plots([result(0.5, 0.6, 1.2), *rates])
    assert list(found) == ["ratios.svg", "lateness.svg"]
    for drawing in found.values():
        ET.fromstring(drawing)  # noqa: S314 - our own
    assert "throughput: late, to the loop" in found["ratios.svg"]
    assert found["lateness.svg"].count("<circle") == 3
    assert plots([]) == {}


def test_a_round_is_all_measurements_and_pairs_change_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda **_: 12.0)
    place = Place("nowhere:9092")
    seen: list[tuple[str, ...]] = []

    def one(name: str, rounds: int) -> Measurement:
        def run(at: Place) -> Iterator[Sample]:
            seen.append((name, *at.in_turn("ab")))
            at.once("backlog", lambda: seen.append(("made",)))
            yield Sample("case", "value", RATE, at.turn)

        return Measurement(name, run, "", rounds, 0, is_peer=False)

    found = measure(place, [one("first", 2), one("second", 1)], lambda measurement: measurement.rounds)
    assert seen == [("first", "a", "b"), ("made",), ("second", "a", "b"), ("first", "b", "a")]
    assert [(each.measurement, each.values, each.busy) for each in found] == [
        ("first", (0.0, 1.0), 0.12),
        ("second", (0.0,), 0.12),
    ]
