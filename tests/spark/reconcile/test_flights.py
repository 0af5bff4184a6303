"""Reconcile agrees with a count in plain Python, and with the flights themselves, though schedulers were killed."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors import Tolerances, reconcile
from reconsume.spark_connectors.reconcile import summarise
from tests.spark.histories.flights import fly

FLIGHTS = int(os.environ.get("RECONSUME_TEST_FLIGHTS", "12000"))
KILLS = 3


@pytest.mark.kafka
@pytest.mark.timeout(3_600)
def test_reconcile_agrees_with_a_count_in_plain_python_group_by_group_and_level_by_level(
    spark: SparkSession, bootstrap_servers: str
) -> None:
    flown = fly(bootstrap_servers, FLIGHTS, KILLS)
    count, prefix = flown.count, flown.installation.settings.topic_prefix
    assert count.delivered == flown.expected
    assert set(map(tuple, count.attempts.values())) == {(1, 1)}
    # What a killed scheduler held is late, which is no news here.
    tolerances = Tolerances(late=dt.timedelta(hours=1))
    found = reconcile(spark, bootstrap_servers, topic_prefix=prefix, tolerances=tolerances)
    figures = summarise(found.ledger, found.now, found.since)
    rows = found.ledger.groupBy("group", "dead", "sent_topic", "level", "attempt", "outcome").count().collect()
    found.close()
    sent: Counter[tuple[str, bool, str, int]] = Counter()
    delivered: Counter[tuple[str, bool, int]] = Counter()
    for row in rows:
        assert row.outcome == ("dead" if row.dead else "moved")
        sent[row.group, row.dead, row.sent_topic.removeprefix(prefix), row.level] += row["count"]
        delivered[row.group, row.dead, row.attempt] += row["count"]
    assert (sent, delivered) == (count.sent, count.delivered)
    assert (figures["verdict"], figures["notes"], figures["attempts"]) == ("ok", {}, count.deliveries)
    by_group = {
        row["group"]: (row["sent_back"], row["moved"], row["dead"], row["waiting"]) for row in figures["groups"]
    }
    assert by_group == {group: (*_totals(count.delivered, group), 0) for group in flown.groups}
    waits = Counter({delay: 0 for _group, _dead, delay, _level in count.sent})
    for (_group, _dead, delay, _level), times in count.sent.items():
        waits[delay] += times
    by_delay = {f"DELAY.{row['delay_ms'] // 1_000}s": row["sent_back"] for row in figures["levels"]}
    assert by_delay == waits
    assert all(row["min"] >= 0 for row in figures["levels"])  # nothing came early


def _totals(delivered: Counter[tuple[str, bool, int]], group: str) -> tuple[int, int, int]:
    """Sent back, delivered again, dead letters."""
    dead = sum(times for (name, is_dead, _), times in delivered.items() if name == group and is_dead)
    both = sum(times for (name, _, _), times in delivered.items() if name == group)
    return both, both - dead, dead
