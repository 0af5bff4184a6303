"""What a run sends when others settle dead letters meanwhile, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.spark_connectors.replay import execution
from reconsume.spark_connectors.replay.chunks import ReplayChunk, unsettled
from reconsume.spark_connectors.replay.execution import ReplayProgress, run_replay
from reconsume.spark_connectors.replay.plan import ReplayPlan


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Rows:
    """Eight rows; from a second on, six of them are settled."""

    def __init__(self, *_: Any) -> None:
        self.settled: list[int] = []

    def look_again(self, first: int, now: float) -> None:
        self.settled = [one for one in (1, 2, 3, 4, 5, 7) if one >= first] if now >= 1 else []

    def count(self, chunk: ReplayChunk) -> int:
        return unsettled(chunk, self.settled)

    def between(self, first: int, last: int) -> list[int]:
        return [one for one in range(first, last + 1) if one not in self.settled]

    def sent(self, chunk: ReplayChunk, now: float) -> None:
        """Nothing is written here."""

    def mark(self) -> None:
        """Nor here."""


def test_what_is_settled_while_a_run_lasts_is_not_sent_and_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(), list[ReplayProgress]()
    sent: list[tuple[float, list[int]]] = []
    fakes: dict[str, Any] = {
        "time": clock,
        "RunRows": Rows,
        "_check_retries": lambda *_: None,
        "_events": lambda *_: [],
        "_add_event": lambda *_: None,
        "_left": lambda *_: None,
        "_runs": lambda _: [range(8)],
        "_write": lambda rows, *_: sent.append((clock.now, rows)),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(execution, name, fake)
    plan = ReplayPlan("folder", "friday", 0, "true", "retry", "reconsume.", 2, counts={"send": 9})
    spark: Any = SimpleNamespace(createDataFrame=None)
    result = run_replay(spark, "localhost:9092", plan, rate=2, progress=seen.append)
    assert sent == [(0.0, [0, 1]), (1.0, [6])]
    assert (result.sent, result.before) == (3, 6)
    assert [(one.sent, one.before) for one in seen] == [(0, 1), (2, 1), (2, 3), (2, 5), (3, 6)]
