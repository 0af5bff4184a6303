"""A ledger in Parquet that grows with each run: settled attempts are not read from Kafka again; see `ledger_log`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.names import place_of
from reconsume.spark_connectors.reconcile.records.deleted import Extent, Partition
from reconsume.spark_connectors.reconcile.records.ledger_log import DAY_MS, LedgerLog, shown_moment, write_rows
from reconsume.spark_connectors.reconcile.records.records import IDENTITY
from reconsume.spark_connectors.session import broadcast_if_few, literal_path, local_rows, rows_if_there

_OVERLAP_MS: Final = 60_000
"""Records that a transaction hid from the last run may be this much older than its end."""
_SHORTEST_RETENTION_MS: Final = 7 * DAY_MS
"""Delay topics keep send-backs for twice their delay, and at least this long."""
_BUCKETS: Final = 1_024
_LONGEST_RUN_MS: Final = DAY_MS
"""A run is named after its `until`, at most 12 hours before its beginning; records it saw may be this much younger."""
_OPEN: Final = ("waiting", "lost", "quarantined")
"""A quarantined record may still be released, so it stays open; a resolved one stays resolved."""
_SIDES: Final = {"inbox": "asked", "sent": "appended", "target": "delivered"}
_PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class GrownLedger:
    """The ledger of a folder, as the last complete run left it.

    Attributes:
        log: the log of its runs.
        reach_ms: a send-back may be delivered once more within this time.
    """

    log: LedgerLog
    reach_ms: int

    @classmethod
    def open(
        cls, spark: SparkSession, folder: str, topic_prefix: str, now_ms: int, longest_ms: int = 0
    ) -> tuple[LedgerLog, GrownLedger | None]:
        """Begin a run: read the earlier runs and remove old ones; makes no ledger before the first run.

        If the run fails afterwards, call `give_up` of its log.

        Args:
            spark: the session.
            folder: the folder of the ledger.
            topic_prefix: the prefix of the installation's topics.
            now_ms: the run judges send-backs before this time.
            longest_ms: the longest delay.

        Raises:
            IllegalSetting: the ledger belongs to another installation, the folder holds something else, or the last run
                already judged until this time.
            LedgerTaken: another process of this machine writes to it.
            ReconsumeError: the folder cannot be read; see `failures`.
        """
        reach_ms = max(_SHORTEST_RETENTION_MS, 2 * longest_ms) + _LONGEST_RUN_MS
        today = max(now_ms, int(dt.datetime.now(dt.UTC).timestamp() * 1_000))
        log = LedgerLog.open(spark, folder, today, reach_ms)
        others = {one.topic_prefix for one in log.runs} - {topic_prefix}
        if others:
            raise IllegalSetting(f"{folder} has the ledger of the topics {others.pop()}*; choose another folder")
        if now_ms <= log.last_ms:
            # Its rows would replace that run's rows, or settle the same attempts once more.
            raise IllegalSetting(
                f"the ledger in {folder} judged until {shown_moment(log.last_ms)} and has nothing to add until "
                f"{shown_moment(now_ms)}: leave `until` out, or check the clock of this machine"
            )
        log.begin(now_ms, topic_prefix)
        with ExitStack() as failed:
            failed.push(partial(log.give_up, now_ms))
            if log.tidy():
                log = replace(log, runs=LedgerLog.open(spark, folder, today, reach_ms).runs)
        return log, cls(log, reach_ms) if log.runs else None

    @property
    def from_ms(self) -> int:
        """Return the time from which Kafka must be read."""
        return self.log.last_ms - _OVERLAP_MS

    def with_open(self, records: DataFrame) -> DataFrame:
        """Return new records, without those that were read before, and the open send-backs."""
        left = self.log.left_open(self.log.runs[-1])
        recent = self._recent()
        known = _places(recent.unionByName(left), self.from_ms)
        count = known.count()
        new = records.where(F.unix_millis("appended") >= self.from_ms).join(
            broadcast_if_few(known, count),
            place_of("kafka_topic", "partition", "offset") == F.col("place"),
            "left_anti",
        )
        # The row of a delivered attempt does not name the parked record that it went through.
        settled = recent.select(*(F.col(name).alias(f"was_{name}") for name in IDENTITY)).distinct()
        same = [F.col(name).eqNullSafe(F.col(f"was_{name}")) for name in IDENTITY]
        new = new.join(broadcast_if_few(settled, count), [F.col("kind") == "parked", *same], "left_anti")
        held = (F.col("outcome") == "quarantined") | _is_parked()
        for side, rows in (("inbox", left), ("sent", left), ("target", left.where(held))):
            new = new.unionByName(_as_records(rows, side, records))
        return new

    def handled(self) -> dict[Partition, int]:
        """Return offsets before which all records were handled, as far as lost attempts prove it."""
        partition, offset = F.substring_index("place", "/", 2), F.substring_index("place", "/", -1).cast("bigint")
        lost = (
            _places(self.log.left_open(self.log.runs[-1]).where("outcome = 'lost'"))
            .groupBy(partition)
            .agg(F.max(offset))
            .collect()
        )
        marks = [(*place.split("/"), last + 1) for place, last in lost]
        return {(topic, int(number)): mark for topic, number, mark in marks}

    def settled_releases(self) -> set[str]:
        """Return the destinations of released records that this run may read again and whose attempts are settled."""
        released = self._recent().where(F.col("released").isNotNull()).select("released")
        return {row[0] for row in released.collect()}

    def name_repeats(self, pairs: DataFrame, surplus_rows: int) -> DataFrame:
        """Mark deliveries whose attempt an earlier run has settled as duplicates.

        It looks back as far as send-backs are kept: older ones cannot be delivered again.

        Args:
            pairs: the pairs of this run.
            surplus_rows: number of deliveries without a send-back.
        """
        surplus = F.col("sent_offset").isNull() & F.col("inbox_offset").isNull()
        wanted = pairs.where(surplus).select(*IDENTITY).distinct()
        runs = [one for one in self.log.runs if one.run >= self.log.last_ms - self.reach_ms]
        settled = self.log.settled(runs)
        buckets = [row[0] for row in wanted.select(_bucket()).distinct().collect()]
        if settled is None:
            return pairs
        same = {name: F.col(f"was_{name}") for name in IDENTITY}
        was = settled.where(F.col("bucket").isin(buckets))
        was = was.select(*(F.col(name).alias(f"was_{name}") for name in IDENTITY)).distinct()
        wanted = broadcast_if_few(wanted, surplus_rows)
        found = was.join(wanted, [wanted[name].eqNullSafe(same[name]) for name in IDENTITY], "left_semi")
        found = broadcast_if_few(found, surplus_rows)
        joined = pairs.join(found, [pairs[name].eqNullSafe(same[name]) for name in IDENTITY], "left")
        copies = F.col("copies_sent") + F.when(same["origin_message_id"].isNotNull() & surplus, 1).otherwise(0)
        return joined.withColumn("copies_sent", copies).select(*pairs.columns)

    def ends(self) -> dict[Partition, int] | None:
        """Return the ends of our topics' partitions before the last run read them; None if it did not record them."""
        last = self.log.runs[-1]
        path = literal_path(self.log.path("ends", last.run, last.name))
        rows = rows_if_there(lambda: self.log.spark.read.parquet(path))
        return None if rows is None else {(row.topic, row.partition): row["end"] for row in rows}

    def _recent(self) -> DataFrame:
        """Return settled attempts with records that this run may read again."""
        rows = self.log.settled(one for one in self.log.runs if one.run >= self.from_ms - _LONGEST_RUN_MS)
        if rows is None:
            raise AssertionError("the last run is one of them")
        return rows.where(F.col("seen_ms") >= self.from_ms)


