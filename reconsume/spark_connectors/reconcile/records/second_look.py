"""A second look where it matters: at deliveries in flight, and at origin topics."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.names import POSITION, place_of
from reconsume.spark_connectors.reconcile.records.records import IDENTITY, read_records
from reconsume.spark_connectors.session import broadcast_if_few
from reconsume.spark_connectors.source import TopicSource

_IN_FLIGHT_MS: Final = 60_000
"""Longer than any transaction of a scheduler (15 s) plus the start of Spark."""


def forgive_deliveries_in_flight(source: TopicSource, ledger: DataFrame, now_ms: int, lost_rows: int) -> DataFrame:
    """Turn lost attempts back into waiting ones if an open transaction writes or hides their next record.

    A reader of committed records stops before the oldest open transaction of a partition. So it misses later
    deliveries of other workers, and their copies of inbox records on delay topics, although these and their offsets
    are committed. Tests: tests/spark/reconcile/test_open_transactions.py, test_verdicts.py.

    Args:
        source: the topics.
        ledger: the result of `as_ledger`.
        now_ms: the time of the run.
        lost_rows: the maximum number of lost attempts.
    """
    uncommitted = source.since(now_ms - _IN_FLIGHT_MS).with_options(**{"kafka.isolation.level": "read_uncommitted"})
    lost = ledger.where("outcome = 'lost'").select(*(F.col(name).alias(f"lost_{name}") for name in IDENTITY))
    same = [F.col(name).eqNullSafe(F.col(f"lost_{name}")) for name in IDENTITY]
    # Deliveries of that time may be millions; missing attempts are few, unless a retry topic was deleted.
    lost = broadcast_if_few(lost, lost_rows)
    flying = read_records(uncommitted).where("side != 'inbox'").join(lost, same, "left_semi")
    named = (F.col(name).alias(f"lost_{name}") for name in IDENTITY)
    flying = flying.groupBy(*named).agg(F.bool_or(F.col("side") == "arrived").alias("is_delivered"))
    joined = ledger.join(broadcast_if_few(flying, lost_rows), same, "left")
    # The attempt's own send-back, which was read, proves nothing.
    hidden = F.col("is_delivered") | (F.col("is_delivered").isNotNull() & F.col("sent_offset").isNull())
    forgiven = F.coalesce(hidden, F.lit(False)) & (F.col("outcome") == "lost")
    changed = {
        "findings": F.when(forgiven, F.array_remove("findings", "LOST")).otherwise(F.col("findings")),
        "outcome": F.when(forgiven, "waiting").otherwise(F.col("outcome")),
    }
    return joined.withColumns(changed).select(*ledger.columns)


def note_lost_origins(source: TopicSource, ledger: DataFrame) -> DataFrame:
    """Add the note `ORIGIN_GONE` to attempts of messages whose first copy has left its topic.

    It reads the origin topics from their beginning, but only the places of their records.
    """
    place = F.col("origin_message_id")
    named = place.rlike(POSITION) & ~place.startswith(source.names.prefix)
    messages = ledger.where(named).select(place.alias("gone_id")).distinct()
    topics = [
        row.topic
        for row in messages.select(F.split_part("gone_id", F.lit("/"), F.lit(1)).alias("topic")).distinct().collect()
    ]
    if not topics:
        return ledger
    raw = source.of_clients().raw(pattern="|".join(map(re.escape, topics)))
    there = raw.select(place_of("topic", "partition", "offset").alias("gone_id"))
    gone = messages.join(there, "gone_id", "left_anti").withColumn("gone", F.lit(True))
    noted = F.when(F.col("gone"), F.array_append("notes", F.lit("ORIGIN_GONE"))).otherwise(F.col("notes"))
    joined = ledger.join(gone, F.col("origin_message_id") == F.col("gone_id"), "left")
    return joined.withColumn("notes", noted).select(*ledger.columns)
