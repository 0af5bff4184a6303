"""Pairs send-backs with their deliveries: one row for each attempt, after one shuffle.

Guarantees: the work is linear in the records, even if all are copies of one attempt or all messages are alike.
Test: tests/spark/reconcile/test_pairing.py.

A fault may separate the two; the result is a missing delivery, and a delivery without a send-back.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.records.records import IDENTITY
from reconsume.spark_connectors.session import broadcast_if_few

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
"""The kept fields of each side's records; fields that order the records of an attempt come first."""

_FAULTS: Final = ("WRONG_COUNT", "WRONG_GROUP", "DAMAGED")
"""In the order in which they are tried."""
_PLACE: Final = ("topic", "partition", "offset")
_FEW_PAIRS: Final = 1_000
"""Compare all similar send-backs and deliveries with each other up to this number of pairs."""
_LATEST_MS: Final = 1 << 62


def gather_attempts(records: DataFrame) -> DataFrame:
    """Return one row for each attempt; for an attempt with several records of a side, one row for each record.

    Columns: `IDENTITY`; `many`, whether there are several; the fields of `records` for the three sides, with the
        prefixes
    `inbox_`, `sent_` and `arrived_`; `retried`, the highest attempt of the message that returned, and when (`attempt`,
    `appended`).

    Args:
        records: the result of `read_records`, with all records of a message in one partition.
    """
    # Windows instead of groups: Spark aggregates groups in two steps, sorts for each of them, and again for the window
    # below. These windows share one sort. Collected lists would be repeated in each row that they are made of: n times
    # n values for n copies.
    # The hash comes first: Spark compares the first bytes of the first column, which groups and ids share.
    life = ("life", "group", "origin_message_id", "replay_times")
    attempt = Window.partitionBy(*life, "attempt").orderBy("appended")
    whole = attempt.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    own = {name: F.when(F.col("side") == name, F.struct(*fields)) for name, fields in _FIELDS.items()}
    counts = {name: F.count_if(F.col("side") == name).over(whole) for name in own}
    together = (
        records.withColumn("life", F.xxhash64(*life[1:]))
        .select(
            "life",
            *IDENTITY,
            *(column.alias(f"own_{name}") for name, column in own.items()),
            *(F.first(column, ignorenulls=True).over(whole).alias(f"first_{name}") for name, column in own.items()),
            (F.greatest(*counts.values()) > 1).alias("many"),
            F.row_number().over(attempt).alias("number"),
        )
        .where("number = 1 OR many")
    )
    first = F.col("first_arrived")
    came_back = F.when(
        (first["kind"] == "retry") & ~first["by_producer"],
        F.struct(F.col("attempt"), first["appended"].alias("appended")),
    )
    chosen = {
        name: F.when(F.col("many"), F.col(f"own_{name}")).otherwise(F.col(f"first_{name}")).alias(name) for name in own
    }
    rows = together.select(
        *IDENTITY, "many", F.max(came_back).over(Window.partitionBy(*life)).alias("retried"), *chosen.values()
    )
    return rows.select(*IDENTITY, "many", "retried", *(F.col(side)[name].alias(as_) for side, name, as_ in _flat()))


def pair_attempts(attempts: DataFrame) -> DataFrame:
    """Return one row for each send-back with its delivery, and for each delivery without a send-back.

    Columns: those of `gather_attempts`; `copy`, 0 for the first pair of an attempt; `copies_sent`; `parked`, whether
    the message waits, or has waited, for the end of a pause.

    Args:
        attempts: the result of `gather_attempts`, without attempts of many records.
    """
    copies = F.when(F.col("sent_offset").isNotNull(), 1).otherwise(0).alias("copies_sent")
    return attempts.select(
        *IDENTITY, F.lit(0).alias("copy"), copies, _parked().alias("parked"), "retried", *_flat_names()
    )


def pair_copies(records: DataFrame) -> DataFrame:
    """Pair the records of attempts with many records.

    A message that was sent back twice and delivered twice (its consumer died before it committed) gives two rows;
    the first due one takes the first delivery.

    Args:
        records: the rows of `gather_attempts` whose attempts have many records.
    """
    attempt = Window.partitionBy(*IDENTITY)
    sent, delivered = (
        F.count(one).over(attempt) for one in ("sent_offset", F.when(~_parked(), F.col("arrived_offset")))
    )
    # If deliveries outnumber send-backs, those that were neither early nor on another topic come first.
    timely = F.coalesce(F.col("arrived_appended") >= F.min("sent_due").over(attempt), F.lit(False))
    unlikely = (sent > 0) & (delivered > sent) & (F.col("arrived_astray") | ~timely)
    side = F.when(F.col("inbox_offset").isNotNull(), 0).when(F.col("sent_offset").isNotNull(), 1).otherwise(2)
    rows = records.withColumns(
        {
            "copies_sent": sent,
            "unlikely": F.coalesce(unlikely, F.lit(False)),
            "side": side,
            "parked": F.max(_parked()).over(attempt),
            "kept": F.greatest(sent, delivered, F.lit(1)),
        }
    )
    places = [F.coalesce(*(f"{side}_{name}" for side in _FIELDS)) for name in ("appended", *_PLACE)]
    in_order = Window.partitionBy(*IDENTITY, "side").orderBy(
        _parked(), "unlikely", "arrived_astray", "sent_due", *places
    )
    told = (*("copies_sent", "parked", "retried"), *_flat_names())
    # A parked record counts as the delivery of a send-back without another one.
    numbered = rows.withColumn("copy", F.row_number().over(in_order) - 1)
    kept = numbered.where(~_parked() | (F.col("copy") < F.col("kept")))
    paired = kept.groupBy(*IDENTITY, "copy")
    return paired.agg(*(F.first(name, ignorenulls=True).alias(name) for name in told)).withColumn(
        "copies_sent", F.col("copies_sent").cast("int")
    )


