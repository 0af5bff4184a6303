"""A ledger in Parquet that grows by run: what is settled is not read from Kafka again.

`runs` names the runs that are complete; `settled/run=…` holds the attempts that each of them settled, `open/run=…`
those that it left waiting, `ends/run=…` where the topics ended. A run that dies leaves folders that no later run looks
at.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.names import place_of
from reconsume.spark_connectors.reconcile.records.deleted import Extent, Partition
from reconsume.spark_connectors.reconcile.records.records import IDENTITY
from reconsume.spark_connectors.session import local_rows, rows_if_there

_OVERLAP_MS: Final = 60_000
"""Records that a transaction still hid from the last run may be so much older than its end."""
_LONGEST_RUN_MS: Final = 86_400_000
"""A run is named by its beginning; what it saw may be so much younger."""
_OPEN: Final = ("waiting", "lost", "quarantined")
"""A person may give back what is in the quarantine."""
_SIDES: Final = {"inbox": "asked", "sent": "appended", "target": "delivered"}
_PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class GrownLedger:
    """The ledger of a folder, as the last complete run left it.

    Attributes:
        spark: the session.
        folder: where it is.
        last_ms: until when the last run judged.
    """

    spark: SparkSession
    folder: str
    last_ms: int

    @classmethod
    def open(cls, spark: SparkSession, folder: str, topic_prefix: str) -> GrownLedger | None:
        """Read which runs there are; None before the first one.

        Raises:
            IllegalSetting: the ledger is of another installation, or the folder holds something else.
            ReconsumeError: the folder cannot be read; see `failures`.
        """
        runs = _complete_runs(spark, folder)
        if runs is None:
            return None
        others = {row.topic_prefix for row in runs} - {topic_prefix}
        if others:
            raise IllegalSetting(f"{folder} holds the ledger of the topics {others.pop()}*; choose another folder")
        return cls(spark, folder, max(row.run for row in runs))

    @property
    def from_ms(self) -> int:
        """From when on Kafka has to be read."""
        return self.last_ms - _OVERLAP_MS

    def with_open(self, records: DataFrame) -> DataFrame:
        """New records without those that were read before, and with the send-backs that are open."""
        left = self._open()
        known = _places(self._recent().unionByName(left), self.from_ms)
        new = records.where(F.unix_millis("appended") >= self.from_ms).join(
            F.broadcast(known), place_of("kafka_topic", "partition", "offset") == F.col("place"), "left_anti"
        )
        held = (F.col("outcome") == "quarantined") | _is_parked()
        for side, rows in (("inbox", left), ("sent", left), ("target", left.where(held))):
            new = new.unionByName(_as_records(rows, side, records))
        return new

    def handled(self) -> dict[Partition, int]:
        """Offsets before which all was handled, as far as what is lost tells."""
        partition, offset = F.substring_index("place", "/", 2), F.substring_index("place", "/", -1).cast("bigint")
        lost = _places(self._open().where("outcome = 'lost'")).groupBy(partition).agg(F.max(offset)).collect()
        marks = [(*place.split("/"), last + 1) for place, last in lost]
        return {(topic, int(number)): mark for topic, number, mark in marks}

    def settled_releases(self) -> set[str]:
        """Where released records went that this run may read a second time, and whose attempts are settled."""
        released = self._recent().where(F.col("released").isNotNull()).select("released")
        return {row[0] for row in released.collect()}

    def name_repeats(self, pairs: DataFrame) -> DataFrame:
        """Deliveries without a send-back whose attempt an earlier run settled are duplicates."""
        surplus = F.col("sent_offset").isNull() & F.col("inbox_offset").isNull()
        wanted = pairs.where(surplus).select(*IDENTITY).distinct()
        same = {name: F.col(f"was_{name}") for name in IDENTITY}
        was = self._settled().select(*(F.col(name).alias(f"was_{name}") for name in IDENTITY)).distinct()
        found = was.join(F.broadcast(wanted), [wanted[name].eqNullSafe(same[name]) for name in IDENTITY], "left_semi")
        joined = pairs.join(F.broadcast(found), [pairs[name].eqNullSafe(same[name]) for name in IDENTITY], "left")
        copies = F.col("copies_sent") + F.when(same["origin_message_id"].isNotNull() & surplus, 1).otherwise(0)
        return joined.withColumn("copies_sent", copies).select(*pairs.columns)

    def ends(self) -> dict[Partition, int] | None:
        """Where the partitions of our topics ended before the last run read them; None where it did not say so."""
        rows = rows_if_there(lambda: self.spark.read.parquet(f"{self.folder}/ends/run={self.last_ms}"))
        return None if rows is None else {(row.topic, row.partition): row["end"] for row in rows}

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.option("basePath", f"{self.folder}/{name}").parquet(f"{self.folder}/{name}")

    def _open(self) -> DataFrame:
        return self._table("open").where(F.col("run") == F.lit(self.last_ms))

    def _settled(self) -> DataFrame:
        runs = self.spark.read.parquet(f"{self.folder}/runs").select("run").distinct()
        return self._table("settled").join(F.broadcast(runs), "run", "left_semi")

    def _recent(self) -> DataFrame:
        """Settled attempts with records that this run may read a second time."""
        return self._settled().where(F.col("run") >= self.from_ms - _LONGEST_RUN_MS)


def append_run(
    ledger: DataFrame,
    folder: str,
    now_ms: int,
    topic_prefix: str,
    extents: Mapping[Partition, Extent] | None = None,
) -> None:
    """Keep what a run found; it counts when its name is written, last.

    Args:
        ledger: of this run.
        folder: of all runs.
        now_ms: of this run.
        topic_prefix: of the installation.
        extents: what the topics held before the run read them, where that is known.
    """
    spark, still = ledger.sparkSession, F.col("outcome").isin(*_OPEN)
    for name, rows in (("settled", ledger.where(~still)), ("open", ledger.where(still))):
        rows.coalesce(4).write.mode("overwrite").parquet(f"{folder}/{name}/run={now_ms}")
    if extents is not None:
        places = [{"topic": at[0], "partition": at[1], "end": one.end} for at, one in extents.items()]
        ends = local_rows(spark, places, "topic STRING, partition INT, end BIGINT")
        ends.write.mode("overwrite").parquet(f"{folder}/ends/run={now_ms}")
    run = {"run": now_ms, "topic_prefix": topic_prefix}
    local_rows(spark, [run], "run BIGINT, topic_prefix STRING").write.mode("append").parquet(f"{folder}/runs")


def _places(rows: DataFrame, from_ms: int = 0) -> DataFrame:
    """Where the records of a ledger's rows stand that are of that moment or later, as `place`."""
    sides = [
        F.when(F.unix_millis(moment) >= from_ms, place_of(*(f"{side}_{name}" for name in _PLACE)))
        for side, moment in _SIDES.items()
    ]
    return rows.select(F.explode(F.array_compact(F.array(*sides, "released"))).alias("place"))