def append_run(
    ledger: DataFrame,
    log: LedgerLog,
    now_ms: int,
    topic_prefix: str,
    extents: Mapping[Partition, Extent] | None = None,
    keep_ms: int = 0,
) -> None:
    """Write the result of a run; it counts once its name is written, last.

    Args:
        ledger: the ledger's rows of this run.
        log: the log of all runs when this one began.
        now_ms: the time of this run.
        topic_prefix: the prefix of the installation's topics.
        extents: the topics' extents before the run read them, if known.
        keep_ms: how long runs are kept; 0 means forever.

    Raises:
        LedgerTaken: another run was added meanwhile.
    """
    resolved = (F.col("outcome") == "quarantined") & ~F.array_contains("notes", "QUARANTINED")
    still, seen = F.col("outcome").isin(*_OPEN) & ~resolved, F.greatest(*map(F.unix_millis, _SIDES.values()))
    kept = ledger.withColumns({"run": F.lit(now_ms).cast("bigint"), "bucket": _bucket(), "seen_ms": seen})
    for name, rows in (("settled", kept.where(~still)), ("open", kept.where(still))):
        write_rows(rows, log.path(name, now_ms, log.name))
    if extents is not None:
        places = [{"topic": at[0], "partition": at[1], "end": one.end} for at, one in extents.items()]
        ends = local_rows(log.spark, places, "topic STRING, partition INT, `end` BIGINT")
        ends.write.mode("overwrite").parquet(log.path("ends", now_ms, log.name))
    log.end(now_ms, topic_prefix, keep_ms)


