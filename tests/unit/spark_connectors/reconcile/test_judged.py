"""Level tables and policies, as a reconcile reads them in the GROUPS topic."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.reconcile.judged import LevelTables, _tables


@pytest.mark.parametrize("value", [b"[" * 200_000, b"\xff", b"17", b'{"groupRetryPolicy": {"type": "NONE"}}'])
def test_an_unreadable_record_of_a_group_leaves_the_defaults(value: bytes) -> None:
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [7_000]}}
    told = {
        "bad": SimpleNamespace(value=value, set_at=1),
        "good": SimpleNamespace(value=json.dumps({"groupRetryPolicy": policy}).encode(), set_at=1),
    }
    tables = _tables(told)
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