def _parked() -> Column:
    """Return whether a record waits, or has waited, in its group's parked topic."""
    return F.coalesce(F.col("arrived_kind") == "parked", F.lit(False))


def _flat() -> list[tuple[str, str, str]]:
    """Return for each field its side, its name there, and the name of its column."""
    return [(side, name, f"{side}_{name.removeprefix('kafka_')}") for side, names in _FIELDS.items() for name in names]


def _flat_names() -> list[str]:
    return [column for _, _, column in _flat()]


def pair_up(pairs: DataFrame, now_ms: int, surplus_rows: int) -> DataFrame:
    """Return `pairs` with a column `paired`: the fault by which a delivery differs from its send-back, else null.

    Both have the same key and value; they differ in count or group, or one has lost its name. The row of the
    send-back takes the delivery, whose own row disappears.

    Args:
        pairs: the results of `pair_attempts` and `pair_copies`.
        now_ms: the time of the run.
        surplus_rows: number of deliveries without a send-back.
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
    gone = broadcast_if_few(matches.select(*(f"found_arrived_{name}" for name in _PLACE)), surplus_rows)
    kept = pairs.join(
        gone, [F.col(f"arrived_{name}") == F.col(f"found_arrived_{name}") for name in _PLACE], "left_anti"
    )
    same = [F.col(f"sent_{name}") == F.col(f"of_{name}") for name in _PLACE]
    taken = {name: F.coalesce(F.col(f"found_{name}"), F.col(name)) for name in arrived}
    found = kept.join(broadcast_if_few(matches, surplus_rows), same, "left")
    return found.withColumns(taken).select(*pairs.columns, "paired")


def candidates(missing: DataFrame, surplus: DataFrame) -> DataFrame:
    """Return send-backs `m` and deliveries `s` that may belong together, by `fault`; a pair may appear twice.

    Key and value alone would match all of them if messages are alike, so the key of the fault is compared too. If many
    still have the same key, they are paired by time, each delivery with the first free send-back before it: all pairs
    would be quadratic.
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
    m = m.withColumns({"missing": F.lit(1), "at": _at("sent", 0), "same": F.col("sent_stamp")})
    s = s.withColumns({"missing": F.lit(0), "at": _at("arrived", _LATEST_MS), "same": F.col("arrived_stamp")})
    slotted = _with_slots(m.unionByName(s))
    m, s = slotted.where("missing = 1"), slotted.where("missing = 0")
    alike = [F.col(f"m.{name}") == F.col(f"s.{name}") for name in ("same", "key", "slot")]
    joined = m.alias("m").join(s.alias("s"), alike).withColumn("fault", F.col("m.key")["fault"])
    same = [F.col(f"m.{name}").eqNullSafe(F.col(f"s.{name}")) for name in ("group", "attempt")]
    return joined.where((F.col("fault") == "DAMAGED") | ~(same[0] & same[1]))


def _at(side: str, untimed_ms: int) -> Column:
    """Return the time of a record; a time from the producer's clock excludes nothing."""
    at = F.when(~F.col(f"{side}_by_producer"), F.unix_millis(f"{side}_appended"))
    return F.coalesce(at, F.lit(untimed_ms)).cast("bigint")


def _with_slots(rows: DataFrame) -> DataFrame:
    """Add `slot`: 0 if few rows are alike, else the place in a queue that send-backs enter and deliveries leave."""
    alike = Window.partitionBy("same", "key")
    until = alike.orderBy("at", F.desc("missing"), *(F.coalesce(f"sent_{one}", f"arrived_{one}") for one in _PLACE))
    until = until.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    here, sent = F.col("missing"), F.sum("missing").over(until)
    rows = rows.withColumns({"joined": sent, "came": F.sum(1 - here).over(until)})
    # A delivery that finds the queue empty removes nothing.
    rows = rows.withColumn("vain", F.greatest(F.lit(0), F.max(F.col("came") - F.col("joined")).over(until)))
    rows = rows.withColumn(
        "vain_before", F.coalesce(F.max("vain").over(until.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    )
    queued = F.when(here == 1, F.col("joined")).when(
        F.col("vain") == F.col("vain_before"), F.col("came") - F.col("vain")
    )
    all_sent, all_came = F.sum(here).over(alike), F.sum(1 - here).over(alike)
    return rows.withColumn("slot", F.when(all_sent * all_came <= _FEW_PAIRS, 0).otherwise(queued))


def _with_keys(rows: DataFrame, *damaged: Column) -> DataFrame:
    """Return a row for each fault that may have separated the row from another."""
    message = F.col("origin_message_id"), F.col("replay_times")
    named = _key("WRONG_COUNT", *message, F.col("group")), _key("WRONG_GROUP", *message, F.col("attempt"))
    return rows.withColumn("key", F.explode(F.array_compact(F.array(*named, *damaged))))


def _key(fault: str, *parts: Column) -> Column:
    return F.struct(F.lit(fault).alias("fault"), F.array(*(part.cast("string") for part in parts)).alias("parts"))


def _best(joined: DataFrame) -> DataFrame:
    """Keep each send-back and each delivery at most once: the likeliest fault, then the nearest in time."""
    rank = F.array_position(F.array(*map(F.lit, _FAULTS)), F.col("fault"))
    distance = F.abs(F.unix_millis("s.arrived_appended") - F.unix_millis(F.coalesce("m.sent_due", "m.sent_appended")))
    places = [[f"{side}_{name}" for name in _PLACE] for side in ("m.sent", "s.arrived")]
    for place in places:
        order = Window.partitionBy(*place).orderBy(rank, distance, *places[0], *places[1])
        joined = joined.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return joined