def _bucket() -> Column:
    return F.pmod(F.xxhash64(*IDENTITY), F.lit(_BUCKETS)).cast("int").alias("bucket")


def _places(rows: DataFrame, from_ms: int = 0) -> DataFrame:
    """Return the places of the records in a ledger's rows from that moment on, as `place`."""
    sides = [
        F.when(F.unix_millis(moment) >= from_ms, place_of(*(f"{side}_{name}" for name in _PLACE)))
        for side, moment in _SIDES.items()
    ]
    return rows.select(F.explode(F.array_compact(F.array(*sides, "released"))).alias("place"))


def _as_records(left: DataFrame, side: str, records: DataFrame) -> DataFrame:
    """Return the records of one side of a ledger in the form of `read_records`, as far as they are needed."""
    sent, moment = side == "sent", F.col(_SIDES[side])
    told = (*IDENTITY, "level", "delay_ms", "replayed", "damage", "stamp", "deliveries", "cause")
    # An attempt that came through the inbox keeps that record beside the delay topic's.
    known: dict[str, Column] = {
        **{name: F.col(name) for name in told},
        **{name: F.col(f"{side}_{name}") for name in ("partition", "offset")},
        "kafka_topic": F.col(f"{side}_topic"),
        "side": F.lit("arrived" if side == "target" else side),
        "kind": F.when(_is_parked() & (F.lit(side) == "target"), "parked").otherwise(
            {"inbox": "inbox", "sent": "delay", "target": "quarantine"}[side]
        ),
        "appended": moment,
        "due": F.col("due") if sent else moment,
        "dead": F.col("dead") if sent else F.lit(False),
        "astray": F.lit(False),
        "by_producer": F.array_contains("notes", "PRODUCERS_TIME"),
        # Released records return to the inbox if they came from there.
        "released": F.when(_returned_to_inbox() == F.lit(not sent), F.col("released")),
    }
    rows = left.where(F.col(f"{side}_offset").isNotNull())
    fields = records.schema.fields
    return rows.select(*(known[field.name].cast(field.dataType).alias(field.name) for field in fields))


def _returned_to_inbox() -> Column:
    """Return whether a released record waits in the inbox; one that never came through it has no topic there."""
    return F.coalesce(F.col("released").startswith(F.concat("inbox_topic", F.lit("/"))), F.lit(False))


def _is_parked() -> Column:
    """Return whether a row's record waits for the end of a pause."""
    return (F.col("outcome") == "waiting") & F.col("target_offset").isNotNull()


def ledger_runs(spark: SparkSession, folder: str) -> list[dt.datetime]:
    """Return the start times of a ledger's complete runs, in order."""
    runs = LedgerLog.open(spark, folder, 0, None).runs
    return [dt.datetime.fromtimestamp(one.run / 1_000, dt.UTC) for one in runs]


def read_ledger(spark: SparkSession, folder: str, *, run: dt.datetime | None = None) -> DataFrame:
    """Return all attempts of all complete runs, each once.

    Args:
        spark: the session.
        folder: the ledger's folder.
        run: one of `ledger_runs`: return only the attempts that it settled or left open, with its findings.

    Raises:
        IllegalSetting: the ledger or the run does not exist.
    """
    log = LedgerLog.open(spark, folder, 0, None)
    wanted = [one for one in log.runs if run is None or one.run == round(run.timestamp() * 1_000)]
    settled = log.settled(wanted)
    if settled is None:
        raise IllegalSetting(f"{folder} has no {'runs' if run is None else f'run of {run.isoformat()}'}")
    return settled.unionByName(log.left_open(wanted[-1])).drop("run", "bucket", "seen_ms")
