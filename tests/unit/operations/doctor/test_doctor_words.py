"""What the doctor makes of versions, replicas and clocks."""

from __future__ import annotations

import pytest

from reconsume.operations.doctor.connection import check_coordinators, check_versions, versions_of
from reconsume.operations.doctor.inspection import TopicState
from reconsume.operations.doctor.report import Report
from reconsume.operations.doctor.trip import Stamp, check_clock


@pytest.mark.parametrize(("version", "old"), [("2.4-IV1", True), ("2.5-IV0", False), ("3.9-IV0", False)])
def test_a_kafka_that_cannot_fence_is_a_problem(version: str, old: bool) -> None:
    report = Report()
    check_versions(versions_of({"inter.broker.protocol.version": version}), report)
    assert [one.check for one in report.findings] == (["versions"] if old else [])


def test_versions_are_told_where_the_brokers_tell_none() -> None:
    assert versions_of({})["kafka"] == "4.0 or newer"
    assert versions_of(None)["kafka"] == "unknown"


@pytest.mark.parametrize(
    ("broker", "offsets", "warned"),
    [
        ({}, TopicState(50, 1, 1), True),
        ({}, TopicState(50, 3, 3), False),
        ({"offsets.topic.replication.factor": "1"}, TopicState(50, 3, 2), False),
        ({"offsets.topic.replication.factor": "1"}, None, True),
        ({}, None, False),
        ({"inter.broker.protocol.version": "3.9-IV0"}, TopicState(50, 1, 1), False),
    ],
)
def test_one_replica_of_the_offsets_is_told_where_its_coordinator_may_lose_some(
    broker: dict[str, str], offsets: TopicState | None, warned: bool
) -> None:
    report = Report()
    check_coordinators(broker, offsets, report)
    assert [(one.check, one.weight) for one in report.findings] == ([("coordinators", "warning")] if warned else [])


@pytest.mark.parametrize(
    ("stored_ms", "ahead_ms"), [(1_050, 0), (999, -1), (1_000, 0), (1_100, 0), (1_101, 1), (5_000, 3_900), (0, -1_000)]
)
def test_the_time_that_a_request_takes_is_no_skew(stored_ms: int, ahead_ms: float) -> None:
    assert Stamp(1, 1_000, stored_ms, 1_100).ahead_ms == ahead_ms


def test_clocks_within_half_a_second_are_in_order() -> None:
    report = Report()
    check_clock([Stamp(1, 1_000, 1_600, 1_100)], report)
    assert not report.findings
    check_clock([Stamp(1, 1_000, 1_601, 1_100)], report)
    assert [(one.check, one.weight) for one in report.findings] == [("clock", "warning")]


@pytest.mark.parametrize(("stored_ms", "apart"), [(1_500, False), (1_499, True)])
def test_brokers_whose_clocks_surely_differ_by_more_than_half_a_second_are_a_problem(
    stored_ms: int, apart: bool
) -> None:
    report = Report()
    check_clock([Stamp(1, 1_000, 1_600, 1_100), Stamp(2, 1_500, stored_ms, 1_600)], report)
    problems = [one.what for one in report.findings if one.weight == "problem"]
    assert [what.partition(":")[0] for what in problems] == (
        ["the clock of broker 1 is 501 ms ahead of broker 2's"] if apart else []
    )
