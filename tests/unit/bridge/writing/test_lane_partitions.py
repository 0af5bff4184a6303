"""In which partition of a delay topic a record is written."""

from __future__ import annotations

from confluent_kafka import murmur2

from reconsume.bridge.groups.groups import Groups, PublishedTopicSettings, SystemConfig
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.delay_levels.rules.lane_budgets import BURST

LANE = "reconsume.DELAY.10s"


def _lanes(normal: int | None = None) -> LanePartitions:
    published = None if normal is None else PublishedTopicSettings(delay_partitions=normal)
    groups = Groups(SystemConfig(topic_settings=published))
    return LanePartitions(lambda: groups, lambda: 0.0)


def _flood(lanes: LanePartitions, target: str, partitions: int) -> set[int]:
    """Where the records beyond the budget go."""
    chosen = [lanes.choose(LANE, partitions, target, b"%d" % number) for number in range(2 * BURST)]
    return set(chosen[BURST:])


def test_within_the_budget_the_key_chooses_among_the_normal_partitions() -> None:
    lanes = _lanes()
    for number in range(100):
        key = b"order-%d" % number
        assert lanes.choose(LANE, 6, "orders", key) == murmur2(key, 4)


def test_without_a_key_all_normal_partitions_are_used() -> None:
    lanes = _lanes()
    assert {lanes.choose(LANE, 6, "orders", None) for _ in range(200)} == {0, 1, 2, 3}


def test_a_flood_goes_to_the_bulk_partition_of_its_group() -> None:
    lanes = _lanes()
    found = {group: _flood(lanes, group, 6) for group in ("orders", "payments", "shipping", "returns")}
    assert all(len(partitions) == 1 for partitions in found.values())
    assert set().union(*found.values()) == {4, 5}


def test_a_topic_without_bulk_partitions_goes_by_key() -> None:
    assert _flood(_lanes(), "orders", 4) == {ANY_PARTITION}


def test_how_many_are_normal_is_what_the_installation_has_published() -> None:
    assert _flood(_lanes(normal=8), "orders", 8) == {ANY_PARTITION}
    assert _flood(_lanes(normal=8), "orders", 9) == {8}
