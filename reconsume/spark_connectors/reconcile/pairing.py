"""Bring together what one fault has torn apart: a missing delivery, and one that nobody asked for."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["pair_up"]

_FAULTS: Final = ("WRONG_COUNT", "WRONG_GROUP", "DAMAGED")
"""In the order in which they are tried."""
_PLACE: Final = ("topic", "partition", "offset")


def pair_up(pairs: DataFrame, now_ms: int) -> DataFrame:
    """`pairs` with a column `paired`: the fault by which a delivery looks like that of another attempt, else null.

    The two have the same key and value; they differ in their count, in their group, or one has lost its name. The
    row of the send-back takes the delivery, and the delivery's own row goes.
    """
    due = F.col("sent_by_producer") | (F.coalesce("sent_due", "sent_appended") < F.timestamp_millis(F.lit(now_ms)))
    missing = pairs.where(F.col("sent_offset").isNotNull() & F.col("arrived_offset").isNull() & due).alias("m")
    surplus = pairs.where(F.col("sent_offset").isNull() & F.col("arrived_kind").isin("retry", "dead_letter"))
    joined = missing.join(surplus.alias("s"), F.col("m.sent_stamp") == F.col("s.arrived_stamp"))
    known = joined.withColumn("fault", _fault()).where("fault is not null")
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


def _fault() -> Column:
    m = {name: F.col(f"m.{name}") for name in ("group", "origin_message_id", "attempt", "replay_times")}
    s = {name: F.col(f"s.{name}") for name in m}
    same = {name: m[name].eqNullSafe(s[name]) for name in m}
    named = same["origin_message_id"] & same["replay_times"]
    damaged = F.col("m.sent_damage").isNotNull() | F.col("s.arrived_damage").isNotNull()
    return (
        F.when(named & same["group"] & ~same["attempt"], "WRONG_COUNT")
        .when(named & same["attempt"] & ~same["group"], "WRONG_GROUP")
        .when(damaged & (same["group"] | m["group"].isNull()), "DAMAGED")
    )


def _best(joined: DataFrame) -> DataFrame:
    """Each send-back and each delivery at most once: the likeliest fault, then the nearest in time."""
    rank = F.array_position(F.array(*map(F.lit, _FAULTS)), F.col("fault"))
    distance = F.abs(F.unix_millis("s.arrived_appended") - F.unix_millis(F.coalesce("m.sent_due", "m.sent_appended")))
    places = [[f"{side}_{name}" for name in _PLACE] for side in ("m.sent", "s.arrived")]
    for place in places:
        order = Window.partitionBy(*place).orderBy(rank, distance, *places[0], *places[1])
        joined = joined.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return joined
