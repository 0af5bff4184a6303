"""The records that the doctor sends through the shortest level."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.wire.names import DOCTOR_GROUP
from reconsume.operations.doctor import trip
from reconsume.operations.doctor.inspection import InspectedCluster
from reconsume.operations.doctor.report import Report

NAMES = Settings().names
LANE, RETRY = NAMES.delay(1_000), (NAMES.retry(DOCTOR_GROUP), 0)


class Admin:
    """Two brokers that lead partitions 0 and 3 of the shortest level; the retry topic gets a record and its marker."""

    def __init__(self, delivered: set[Partition]) -> None:
        self._delivered = delivered
        self._ends = iter([0])

    def leaders(self, topic: str) -> dict[int, int]:
        assert topic == LANE
        return {1: 0, 2: 3}

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        assert list(topics) == [RETRY[0]]
        return {RETRY[0]: 1}

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        assert list(partitions) == [RETRY]
        return {RETRY: next(self._ends, 2)}

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        assert group == NAMES.scheduler_group
        return {where: 8 if where in self._delivered else 7 for where in partitions}


@pytest.mark.parametrize(("delivered", "lacking"), [({(LANE, 0)}, f"{LANE}-3"), ({(LANE, 0), (LANE, 3)}, None)])
def test_a_marker_is_no_record(monkeypatch: pytest.MonkeyPatch, delivered: set[Partition], lacking: str | None) -> None:
    cluster, report = InspectedCluster(Settings(), lambda: 5_000.0), Report()
    monkeypatch.setitem(cluster.__dict__, "admin", Admin(delivered))
    monkeypatch.setattr(trip, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(trip, "write_at_once", lambda *_: [("lane", 0, 7, 5_000)])
    stamps = trip.send_through(cluster, Groups(), report)
    assert [one.broker for one in stamps] == [1, 2]
    if lacking is None:
        assert (report.findings, report.passed) == ([], [f"record: 2 came through {LANE}"])
    else:
        [found] = report.findings
        assert (found.check, found.weight) == ("record", "problem")
        assert found.what.startswith(f"no test record came from {lacking} to {RETRY[0]} within 1s")


def test_a_report_does_not_wait_for_a_long_level() -> None:
    groups, report = Groups().with_record(b"%SYS%", b'{"messageDelayLevel": "1h 6h"}'), Report()
    assert trip.send_through(InspectedCluster(Settings(), lambda: 5_000.0), groups, report) == []
    assert report.skipped == ["record and clock: the shortest level, 1h, takes too long"]
    assert report.findings == []
