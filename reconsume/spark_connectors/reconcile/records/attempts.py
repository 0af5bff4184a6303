"""Pair send-backs with what became of them: one row an attempt, after one shuffle.

Guarantees: the work grows with the records, also where all are copies of one attempt, or all messages are alike.
Test: tests/spark/test_pairing.py.

A fault may tear the two apart: then there is a missing delivery, and one without a send-back.
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
"""What is kept of the records of each side; fields by which several of one attempt are put in order come first."""

_FAULTS: Final = ("WRONG_COUNT", "WRONG_GROUP", "DAMAGED")
"""In the order in which they are tried."""
_PLACE: Final = ("topic", "partition", "offset")
_FEW_PAIRS: Final = 1_000
"""Compare all alike send-backs and deliveries with each other, while that makes no more pairs."""
_LATEST_MS: Final = 1 << 62


def gather_attempts(records: DataFrame) -> DataFrame:
    """One row for each attempt; of an attempt with several records of a side one row for each record.

    Columns: `IDENTITY`; `many`, whether there are several; what `records` tells of the three sides, with `inbox_`,
    `sent_` and `arrived_` before the names; `retried`, the highest attempt of the message that came back, and when
    (`attempt`, `appended`).

    Args:
        records: of `read_records`, those of a message in one partition.
    """
    # Windows, not groups: Spark gathers groups in two steps, and sorts for each of them and once more for the window
    # below. These all take the order of one sort. Lists would stand in each of the rows that they are made of: of n
    # copies n times n.
    # The hash comes first: Spark compares the first bytes of the first column, which groups and ids have in common.
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
    """One row for each send-back with its delivery, and for each delivery that no send-back explains.

    Columns: those of `gather_attempts`; `copy`, 0 for the first pair of an attempt; `copies_sent`; `parked`, whether
    the message waited for the end of a pause, or does.

    Args:
        attempts: of `gather_attempts`, without those that have many records.
    """
    copies = F.when(F.col("sent_offset").isNotNull(), 1).otherwise(0).alias("copies_sent")
    return attempts.select(
        *IDENTITY, F.lit(0).alias("copy"), copies, _parked().alias("parked"), "retried", *_flat_names()
    )


def pair_copies(records: DataFrame) -> DataFrame:
    """The same of attempts with many records.

    A message that was sent back twice and delivered twice (its consumer died before it committed) gives two rows;
    the first that was due takes the first delivery.

    Args:
        records: of `gather_attempts`, those of attempts that have many.
    """
    attempt = Window.partitionBy(*IDENTITY)
    sent, delivered = (
        F.count(one).over(attempt) for one in ("sent_offset", F.when(~_parked(), F.col("arrived_offset")))
    )
    # Of more deliveries than send-backs those come first that were not before their time, nor on another topic.
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
    # A parked record counts as the delivery of a send-back that has no other one yet.
    numbered = rows.withColumn("copy", F.row_number().over(in_order) - 1)
    kept = numbered.where(~_parked() | (F.col("copy") < F.col("kept")))
    paired = kept.groupBy(*IDENTITY, "copy")
    return paired.agg(*(F.first(name, ignorenulls=True).alias(name) for name in told)).withColumn(
        "copies_sent", F.col("copies_sent").cast("int")
    )


def _parked() -> Column:
    """Whether a record waits in its group's parked topic, or did."""
    return F.coalesce(F.col("arrived_kind") == "parked", F.lit(False))


def _flat() -> list[tuple[str, str, str]]:
    """Return for each field its side, its name there, and that of its column."""
    return [(side, name, f"{side}_{name.removeprefix('kafka_')}") for side, names in _FIELDS.items() for name in names]


def _flat_names() -> list[str]:
    return [column for _, _, column in _flat()]


def pair_up(pairs: DataFrame, now_ms: int, surplus_rows: int) -> DataFrame:
    """`pairs` with a column `paired`: the fault by which a delivery looks like that of another attempt, else null.

    The two have the same key and value; they differ in their count, in their group, or one has lost its name. The
    row of the send-back takes the delivery, and the delivery's own row goes.

    Args:
        pairs: of `pair_attempts` and `pair_copies`.
        now_ms: of the run.
        surplus_rows: deliveries that no send-back explains.
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
    """Send-backs `m` and deliveries `s` that may belong together, by `fault`; a pair may stand there twice.

    Key and value alone would bring all of them together where messages are alike, so the fault's own key is compared.
    Where many still have the same, they are paired in the order of time, each delivery with the first send-back before
    it that none has taken: all with all would be squares.
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
    """When a record came; a time that only its producer tells excludes nothing."""
    at = F.when(~F.col(f"{side}_by_producer"), F.unix_millis(f"{side}_appended"))
    return F.coalesce(at, F.lit(untimed_ms)).cast("bigint")


def _with_slots(rows: DataFrame) -> DataFrame:
    """Adds `slot`: 0 where few are alike, else the place in a queue that send-backs join and deliveries leave."""
    alike = Window.partitionBy("same", "key")
    until = alike.orderBy("at", F.desc("missing"), *(F.coalesce(f"sent_{one}", f"arrived_{one}") for one in _PLACE))
    until = until.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    here, sent = F.col("missing"), F.sum("missing").over(until)
    rows = rows.withColumns({"joined": sent, "came": F.sum(1 - here).over(until)})
    # A delivery that finds the queue empty leaves nothing.
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
