"""Look once more, where it matters: at what is still being written, and at the topics where messages came from."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.records.records import IDENTITY, place_of, read_records
from reconsume.spark_connectors.source import TopicSource

__all__ = ["POSITION", "Standing", "forgive_deliveries_in_flight", "note_lost_origins", "standing"]

_IN_FLIGHT_MS: Final = 60_000
"""Longer than any transaction of a scheduler (15 s) and the time that Spark took to start."""
POSITION: Final = r"\A[A-Za-z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}\z"
"""A topic of Kafka, a partition, an offset."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands where.

    Attributes:
        stamps: of key and value, by `<topic>/<partition>/<offset>`.
        begins: the first offset that there is, by `<topic>/<partition>`.
    """

    stamps: Mapping[str, int]
    begins: Mapping[str, int]

    def is_missing(self, place: str, stamp: int | None) -> bool:
        """Whether a record should be there and is not; False if it may have been deleted by retention."""
        if place in self.stamps:
            return stamp is not None and self.stamps[place] != stamp
        partition, _, offset = place.rpartition("/")
        return partition in self.begins and self.begins[partition] < int(offset)


def forgive_deliveries_in_flight(source: TopicSource, ledger: DataFrame, now_ms: int) -> DataFrame:
    """Lost attempts whose delivery is written in a transaction that has not ended wait still.

    A reader of committed records stops before the oldest open transaction of a partition, and so misses deliveries
    of other workers behind it that are committed, offsets and all. Test: tests/spark/test_reconcile.py.
    """
    uncommitted = source.since(now_ms - _IN_FLIGHT_MS).with_options(**{"kafka.isolation.level": "read_uncommitted"})
    records = read_records(uncommitted)
    names = [F.col(name).alias(f"flying_{name}") for name in IDENTITY]
    flying = records.where("side = 'arrived'").select(*names).distinct().withColumn("flying", F.lit(True))
    same = [F.col(name).eqNullSafe(F.col(f"flying_{name}")) for name in IDENTITY]
    forgiven = F.coalesce("flying", F.lit(False)) & (F.col("outcome") == "lost")
    return (
        ledger.join(F.broadcast(flying), same, "left")
        .withColumn("findings", F.when(forgiven, F.array_remove("findings", "LOST")).otherwise(F.col("findings")))
        .withColumn("outcome", F.when(forgiven, "waiting").otherwise(F.col("outcome")))
        .select(*ledger.columns)
    )


def note_lost_origins(source: TopicSource, ledger: DataFrame) -> DataFrame:
    """Adds the note `ORIGIN_GONE` to attempts of messages whose first copy is not on its topic any more.

    It reads the origin topics whole, and of these only where their records stand.
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
    there = raw.select(F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string")))
    gone = messages.join(there.toDF("gone_id"), "gone_id", "left_anti").withColumn("gone", F.lit(True))
    noted = F.when(F.col("gone"), F.array_append("notes", F.lit("ORIGIN_GONE"))).otherwise(F.col("notes"))
    joined = ledger.join(gone, F.col("origin_message_id") == F.col("gone_id"), "left")
    return joined.withColumn("notes", noted).select(*ledger.columns)


def standing(source: TopicSource, places: Collection[str]) -> Standing:
    """What stands at these places; it reads their topics whole."""
    topics = sorted({place.split("/")[0] for place in places})
    raw = source.of_clients().raw(pattern="|".join(map(re.escape, topics)))
    place = place_of("topic", "partition", "offset")
    wanted = F.when(place.isin(list(places)), F.struct(place, F.xxhash64("key", "value")))
    rows = raw.groupBy("topic", "partition").agg(F.min("offset").alias("begin"), F.collect_list(wanted).alias("found"))
    stamps: dict[str, int] = {}
    begins: dict[str, int] = {}
    for row in rows.collect():
        begins[f"{row.topic}/{row.partition}"] = row.begin
        stamps |= {one[0]: one[1] for one in row.found}
    return Standing(stamps, begins)
