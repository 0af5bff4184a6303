"""Level tables and policies, as a reconcile reads them in the GROUPS topic."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.wire.names import SYSTEM_KEY, TopicNames
from reconsume.spark_connectors.reconcile.judged import LevelTables, _dropping, _tables

POLICY = {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [7_000]}}}


def told(value: dict[str, Any] | None, set_at: int) -> SimpleNamespace:
    """A record of GROUPS; None is a tombstone."""
    return SimpleNamespace(value=None if value is None else json.dumps(value).encode(), set_at=set_at)


@pytest.mark.parametrize("value", [None, {}, {"groupRetryPolicy": None}], ids=["deleted", "cleared", "null"])
@pytest.mark.parametrize(("table_at", "since_ms"), [(None, 5), (3, 5), (9, 9)])
def test_a_group_without_its_policy_has_the_common_table_from_then_on(
    value: dict[str, Any] | None, table_at: int | None, since_ms: int
) -> None:
    """Earlier send-backs followed the removed policy, so each of them would be WRONG_LEVEL."""
    records = {"g": told(value, 5)}
    if table_at is not None:
        records[SYSTEM_KEY] = told({"messageDelayLevel": "1s 2s"}, table_at)
    tables = _tables(records)
    policy, since = tables.of_group["g"]
    assert (policy.distinct_delays_ms(), since) == (tables.table.distinct_delays_ms(), since_ms)


def test_a_deleted_common_table_is_the_default_from_then_on() -> None:
    tables = _tables({"g": told(POLICY, 3), SYSTEM_KEY: told(None, 8)})
    assert tables.since_ms == 8
    assert tables.table.distinct_delays_ms() == DelayLevels.parse(DEFAULT_LEVEL_TABLE).distinct_delays_ms()
    assert [(name, since) for name, (_, since) in tables.of_group.items()] == [("g", 3)]


@pytest.mark.parametrize("value", [b"[" * 200_000, b"\xff", b"17", b'{"groupRetryPolicy": {"type": "NONE"}}'])
def test_an_unreadable_record_of_a_group_leaves_the_defaults(value: bytes) -> None:
    tables = _tables({"bad": SimpleNamespace(value=value, set_at=1), "good": told(POLICY, 1)})
    assert list(tables.of_group) == ["good"]


@pytest.mark.parametrize(
    ("topics", "longest_ms"),
    [
        ([], 60_000),
        (["DELAY.10s", "DELAY.1m"], 60_000),
        (["DELAY.10s", "DELAY.2h"], 7_200_000),
        (["SEND_BACK", "DELAY.2 hours", "PARKED.departures"], 60_000),
    ],
    ids=["unknown", "as the table", "a removed level", "no delay"],
)
def test_records_of_a_removed_level_keep_their_delay(topics: list[str], longest_ms: int) -> None:
    """A window that looked back less would miss their send-backs, and report their deliveries as ORPHAN."""
    tables = LevelTables(DelayLevels.parse("10s 1m"))
    partitions = [(f"reconsume.{topic}", 0) for topic in topics]
    assert tables.with_topics(TopicNames(), partitions).longest_ms == longest_ms


def changes(*values: tuple[int, dict[str, Any] | None]) -> list[SimpleNamespace]:
    """Records of the group g at these offsets, set at 100 times the offset."""
    return [
        SimpleNamespace(key=b"g", offset=offset, set_at=100 * offset, value=value and json.dumps(value).encode())
        for offset, value in values
    ]


OFF, ON = {"retryQueueNums": 0}, {"retryQueueNums": 1}


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (changes((0, ON), (1, ON)), (False, 0)),
        (changes((0, ON), (1, OFF), (2, OFF)), (True, 100)),
        (changes((0, OFF), (1, ON)), (False, 100)),
        (changes((0, OFF), (1, None)), (False, 100)),
        (changes((7, ON), (9, ON)), (False, 0)),
        (changes((7, OFF), (9, OFF)), (True, 700)),
        (changes((0, OFF), (1, {"retryQueueNums": "many"})), (False, 100)),
    ],
    ids=["never off", "off", "on again", "deleted", "on, earlier ones compacted", "off, compacted", "unreadable"],
)
def test_since_when_a_group_drops_or_keeps(records: list[SimpleNamespace], found: tuple[bool, int]) -> None:
    assert _dropping(records) == {"g": found}
