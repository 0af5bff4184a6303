"""What cannot be judged where the first records of partitions are gone."""

from __future__ import annotations

import logging

import pytest

from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.reconcile.records.deleted import (
    DeletedRecords,
    Extent,
    First,
    Partition,
    deleted_until,
    expired_lanes,
)
from reconsume.spark_connectors.reconcile.run import _missed

NOW = 1_000_000_000_000
NAMES = TopicNames("p.")
LATE = 3_600_000


@pytest.mark.parametrize(
    ("read", "extents", "until"),
    [
        pytest.param({("a", 0): First(0, 7)}, {("a", 0): Extent(0, 3)}, {"a": 0}, id="nothing"),
        pytest.param({("a", 0): First(5, 7)}, {("a", 0): Extent(0, 9)}, {"a": 0}, id="a window, with more before it"),
        pytest.param({("a", 0): First(5, 7)}, {("a", 0): Extent(5, 9)}, {"a": 7}, id="its beginning"),
        pytest.param({("a", 0): First(6, 7)}, {("a", 0): Extent(5, 9)}, {"a": 7}, id="begins with a marker"),
        pytest.param({}, {("a", 0): Extent(5, 5)}, {"a": NOW}, id="all of it"),
        pytest.param(
            {("a", 0): First(5, 7), ("a", 1): First(2, 9)},
            {("a", 0): Extent(5, 9), ("a", 1): Extent(1, 9)},
            {"a": 9},
            id="the latest of all partitions",
        ),
        pytest.param(
            {("a", 0): First(5, 7)},
            {("a", 0): Extent(5, 9), ("a", 1): Extent(4, 4)},
            {"a": NOW},
            id="all of one partition",
        ),
        pytest.param({("a", 0): First(5, 7)}, None, {"a": 7}, id="nobody told"),
        pytest.param({("a", 0): First(0, 7)}, None, {"a": 0}, id="nobody told, and nothing is gone"),
        pytest.param({("a", 0): First(0, 7)}, {("a", 0): Extent(5, 9)}, {"a": 7}, id="deleted when it had been read"),
    ],
)
def test_until_when_records_may_have_been_deleted(
    read: dict[Partition, First], extents: dict[Partition, Extent] | None, until: dict[str, int]
) -> None:
    assert deleted_until(read, extents, NOW, guess=True, gaps=False) == until


def test_what_may_have_been_passed_over_is_of_any_time() -> None:
    read, extents = {("a", 0): First(0, 7)}, {("a", 0): Extent(5, 9)}
    assert deleted_until(read, extents, NOW, guess=True, gaps=True) == {"a": NOW}
    assert deleted_until({("a", 0): First(5, 7)}, extents, NOW, guess=True, gaps=True) == {"a": 7}


def test_a_window_does_not_say_that_what_is_before_it_was_deleted() -> None:
    assert deleted_until({("a", 0): First(5, 7)}, None, NOW, guess=False, gaps=False) == {"a": 0}


def test_each_duration_has_its_own_moment() -> None:
    until = {"p.DELAY.10s": 5, "p.DELAY.0s": 0, "p.SEND_BACK": NOW, "p.DELAY.60s": 9, "p.RETRY.g": NOW}
    lanes = expired_lanes(until, NAMES, 4)
    assert lanes.until_ms == {10_000: 5 + 10_000 + LATE, 0: 0}  # 60s is no topic of ours: we write 1m
    assert (lanes.otherwise_ms, lanes.latest_ms) == (4, 5 + 10_000 + LATE)
    assert expired_lanes({"p.DELAY.0s": 0}, NAMES, 0).latest_ms == 0


def test_kafka_is_asked_once_and_only_if_something_seems_wrong() -> None:
    asked: list[int] = []

    def ask() -> dict[Partition, Extent]:
        asked.append(1)
        return {("p.DELAY.1s", 0): Extent(5, 5), ("p.DELAY.2s", 0): Extent(0, 0)}

    found = DeletedRecords(NAMES, NOW, ask, from_beginning=True, in_window=False, gaps=False)
    assert asked == []
    for _ in range(2):
        lanes = found.lanes({})
        # Of the topic of an hour nothing can be said: there is none any more.
        assert (lanes.until_ms, lanes.otherwise_ms) == ({1_000: NOW + 1_000 + LATE, 2_000: 0}, NOW + LATE)
    assert asked == [1]
    window = DeletedRecords(NAMES, NOW, None, from_beginning=False, in_window=True, gaps=False)
    assert window.lanes({("p.DELAY.1s", 0): First(5, 7)}) == expired_lanes({"p.DELAY.1s": 7}, NAMES, 0)
    ledger = DeletedRecords(NAMES, NOW, None, from_beginning=False, in_window=False, gaps=True)
    assert ledger.lanes({("p.DELAY.1s", 0): First(5, 7)}).latest_ms == 0


def test_a_ledger_tells_what_was_deleted_between_two_runs(caplog: pytest.LogCaptureFixture) -> None:
    now = {("p.DELAY.1s", 0): Extent(9, 12), ("p.DELAY.1s", 1): Extent(9, 9), ("p.RETRY.g", 0): Extent(8, 9)}
    moments: list[int] = []

    def extents(from_ms: int) -> dict[Partition, Extent]:
        moments.append(from_ms)
        return now

    ends = {("p.DELAY.1s", 0): 5, ("p.DELAY.1s", 1): 9}
    missed = _missed(extents, 77, ends)
    assert {at: one.first for at, one in missed.items()} == {
        ("p.DELAY.1s", 0): 9,
        ("p.DELAY.1s", 1): 0,
        ("p.RETRY.g", 0): 8,
    }
    assert _missed(extents, 77, None) == now  # a ledger that does not know where it ended
    assert moments == [0, 77]
    found = DeletedRecords(NAMES, NOW, lambda: missed, from_beginning=False, in_window=False, gaps=True, goes_on=True)
    with caplog.at_level(logging.WARNING):
        found.tell_gaps("/data/ledger")
    assert "1 partitions, such as p.DELAY.1s-0, lost records since the last run" in caplog.text
    assert "/data/ledger" in caplog.text
    caplog.clear()
    DeletedRecords(NAMES, NOW, dict, from_beginning=False, in_window=False, gaps=True, goes_on=True).tell_gaps("x")
    DeletedRecords(NAMES, NOW, lambda: missed, from_beginning=True, in_window=False, gaps=False).tell_gaps("x")
    assert caplog.text == ""
