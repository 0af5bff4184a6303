"""Partitions without a leader end no examination."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.operations.doctor.inspection import InspectedCluster, Inspector
from reconsume.operations.doctor.installation import check_transactions
from reconsume.operations.doctor.report import Report

LANE = Settings().names.delay(1_000)
LOST, HELD = (LANE, 0), (LANE, 1)


class Admin(Inspector):
    """A cluster that has lost the leader of one partition, with an open transaction in another."""

    def topics(self) -> dict[str, int]:
        return {LANE: 3, "flights": 1}

    def leaderless(self, topics: Iterable[str]) -> set[Partition]:
        assert list(topics) == [LANE]
        return {LOST}

    def end_offsets(
        self, partitions: Iterable[Partition], *, earliest: bool = False, uncommitted: bool = False
    ) -> dict[Partition, int]:
        asked = set(partitions)
        assert not earliest
        if LOST in asked:
            raise KafkaNotReachable("no answer")
        return {where: 9 if uncommitted or where != HELD else 7 for where in asked}

    def offsets_at(
        self, partitions: Iterable[Partition], _timestamp_ms: int, *, uncommitted: bool = False
    ) -> dict[Partition, int]:
        return self.end_offsets(partitions, uncommitted=uncommitted)


@pytest.fixture
def admin() -> Inspector:
    return Admin({"bootstrap.servers": "127.0.0.1:1"})


def test_a_partition_without_a_leader_is_a_problem_and_the_others_are_examined(
    monkeypatch: pytest.MonkeyPatch, admin: Inspector
) -> None:
    cluster, report = InspectedCluster(Settings()), Report()
    monkeypatch.setitem(cluster.__dict__, "admin", admin)
    check_transactions(cluster, Groups(), report)
    assert [(one.check, one.weight) for one in report.findings] == [("topics", "problem"), ("transactions", "problem")]
    lost, held = report.findings
    assert lost.what.startswith(f"1 partition has no leader, such as {LANE}-0: ")
    assert lost.mend.endswith("--describe --unavailable-partitions")
    assert f"{LANE}-1" in held.what


def test_no_test_record_is_for_a_partition_without_a_leader(monkeypatch: pytest.MonkeyPatch, admin: Inspector) -> None:
    partitions = {at: SimpleNamespace(leader=leader) for at, leader in enumerate([-1, 2, 1, 2])}
    found: Any = SimpleNamespace(topics={LANE: SimpleNamespace(partitions=partitions)})
    monkeypatch.setattr(admin, "_metadata", lambda _doing: found)
    assert admin.leaders(LANE) == {1: 2, 2: 3}
