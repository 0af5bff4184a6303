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
from reconsume.spark_connectors.reconcile.records.deleted import Extent, Partition
from reconsume.spark_connectors.reconcile.records.records import IDENTITY
from reconsume.spark_connectors.session import local_rows

__all__ = ["GrownLedger", "ledger_runs", "read_ledger"]

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
        last_ms: until when the last run judged; None before the first.
    """

    spark: SparkSession
    folder: str
    last_ms: int | None

    @classmethod
    def open(cls, spark: SparkSession, folder: str, topic_prefix: str) -> GrownLedger:
        """Read which runs there are.

        Raises:
            IllegalSetting: the ledger is of another installation, or the folder holds something else.
            ReconsumeError: the folder cannot be read; see `failures`.
        """
        runs = _complete_runs(spark, folder)
        if runs is None:
            return cls(spark, folder, None)
        others = {row.topic_prefix for row in runs} - {topic_prefix}
        if others:
            raise IllegalSetting(f"{folder} holds the ledger of the topics {others.pop()}*; choose another folder")
        return cls(spark, folder, max(row.run for row in runs))

    @property
    def from_ms(self) -> int | None:
        """From when on Kafka has to be read."""
        return None if self.last_ms is None else self.last_ms - _OVERLAP_MS

    def with_open(self, records: DataFrame) -> DataFrame:
        """New records without those that were read before, and with the send-backs that are open."""
        from_ms = self.from_ms
        if from_ms is None:
            return records
        left = self._table("open").where(F.col("run") == F.lit(self.last_ms))
        new = records.where(F.unix_millis("appended") >= from_ms).join(
            F.broadcast(self._known(left, from_ms)),
            [F.col(name) == F.col(f"known_{name}") for name in ("kafka_topic", "partition", "offset")],
            "left_anti",
        )
        for side in ("inbox", "sent"):
            new = new.unionByName(_as_records(left, side, records))
        return new.unionByName(_as_quarantined(left, records))

    def handled(self) -> dict[tuple[str, int], int]:
        """Offsets before which all was handled, as far as what is lost tells; by (Kafka topic, partition)."""
        lost = self._table("open").where((F.col("run") == F.lit(self.last_ms)) & (F.col("outcome") == "lost"))
        marks: dict[tuple[str, int], int] = {}
        for side in ("inbox", "sent"):
            place = [F.col(f"{side}_{name}").alias(name) for name in ("topic", "partition")]
            rows = lost.where(F.col(f"{side}_offset").isNotNull()).groupBy(*place).agg(F.max(f"{side}_offset"))
            marks |= {(row[0], row[1]): row[2] + 1 for row in rows.collect()}
        for row in lost.where(F.col("released").isNotNull()).select(*_parts("released")).collect():
            marks[row[0], row[1]] = max(marks.get((row[0], row[1]), 0), row[2] + 1)
        return marks

    def settled_releases(self) -> set[str]:
        """Where released records went that this run may read a second time, and whose attempts are settled."""
        if self.from_ms is None:
            return set()
        recent = self._settled().where(F.col("run") >= self.from_ms - _LONGEST_RUN_MS)
        return {row[0] for row in recent.where(F.col("released").isNotNull()).select("released").collect()}

    def name_repeats(self, pairs: DataFrame) -> DataFrame:
        """Deliveries without a send-back whose attempt an earlier run settled are duplicates."""
        if self.last_ms is None:
            return pairs
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
        if self.last_ms is None:
            return None
        try:
            rows = self.spark.read.parquet(f"{self.folder}/ends/run={self.last_ms}").collect()
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise
        return {(row.topic, row.partition): row["end"] for row in rows}

    def append(
        self, ledger: DataFrame, now_ms: int, topic_prefix: str, extents: Mapping[Partition, Extent] | None = None
    ) -> None:
        """Keep what this run found; it counts when its name is written, last.

        Args:
            ledger: of this run.
            now_ms: of this run.
            topic_prefix: of the installation.
            extents: what the topics held before the run read them, where that is known.
        """
        still = F.col("outcome").isin(*_OPEN)
        for name, rows in (("settled", ledger.where(~still)), ("open", ledger.where(still))):
            rows.coalesce(4).write.mode("overwrite").parquet(f"{self.folder}/{name}/run={now_ms}")
        if extents is not None:
            places = [{"topic": at[0], "partition": at[1], "end": one.end} for at, one in extents.items()]
            ends = local_rows(self.spark, places, "topic STRING, partition INT, end BIGINT")
            ends.write.mode("overwrite").parquet(f"{self.folder}/ends/run={now_ms}")
        run = {"run": now_ms, "topic_prefix": topic_prefix}
        runs = local_rows(self.spark, [run], "run BIGINT, topic_prefix STRING")
        runs.write.mode("append").parquet(f"{self.folder}/runs")

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.option("basePath", f"{self.folder}/{name}").parquet(f"{self.folder}/{name}")

    def _settled(self) -> DataFrame:
        runs = self.spark.read.parquet(f"{self.folder}/runs").select("run").distinct()
        return self._table("settled").join(F.broadcast(runs), "run", "left_semi")

    def _known(self, left: DataFrame, from_ms: int) -> DataFrame:
        """Where the records stand that this run would read a second time."""
        places = []
        recent = self._settled().where(F.col("run") >= from_ms - _LONGEST_RUN_MS)
        for rows in (recent, left):
            for side, moment in _SIDES.items():
                place = [F.col(f"{side}_{name}") for name in _PLACE]
                places.append(rows.where(F.unix_millis(moment) >= from_ms).select(*_known_place(place)))
            places.append(rows.where(F.col("released").isNotNull()).select(*_known_place(_parts("released"))))
        known = places[0]
        for more in places[1:]:
            known = known.union(more)
        return known


def _complete_runs(spark: SparkSession, folder: str) -> list[Any] | None:
    """The names of the runs, None where there is no ledger yet."""
    try:
        with explained(f"the ledger in {folder} cannot be read; check that Spark reaches it and may read it"):
            rows = spark.read.parquet(f"{folder}/runs").select("run", "topic_prefix").collect()
    except ReconsumeError as error:
        cause = error.__cause__
        if isinstance(cause, AnalysisException) and cause.getCondition() == "PATH_NOT_FOUND":
            return None
        if isinstance(cause, AnalysisException):
            raise IllegalSetting(
                f"{folder}/runs is no ledger of reconsume ({cause.getCondition()}): choose another folder; if it was "
                f"one, restore it, or begin a new one: it then holds what the topics still do"
            ) from error
        raise
    return rows


def _as_records(left: DataFrame, side: str, records: DataFrame) -> DataFrame:
    """Send-backs of a ledger, as `read_records` gave them."""
    sent = side == "sent"
    # An attempt that was taken in from the inbox keeps that record beside the delay topic's.
    known: dict[str, Column] = {
        **{name: F.col(name) for name in (*IDENTITY, "damage", "stamp", "deliveries", "cause")},
        "side": F.lit(side),
        "kind": F.lit("delay" if sent else "inbox"),
        "kafka_topic": F.col(f"{side}_topic"),
        **{name: F.col(f"{side}_{name}") for name in ("partition", "offset")},
        "appended": F.col("appended" if sent else "asked"),
        "due": F.col("due") if sent else F.col("asked"),
        **{name: F.col(name) if sent else F.lit(None) for name in ("level", "delay_ms")},
        "dead": F.col("dead") if sent else F.lit(False),
        "replayed": F.col("replayed"),
        "astray": F.lit(False),
        "by_producer": F.array_contains("notes", "PRODUCERS_TIME"),
        # To the inbox goes what came from there.
        "released": F.when(
            F.col("released").startswith(F.concat("inbox_topic", F.lit("/"))) == F.lit(not sent), F.col("released")
        ),
    }
    rows = left.where(F.col(f"{side}_offset").isNotNull())
    return _of_schema(rows, known, records)


def _as_quarantined(left: DataFrame, records: DataFrame) -> DataFrame:
    """The records of a ledger that are in the quarantine."""
    known: dict[str, Column] = {
        **{name: F.col(name) for name in (*IDENTITY, "level", "damage", "stamp", "deliveries", "cause")},
        "side": F.lit("arrived"),
        "kind": F.lit("quarantine"),
        "kafka_topic": F.col("target_topic"),
        **{name: F.col(f"target_{name}") for name in ("partition", "offset")},
        "appended": F.col("delivered"),
        **{name: F.lit(None) for name in ("due", "delay_ms", "released")},
        "by_producer": F.array_contains("notes", "PRODUCERS_TIME"),
        **{name: F.lit(False) for name in ("dead", "replayed", "astray")},
    }
    return _of_schema(left.where("outcome = 'quarantined'"), known, records)


def _of_schema(rows: DataFrame, columns: dict[str, Column], records: DataFrame) -> DataFrame:
    return rows.select(*(columns[field.name].cast(field.dataType).alias(field.name) for field in records.schema.fields))


def _parts(place: str) -> list[Column]:
    """Topic, partition and offset of a column like `<topic>/<partition>/<offset>`."""
    topic, partition, offset = (F.split_part(place, F.lit("/"), F.lit(number)) for number in (1, 2, 3))
    return [topic, partition.cast("int"), offset.cast("bigint")]


def _known_place(place: list[Column]) -> list[Column]:
    return [column.alias(f"known_{name}") for name, column in zip(("kafka_topic", *_PLACE[1:]), place, strict=True)]


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
