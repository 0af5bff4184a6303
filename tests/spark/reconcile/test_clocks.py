"""Topics that keep what producers' clocks say: nothing is judged by those times, and it is told."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile import summarise
from reconsume.spark_connectors.reconcile.records import records
from tests.spark.histories.copies import Copy, write
from tests.spark.histories.lived import Lived

pytestmark = [pytest.mark.kafka, pytest.mark.more]
MINUTE_MS = 60_000


def test_times_of_producers_are_told_and_not_judged(
    spark: SparkSession, lived: Lived, taken: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send-backs of the next hour, and deliveries of yesterday: only what was delivered nowhere is known."""
    monkeypatch.setattr(records, "PRODUCERS_TIME", 0)
    copy = Copy(taken.partitions, [])
    for one in taken.records:
        # A copy is an hour earlier.
        ahead, behind = one.topic.startswith("DELAY."), one.topic.startswith(("RETRY.", "DLQ."))
        later_ms = 110 * MINUTE_MS if ahead else -1_440 * MINUTE_MS if behind else 0
        copy.records.append(one.changed(later_ms=later_ms))
    missing = copy.of("RETRY.")[3]
    copy.records.remove(missing)
    prefix = write(lived.bootstrap_servers, copy)
    ends = {(prefix + topic, number): 10**6 for topic, count in copy.partitions.items() for number in range(count)}
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, committed={prefix + "scheduler": ends})
    findings = [(row.kind, row.group, row.origin_message_id, row.attempt) for row in found.findings.collect()]
    figures = summarise(found.ledger, found.now, found.since)
    late = found.ledger.where("lateness_ms IS NOT NULL").count()
    found.close()
    assert findings == [("LOST", *missing.attempt)]
    assert figures["notes"] == {"PRODUCERS_TIME": len(copy.of("DELAY."))}
    assert figures["attempts"] == figures["moved"] + figures["dead"] + 1 == len(copy.of("DELAY."))
    assert late == 0
