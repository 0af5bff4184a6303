"""Records of paused groups that schedulers have delivered, after retention has deleted the deliveries."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.reconcile.records.deleted import DeletedRecords, Extent
from reconsume.spark_connectors.session import local_rows

NAMES = TopicNames("p.")
ROWS = (
    "`group` STRING, outcome STRING, damage STRING, dead BOOLEAN, sent_offset BIGINT, target_topic STRING, "
    "target_offset BIGINT, due TIMESTAMP, appended TIMESTAMP, asked TIMESTAMP, delivered TIMESTAMP, "
    "findings ARRAY<STRING>, notes ARRAY<STRING>"
)
PAIRS = "arrived_topic STRING, arrived_partition INT, arrived_offset BIGINT, arrived_appended TIMESTAMP"
LOST: dict[str, Any] = {
    "group": "g",
    "outcome": "lost",
    "dead": False,
    "sent_offset": 1,
    "findings": ["LOST"],
    "notes": [],
    "due": "2026-11-20 08:00:00",
    "appended": "2026-11-20 07:59:50",
    "target_offset": 5,
}
FIRST_DELIVERY: dict[str, Any] = {
    "arrived_topic": NAMES.retry("g"),
    "arrived_partition": 0,
    "arrived_offset": 7,
    "arrived_appended": "2026-11-21 08:00:00",
}
BEFORE, AFTER = "2026-11-20 08:00:01", "2026-11-21 08:00:01"


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        pytest.param({"delivered": BEFORE}, "expired", id="its delivery may have been deleted"),
        pytest.param({"delivered": BEFORE, "sent_offset": None}, "expired", id="its send-back is gone too"),
        pytest.param({"delivered": AFTER}, "lost", id="parked after the first delivery that is left"),
        pytest.param(
            {"delivered": BEFORE, "target_topic": NAMES.quarantine},
            "lost",
            id="released from the quarantine to nowhere",
        ),
    ],
)
def test_a_parked_record_is_not_lost_if_its_delivery_may_have_been_deleted(
    spark: SparkSession, row: dict[str, Any], outcome: str
) -> None:
    """The send-back was due at 8:00 and parked; the first deliveries of the retry topic are gone."""
    rows = local_rows(spark, [LOST | {"target_topic": NAMES.parked("g")} | row], ROWS)
    pairs = local_rows(spark, [FIRST_DELIVERY], PAIRS)
    extents = {(NAMES.retry("g"), 0): Extent(7, 9), (NAMES.dead_letter("g"), 0): Extent(3, 3)}
    found = DeletedRecords(NAMES, 1 << 41, lambda: extents, from_beginning=True, in_window=False, gaps=False)
    (judged,) = found.with_expired(rows, pairs, F.col("outcome") == "lost").collect()
    assert judged.outcome == outcome
    assert (judged.findings, judged.notes) == (([], ["EXPIRED"]) if outcome == "expired" else (["LOST"], []))
