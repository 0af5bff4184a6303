"""Pair send-backs with what became of them: one row an attempt, after one shuffle."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.records.records import IDENTITY

__all__ = ["pair_attempts"]

_SENT: Final = (
    *("due", "appended", "kafka_topic", "partition", "offset", "level", "delay_ms", "dead", "replayed", "damage"),
    *("stamp", "released", "by_producer"),
)
_ARRIVED: Final = (
    *("astray", "appended", "kafka_topic", "partition", "offset", "kind", "level", "dead", "damage", "stamp"),
    *("deliveries", "cause", "by_producer"),
)
_INBOX: Final = ("appended", "kafka_topic", "partition", "offset", "damage", "stamp", "released", "by_producer")
"""Fields by which several records of one attempt are put in order come first."""


def pair_attempts(records: DataFrame) -> DataFrame:
    """One row for each send-back with its delivery, and for each delivery that no send-back explains.

    A message that was sent back twice and delivered twice (its consumer died before it committed) gives two rows;
    the first that was due takes the first delivery. Records of one message are brought together once, by its origin.

    Columns: `IDENTITY`; `copy`, 0 for the first pair of an attempt; `copies_sent`; what `records` tells of the three
    sides, with `inbox_`, `sent_` and `arrived_` before the names; `retried`, the highest attempt of the message that
    came back, and when (`attempt`, `appended`).
    """
    # Windows, not groups: Spark collects lists of groups in two steps, and sorts for each of them and once more for the
    # window below. These all take the order of one sort.
    attempt = Window.partitionBy(*IDENTITY).orderBy("appended")
    whole = attempt.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    sides = {
        name: F.collect_list(F.when(F.col("side") == name, F.struct(*fields))).over(whole)
        for name, fields in (("inbox", _INBOX), ("sent", _SENT), ("arrived", _ARRIVED))
    }
    together = records.repartition("origin_message_id").select(
        *IDENTITY, *(column.alias(name) for name, column in sides.items()), F.row_number().over(attempt).alias("number")
    )
    grouped = together.where("number = 1").select(*IDENTITY, *(F.sort_array(name).alias(name) for name in sides))
    grouped = grouped.withColumn("arrived", _likeliest_first())
    life = Window.partitionBy("group", "origin_message_id", "replay_times")
    first = F.get("arrived", F.lit(0))
    came_back = F.when(
        (first["kind"] == "retry") & ~first["by_producer"],
        F.struct(F.col("attempt"), first["appended"].alias("appended")),
    )
    pairs = F.greatest(*(F.size(name) for name in sides))
    numbered = grouped.withColumn("retried", F.max(came_back).over(life)).select(
        "*", F.size("sent").alias("copies_sent"), F.explode(F.sequence(F.lit(0), pairs - 1)).alias("copy")
    )
    return numbered.select(
        *IDENTITY,
        "copy",
        "copies_sent",
        "retried",
        *_side("inbox", _INBOX),
        *_side("sent", _SENT),
        *_side("arrived", _ARRIVED),
    )


def _likeliest_first() -> Column:
    """Of more deliveries than send-backs those come first that were not before their time, nor on another topic."""
    due = F.get("sent", F.lit(0))["due"]
    # Nothing of it is computed for the others: these are nearly all.
    return F.when(
        (F.size("sent") > 0) & (F.size("arrived") > F.size("sent")),
        F.concat(
            F.filter("arrived", lambda one: ~one["astray"] & (one["appended"] >= due)),
            F.filter("arrived", lambda one: one["astray"] | ~F.coalesce(one["appended"] >= due, F.lit(False))),
        ),
    ).otherwise(F.col("arrived"))


def _side(name: str, fields: tuple[str, ...]) -> list[Column]:
    record = F.get(name, F.col("copy"))
    return [record[field].alias(f"{name}_{field.removeprefix('kafka_')}") for field in fields]