def _complete_runs(spark: SparkSession, folder: str) -> list[Any] | None:
    """The names of the runs, None where there is no ledger yet."""
    try:
        with explained(f"the ledger in {folder} cannot be read; check that Spark reaches it and may read it"):
            return rows_if_there(lambda: spark.read.parquet(f"{folder}/runs").select("run", "topic_prefix"))
    except ReconsumeError as error:
        if isinstance(cause := error.__cause__, AnalysisException):
            raise IllegalSetting(
                f"{folder}/runs is no ledger of reconsume ({cause.getCondition()}): choose another folder; if it was "
                f"one, restore it, or begin a new one: it then holds what the topics still do"
            ) from error
        raise


def _as_records(left: DataFrame, side: str, records: DataFrame) -> DataFrame:
    """What stands on one side of a ledger, as `read_records` gave it, as far as that side is asked for it."""
    sent, moment = side == "sent", F.col(_SIDES[side])
    told = (*IDENTITY, "level", "delay_ms", "replayed", "damage", "stamp", "deliveries", "cause")
    # An attempt that was taken in from the inbox keeps that record beside the delay topic's.
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
        # To the inbox goes what came from there.
        "released": F.when(
            F.col("released").startswith(F.concat("inbox_topic", F.lit("/"))) == F.lit(not sent), F.col("released")
        ),
    }
    rows = left.where(F.col(f"{side}_offset").isNotNull())
    fields = records.schema.fields
    return rows.select(*(known[field.name].cast(field.dataType).alias(field.name) for field in fields))


def _is_parked() -> Column:
    """Whether a row's record waits for the end of a pause."""
    return (F.col("outcome") == "waiting") & F.col("target_offset").isNotNull()


def ledger_runs(spark: SparkSession, folder: str) -> list[dt.datetime]:
    """When the complete runs of a ledger began, in their order."""
    runs = spark.read.parquet(f"{folder}/runs").select("run").distinct().collect()
    return [dt.datetime.fromtimestamp(row.run / 1_000, dt.UTC) for row in sorted(runs, key=lambda row: row.run)]


def read_ledger(spark: SparkSession, folder: str, *, run: dt.datetime | None = None) -> DataFrame:
    """All attempts of all complete runs, each once.

    Args:
        spark: the session.
        folder: of the ledger.
        run: one of `ledger_runs`; then what that run settled and what it left open, with its findings.
    """
    tables = {name: spark.read.parquet(f"{folder}/{name}") for name in ("settled", "open")}
    if run is not None:
        both = tables["settled"].unionByName(tables["open"])
        return both.where(F.col("run") == round(run.timestamp() * 1_000)).drop("run")
    runs = spark.read.parquet(f"{folder}/runs").select("run").distinct()
    last = runs.agg(F.max("run")).collect()[0][0]
    settled = tables["settled"].join(F.broadcast(runs), "run", "left_semi")
    return settled.unionByName(tables["open"].where(F.col("run") == last)).drop("run")
