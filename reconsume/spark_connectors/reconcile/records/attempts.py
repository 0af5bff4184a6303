"""Pair send-backs with what became of them: one row an attempt, after one shuffle.

A fault may tear the two apart: then there is a missing delivery, and one that nobody asked for.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.records.records import IDENTITY

_FIELDS: Final = {
    "inbox": ("appended", "kafka_topic", "partition", "offset", "damage", "stamp", "released", "by_producer"),
    "sent": (
        *("due", "appended", "kafka_topic", "partition", "offset", "level", "delay_ms", "dead", "replayed", "damage"),
        *("stamp", "released", "by_producer"),
    ),
    "arrived": (
        *("astray", "appended", "kafka_topic", "partition", "offset", "kind", "level", "dead", "damage", "stamp"),
        *("deliveries", "cause", "by_producer"),
    ),
}
"""What is kept of the records of each side; fields by which several of one attempt are put in order come first."""

_FAULTS: Final = ("WRONG_COUNT", "WRONG_GROUP", "DAMAGED")
"""In the order in which they are tried."""
_PLACE: Final = ("topic", "partition", "offset")


def pair_attempts(records: DataFrame) -> DataFrame:
    """One row for each send-back with its delivery, and for each delivery that no send-back explains.

    A message that was sent back twice and delivered twice (its consumer died before it committed) gives two rows;
    the first that was due takes the first delivery. Records of one message are brought together once, by its origin.

    Columns: `IDENTITY`; `copy`, 0 for the first pair of an attempt; `copies_sent`; what `records` tells of the three
    sides, with `inbox_`, `sent_` and `arrived_` before the names; `parked`, whether it waited for the end of a pause,
    or does; `retried`, the highest attempt of the message that came back, and when (`attempt`, `appended`).
    """
    # Windows, not groups: Spark collects lists of groups in two steps, and sorts for each of them and once more for the
    # window below. These all take the order of one sort.
    attempt = Window.partitionBy(*IDENTITY).orderBy("appended")
    whole = attempt.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    sides = {
        name: F.collect_list(F.when(F.col("side") == name, F.struct(*fields))).over(whole)
        for name, fields in _FIELDS.items()
    }
    together = records.repartition("origin_message_id").select(
        *IDENTITY, *(column.alias(name) for name, column in sides.items()), F.row_number().over(attempt).alias("number")
    )
    grouped = together.where("number = 1").select(*IDENTITY, *(F.sort_array(name).alias(name) for name in sides))
    is_parked = F.exists("arrived", lambda one: one["kind"] == "parked")
    grouped = grouped.withColumn("parked", is_parked).withColumn("arrived", _delivered_first())
    grouped = grouped.withColumn("arrived", _likeliest_first())
    life = Window.partitionBy("group", "origin_message_id", "replay_times")
    first = F.get("arrived", F.lit(0))
    came_back = F.when(
        (first["kind"] == "retry") & ~first["by_producer"],
        F.struct(F.col("attempt"), first["appended"].alias("appended")),
    )
    numbered = grouped.withColumn("retried", F.max(came_back).over(life)).select(
        *IDENTITY,
        "retried",
        "parked",
        F.size("sent").alias("copies_sent"),
        F.posexplode(F.arrays_zip(*sides)).alias("copy", "record"),
    )
    fields = [(side, name) for side, names in _FIELDS.items() for name in names]
    return numbered.select(
        *IDENTITY,
        "copy",
        "copies_sent",
        "retried",
        "parked",
        *(F.col("record")[side][name].alias(f"{side}_{name.removeprefix('kafka_')}") for side, name in fields),
    )


def _delivered_first() -> Column:
    """A parked record counts as the delivery of a send-back that has no other one yet."""
    delivered = F.filter("arrived", lambda one: one["kind"] != "parked")
    parked = F.filter("arrived", lambda one: one["kind"] == "parked")
    kept = F.slice(F.concat(delivered, parked), 1, F.greatest(F.size("sent"), F.size(delivered), F.lit(1)))
    return F.when(F.col("parked"), kept).otherwise(F.col("arrived"))


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


def pair_up(pairs: DataFrame, now_ms: int) -> DataFrame:
    """`pairs` with a column `paired`: the fault by which a delivery looks like that of another attempt, else null.

    The two have the same key and value; they differ in their count, in their group, or one has lost its name. The
    row of the send-back takes the delivery, and the delivery's own row goes.
    """
    due = F.col("sent_by_producer") | (F.coalesce("sent_due", "sent_appended") < F.timestamp_millis(F.lit(now_ms)))
    missing = pairs.where(F.col("sent_offset").isNotNull() & F.col("arrived_offset").isNull() & due)
    surplus = pairs.where(F.col("sent_offset").isNull() & F.col("arrived_kind").isin("retry", "dead_letter"))
    known = candidates(missing, surplus)
    untimed = F.col("m.sent_by_producer") | F.col("s.arrived_by_producer")
    best = _best(known.where(untimed | (F.col("s.arrived_appended") >= F.col("m.sent_appended"))))
    arrived = [name for name in pairs.columns if name.startswith("arrived_")]
    matches = best.select(
        *(F.col(f"m.sent_{name}").alias(f"of_{name}") for name in _PLACE),
        *(F.col(f"s.{name}").alias(f"found_{name}") for name in arrived),
        F.col("fault").alias("paired"),
    )
    gone = F.broadcast(matches.select(*(f"found_arrived_{name}" for name in _PLACE)))
    kept = pairs.join(
        gone, [F.col(f"arrived_{name}") == F.col(f"found_arrived_{name}") for name in _PLACE], "left_anti"
    )
    same = [F.col(f"sent_{name}") == F.col(f"of_{name}") for name in _PLACE]
    taken = {name: F.coalesce(F.col(f"found_{name}"), F.col(name)) for name in arrived}
    return kept.join(F.broadcast(matches), same, "left").withColumns(taken).select(*pairs.columns, "paired")


def candidates(missing: DataFrame, surplus: DataFrame) -> DataFrame:
    """Send-backs `m` and deliveries `s` that may belong together, by `fault`; a pair may stand there twice.

    Key and value alone would bring all of them together where messages are alike, so the fault's own key is compared.
    """
    group, nobody = F.coalesce("group", F.lit("")), F.lit("")
    damaged_sent, damaged_arrived = F.col("sent_damage").isNotNull(), F.col("arrived_damage").isNotNull()
    # One of the two is damaged; a send-back may have lost its group with its name.
    m = _with_keys(
        missing, F.when(damaged_sent, _key("DAMAGED", F.lit("sent"), group)), _key("DAMAGED", F.lit("arrived"), group)
    )
    s = _with_keys(
        surplus,
        *(_key("DAMAGED", F.lit("sent"), name) for name in (group, nobody)),
        *(F.when(damaged_arrived, _key("DAMAGED", F.lit("arrived"), name)) for name in (group, nobody)),
    )
    alike = (F.col("m.sent_stamp") == F.col("s.arrived_stamp")) & (F.col("m.key") == F.col("s.key"))
    joined = m.alias("m").join(s.alias("s"), alike).withColumn("fault", F.col("m.key")["fault"])
    same = [F.col(f"m.{name}").eqNullSafe(F.col(f"s.{name}")) for name in ("group", "attempt")]
    return joined.where((F.col("fault") == "DAMAGED") | ~(same[0] & same[1]))


def _with_keys(rows: DataFrame, *damaged: Column) -> DataFrame:
    """A row for each fault by which one of the rows may have been torn from another."""
    message = F.col("origin_message_id"), F.col("replay_times")
    named = _key("WRONG_COUNT", *message, F.col("group")), _key("WRONG_GROUP", *message, F.col("attempt"))
    return rows.withColumn("key", F.explode(F.array_compact(F.array(*named, *damaged))))


def _key(fault: str, *parts: Column) -> Column:
    return F.struct(F.lit(fault).alias("fault"), F.array(*(part.cast("string") for part in parts)).alias("parts"))


def _best(joined: DataFrame) -> DataFrame:
    """Each send-back and each delivery at most once: the likeliest fault, then the nearest in time."""
    rank = F.array_position(F.array(*map(F.lit, _FAULTS)), F.col("fault"))
    distance = F.abs(F.unix_millis("s.arrived_appended") - F.unix_millis(F.coalesce("m.sent_due", "m.sent_appended")))
    places = [[f"{side}_{name}" for name in _PLACE] for side in ("m.sent", "s.arrived")]
    for place in places:
        order = Window.partitionBy(*place).orderBy(rank, distance, *places[0], *places[1])
        joined = joined.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return joined
