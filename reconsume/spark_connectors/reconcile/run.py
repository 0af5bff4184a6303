"""Reconcile: prove that every failed message ended in exactly one state, or say which did not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.levels import DelayLevels
from reconsume.delay_levels.names import TopicNames
from reconsume.spark_connectors.reconcile.attempts import pair_attempts
from reconsume.spark_connectors.reconcile.facts import gather_facts
from reconsume.spark_connectors.reconcile.judged import (
    Committed,
    LevelTables,
    Tolerances,
    read_level_tables,
)
from reconsume.spark_connectors.reconcile.ledger import as_findings, as_ledger
from reconsume.spark_connectors.reconcile.pairing import pair_up
from reconsume.spark_connectors.reconcile.records import read_records
from reconsume.spark_connectors.reconcile.second_look import forgive_deliveries_in_flight, note_lost_origins
from reconsume.spark_connectors.reconcile.verdicts import Judge

__all__ = ["Reconciliation", "reconcile"]

_LOOK_BACK: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What was found; its DataFrames are kept in Spark until `close`.

    Attributes:
        ledger: one row for each attempt.
        findings: one row for each thing that is wrong.
        notes: one row for each thing that is good to know.
        now: up to when send-backs were read.
        since: from when on, None for all that there is.
    """

    ledger: DataFrame
    findings: DataFrame
    notes: DataFrame
    now: dt.datetime
    since: dt.datetime | None

    def close(self) -> None:
        """Let Spark forget the tables."""
        self.ledger.unpersist()


def reconcile(
    spark: SparkSession,
    bootstrap_servers: str,
    *,
    topic_prefix: str = "reconsume.",
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    committed: Committed | None = None,
    delay_levels: str | None = None,
    tolerances: Tolerances | None = None,
    origins: bool = False,
    options: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _step: None,
) -> Reconciliation:
    """Compare what was sent back with what was delivered, in one pass over our topics.

    A running system may be read: only send-backs before `until` are judged, and deliveries are read to the end of
    their topics, which is found later.

    Args:
        spark: a session with the Kafka connector, see `configure`.
        bootstrap_servers: host:port of Kafka, several with commas.
        topic_prefix: of the installation.
        since: judge only what was sent back or delivered from then on; by default all that the topics hold.
        until: judge only what was sent back before; by default now.
        committed: committed offsets by consumer group, read before this call. Those of the schedulers' group
            (`reconsume.scheduler`) tell a lost record at the end of its partition from a waiting one; those of the
            groups fill `consumed`.
        delay_levels: the level table, in place of what the GROUPS topic says.
        tolerances: what is still taken for right.
        origins: read the origin topics too, and note what is not there any more.
        options: of Spark's Kafka source, such as `minPartitions` or `kafka.security.protocol`.
        progress: told what is being done.

    Raises:
        IllegalSetting: a window that is empty, or a time without a zone.
    """
    now = _moment("until", until) or dt.datetime.now(dt.UTC)
    since = _moment("since", since)
    if since is not None and since >= now:
        raise IllegalSetting(f"the window is empty: since {since.isoformat()}, until {now.isoformat()}")
    names, given, known = TopicNames(topic_prefix), dict(options or {}), committed or {}
    now_ms, since_ms = _ms(now), 0 if since is None else _ms(since)
    progress("reading the level table")
    tables = read_level_tables(spark, bootstrap_servers, names, given)
    if delay_levels is not None:
        tables = LevelTables(DelayLevels.parse(delay_levels), 0, {}, tables.without_retries)
    progress("reading the topics")
    records = read_records(spark, bootstrap_servers, topic_prefix, given | _from(since, tables.longest_ms))
    upstream = (F.col("side") == "arrived") | (F.unix_millis("appended") < now_ms)
    pairs = pair_attempts(records.where(upstream)).persist()
    facts = gather_facts(pairs, topic_prefix, known, now_ms)
    progress("judging the attempts")
    paired = pair_up(pairs, now_ms) if facts.surplus else pairs.withColumn("paired", F.lit(None).cast("string"))
    judge = Judge(now_ms, tables, tolerances or Tolerances(), facts, since_ms)
    ledger = as_ledger(judge.judge(paired), topic_prefix, known)
    if since is not None:
        seen = F.greatest("asked", "appended", "delivered")
        ledger = ledger.where((F.unix_millis(seen) >= since_ms) | (F.col("outcome") == "waiting"))
    ledger = ledger.persist()
    lost = _has_lost(ledger)
    pairs.unpersist()
    if lost:
        progress("looking once more for what seems lost")
        ledger = forgive_deliveries_in_flight(spark, bootstrap_servers, topic_prefix, ledger, now_ms, given).persist()
    if origins:
        progress("looking for the first copies")
        ledger = note_lost_origins(spark, bootstrap_servers, topic_prefix, ledger, given).persist()
    return Reconciliation(
        ledger,
        as_findings(ledger, "findings", bootstrap_servers),
        as_findings(ledger, "notes", bootstrap_servers),
        now,
        since,
    )


def _has_lost(ledger: DataFrame) -> bool:
    """Also fills the cache, which a filter alone would not."""
    (row,) = ledger.agg(F.count_if(F.col("outcome") == "lost").alias("lost")).collect()
    return bool(row.lost)


def _from(since: dt.datetime | None, longest_ms: int) -> dict[str, str]:
    """Records that were sent back before the window may be delivered in it, an hour late at most."""
    if since is None:
        return {}
    first = _ms(since - _LOOK_BACK) - longest_ms
    return {"startingTimestamp": str(max(0, first)), "startingOffsetsByTimestampStrategy": "latest"}


def _moment(name: str, value: dt.datetime | None) -> dt.datetime | None:
    if value is not None and value.tzinfo is None:
        raise IllegalSetting(f"{name} {value.isoformat()} has no time zone; write {value.isoformat()}Z for UTC")
    return value


def _ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)
