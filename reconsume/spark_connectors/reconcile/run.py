"""Reconcile: prove that every failed message ended in exactly one state, or name those that did not."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types
from reconsume.spark_connectors.reconcile.judged import (
    Committed,
    LevelTables,
    Tolerances,
    gather_facts,
    read_level_tables,
)
from reconsume.spark_connectors.reconcile.ledger import as_findings, as_ledger
from reconsume.spark_connectors.reconcile.records.attempts import (
    gather_attempts,
    pair_attempts,
    pair_copies,
    pair_up,
)
from reconsume.spark_connectors.reconcile.records.deleted import DeletedRecords, Extent, ExtentsSince, Partition
from reconsume.spark_connectors.reconcile.records.grown import GrownLedger, append_run
from reconsume.spark_connectors.reconcile.records.records import read_records, records_to_read
from reconsume.spark_connectors.reconcile.records.second_look import (
    forgive_deliveries_in_flight,
    note_lost_origins,
)
from reconsume.spark_connectors.reconcile.releases import follow_releases
from reconsume.spark_connectors.reconcile.resends import note_missing_resends
from reconsume.spark_connectors.reconcile.verdicts import AttemptJudge
from reconsume.spark_connectors.session import broadcast_if_few, check_folder, small_methods, spread
from reconsume.spark_connectors.source import TopicSource

logger = logging.getLogger(__name__)

_LOOK_BACK_MS: Final = 3_600_000
"""A send-back from before a window may be delivered in it, at most this late."""
_LONGEST_LAG_HOURS: Final = 12
"""A ledger's run reads deliveries of now; later runs know them from runs named up to a day before: see `grown`."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of a reconcile; Spark caches its DataFrames until `close`.

    Attributes:
        ledger: one row for each attempt.
        findings: one row for each error.
        notes: one row for each remark that is not an error.
        now: send-backs before this time were judged.
        since: the beginning of the window; None without one.
    """

    ledger: DataFrame
    findings: DataFrame
    notes: DataFrame
    now: dt.datetime
    since: dt.datetime | None
    _kept: ExitStack = field(repr=False, compare=False)

    def close(self) -> None:
        """Release Spark's cached tables."""
        self._kept.close()


def reconcile(
    spark: SparkSession,
    bootstrap_servers: str,
    *,
    topic_prefix: str = "reconsume.",
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    committed: Committed | None = None,
    extents: ExtentsSince | None = None,
    delay_levels: str | None = None,
    tolerances: Tolerances | None = None,
    origins: bool = False,
    ledger: str | None = None,
    ledger_keep: dt.timedelta | None = None,
    options: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _step: None,
) -> Reconciliation:
    """Compare send-backs with deliveries, in one pass over reconsume's topics.

    Guarantees: a running system gives no finding. Only send-backs before `until` are judged, and deliveries are read to
    the end of their topics, which is looked up later. Test: tests/spark/reconcile/test_reconcile.py.

    Args:
        spark: a session with the Kafka connector, see `configure`.
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        topic_prefix: the prefix of the installation's topics.
        since: judge only send-backs and deliveries from then on; by default all in the topics.
        until: judge only earlier send-backs; by default now.
        committed: committed offsets by consumer group, read before this call. Those of the schedulers' group
            (`reconsume.scheduler`) tell a lost record at the end of its partition from a waiting one, and name delay
            topics of removed levels; those of the groups fill `consumed`.
        extents: called after the topics were read; returns the extents of their partitions. Without it a partition that
            lost all its records is not noticed, nor are records that were deleted between two runs of a ledger.
        delay_levels: the level table to use instead of the one in the GROUPS topic.
        tolerances: deviations that are not findings.
        origins: whether to read the origin topics too, and to report messages that are gone.
        ledger: a folder, created by the first call. Later calls read from Kafka only what is new, and judge that and
            what was left open; settled attempts are in the folder, see `read_ledger`. Only one run at a time may
            write to it.
        ledger_keep: older runs of the ledger are removed, except those of the two days before the last one; by
            default none.
        options: options of Spark's Kafka source, such as `minPartitions` or `kafka.security.protocol`.
        progress: called with the current step.

    Raises:
        IllegalSetting: an empty window; a time without a zone; a window, or an `until` of long ago, together with a
            ledger; a ledger of another installation, or one that already judged until this time; a ledger with a Spark
            that refuses `persist()`.
        LedgerTaken: another run writes to the ledger.
    """
    source = TopicSource.of(spark, bootstrap_servers, topic_prefix, options)
    check_types(locals(), since=(dt.datetime, NoneType), until=(dt.datetime, NoneType), delay_levels=(str, NoneType))
    check_types(locals(), tolerances=(Tolerances, NoneType), origins=bool)
    check_types(locals(), ledger_keep=(dt.timedelta, NoneType))
    if ledger is not None:
        check_folder("ledger", ledger)
    now, since = _window(since, until, ledger)
    keep_ms = _keep_ms(ledger_keep)
    now_ms, since_ms = _ms(now), None if since is None else _ms(since)
    with small_methods(spark), ExitStack() as kept:
        progress("reading the level table")
        handled = (committed or {}).get(source.names.scheduler_group, ())
        tables = read_level_tables(source, delay_levels).with_topics(source.names, handled)
        log, grown = None, None
        if ledger is not None:
            log, grown = GrownLedger.open(spark, ledger, topic_prefix, now_ms, tables.longest_ms)
            kept.push(partial(log.give_up, now_ms))
        progress("reading the topics")
        run = _Run(source, now_ms, since_ms, tables, committed or {}, extents, ledger, grown, kept, progress)
        ends = None if ledger is None or extents is None else extents(0)
        read = kept.enter_context(ExitStack())
        pairs = run.pairs(read)
        deletions = run.deletions()
        rows = run.keep(run.judged(pairs, deletions, tolerances or Tolerances()))
        rows = run.looked_again(rows, pairs, deletions, origins=origins)
        read.close()
        if log is not None:
            progress(f"adding to the ledger in {ledger}")
            append_run(rows, log, now_ms, topic_prefix, ends, keep_ms)
        findings, notes = (as_findings(rows, name, bootstrap_servers) for name in ("findings", "notes"))
        return Reconciliation(rows, findings, notes, now, since, kept.pop_all())


@dataclass(frozen=True, slots=True)
class _Run:
    """The common data of the steps of a reconcile.

    Attributes:
        now_ms: earlier send-backs are judged.
        since_ms: the beginning of the window; None judges everything.
        ledger: the folder of the ledger; None without one.
        grown: earlier runs of the ledger; their settled attempts are not read and judged again.
        kept: releases the run's cached frames when it is closed.
    """

    source: TopicSource
    now_ms: int
    since_ms: int | None
    tables: LevelTables
    committed: Committed
    extents: ExtentsSince | None
    ledger: str | None
    grown: GrownLedger | None
    kept: ExitStack
    progress: Callable[[str], None]

    def keep(self, frame: DataFrame, kept: ExitStack | None = None) -> DataFrame:
        """Cache a frame in Spark until `kept` is closed, by default that of the run.

        Raises:
            IllegalSetting: this Spark keeps no tables, and the run writes to a ledger.
        """
        try:
            frame = frame.persist()
        except PySparkException as error:
            if self.ledger is not None:
                # Its tables would be of two reads: an attempt that is delivered between them would be in neither.
                raise IllegalSetting(
                    f"the ledger in {self.ledger} needs a Spark with `persist()`, and this one refuses it "
                    f"({error.getCondition()}): leave `ledger` out, or use a cluster that allows it"
                ) from error
            # On serverless Spark. Records that arrive meanwhile are deliveries, which change nothing.
            logger.warning("this Spark keeps no tables, so topics are read several times: %s", error.getCondition())
            return frame
        (kept or self.kept).callback(frame.unpersist)
        return frame

    @property
    def _from_ms(self) -> int | None:
        """Return the moment from which topics are read; None from their beginning."""
        if self.grown is not None:
            return self.grown.from_ms
        return None if self.since_ms is None else self.since_ms - _LOOK_BACK_MS - self.tables.longest_ms

    def pairs(self, kept: ExitStack) -> DataFrame:
        """Return send-backs and deliveries in pairs, cached until `kept` is closed, and the inbox before `now_ms`."""
        source = self.source if self._from_ms is None else self.source.since(self._from_ms)
        records = read_records(source)
        size = records_to_read(source)
        if self.grown is not None:
            records = self.grown.with_open(records)
        # The time of a producer's clock does not order records. What the inbox held before then may be sent back later.
        upstream = (F.col("side") != "inbox") | F.col("by_producer") | (F.unix_millis("appended") < self.now_ms)
        together = spread(records.where(upstream), size, "origin_message_id")
        attempts = self.keep(gather_attempts(together), kept)
        pairs = pair_attempts(attempts.where("NOT many"))
        if not _count(attempts, F.col("many")):
            return pairs
        return pairs.unionByName(self.keep(pair_copies(attempts.where("many")), kept))

    def deletions(self) -> DeletedRecords:
        """Return the deleted records of the topics, for the time that was read."""
        ends = self.grown.ends() if self.grown is not None and self.extents is not None else None
        lossy = {name.lower(): value for name, value in self.source.options.items()}.get("failondataloss", "true")
        return DeletedRecords(
            self.source.names,
            self.now_ms,
            None if self.extents is None else partial(_missed, self.extents, self._from_ms or 0, ends),
            from_beginning=self._from_ms is None,
            in_window=self.since_ms is not None,
            gaps=self.grown is not None or lossy.lower() == "false",
            goes_on=ends is not None,
        )

    def judged(self, pairs: DataFrame, deletions: DeletedRecords, tolerances: Tolerances) -> DataFrame:
        """Return the ledger's rows after one pass over the topics."""
        facts = gather_facts(pairs, self.source.names.prefix, self.committed, self.now_ms)
        if self.grown is not None:
            deletions.tell_gaps(self.grown.log.folder)
            # Lost attempts stay lost.
            facts = facts.with_handled(self.grown.handled())
            pairs = self.grown.name_repeats(pairs, facts.surplus) if facts.surplus else pairs
        if facts.surplus:
            facts = replace(facts, lanes=deletions.lanes(facts.firsts))
        held = pairs.where("arrived_kind = 'quarantine'").select(F.col("arrived_stamp").alias("held_stamp")).distinct()
        if facts.releases:
            self.progress("following what was released from the quarantine")
            settled = () if self.grown is None else self.grown.settled_releases()
            pairs = follow_releases(pairs, self.now_ms, self.source, settled)
        self.progress("judging the attempts")
        no_pair = F.lit(None).cast("string")
        paired = pair_up(pairs, self.now_ms, facts.surplus) if facts.surplus else pairs.withColumn("paired", no_pair)
        is_held = F.lit(False)
        if facts.quarantined:
            paired = paired.join(
                broadcast_if_few(held, facts.quarantined),
                F.coalesce("sent_stamp", "arrived_stamp") == F.col("held_stamp"),
                "left",
            )
            is_held = F.col("held_stamp").isNotNull()
        paired = paired.withColumn("is_held", is_held)
        judge = AttemptJudge(self.now_ms, self.tables, tolerances, facts, self.since_ms or 0)
        rows = as_ledger(judge.judge(paired), self.source.names.prefix, self.committed)
        return rows if self.since_ms is None else _seen_since(rows, self.since_ms)

    def looked_again(self, rows: DataFrame, pairs: DataFrame, deletions: DeletedRecords, *, origins: bool) -> DataFrame:
        """Return the rows after a second look at seemingly lost attempts, and at the origin topics if requested."""
        nowhere = _nowhere(scheduler_is_known=bool(self.committed.get(self.source.names.scheduler_group)))
        lost = _count(rows, nowhere)
        if lost:
            self.progress("looking once more for what seems lost")
            rows = self.keep(forgive_deliveries_in_flight(self.source, rows, self.now_ms, lost))
        if origins:
            self.progress("looking for the first copies")
            rows = self.keep(note_lost_origins(self.source, rows))
        rows = self.keep(deletions.with_expired(rows, pairs, nowhere)) if lost else rows
        checked = note_missing_resends(self.source, rows, self.now_ms, self.extents)
        return rows if checked is rows else self.keep(checked)


def _seen_since(rows: DataFrame, since_ms: int) -> DataFrame:
    """Drop attempts that ended before then; of a lost one the end is unknown, it may have waited in the last window."""
    seen = F.greatest("asked", "appended", "delivered")
    return rows.where((F.unix_millis(seen) >= since_ms) | F.col("outcome").isin("waiting", "lost"))


def _nowhere(*, scheduler_is_known: bool) -> Column:
    """Return whether an attempt may be lost; overdue ones need the scheduler's offsets."""
    lost = F.col("outcome") == "lost"
    return lost if scheduler_is_known else lost | F.array_contains("findings", "OVERDUE")


def _window(
    since: dt.datetime | None, until: dt.datetime | None, ledger: str | None
) -> tuple[dt.datetime, dt.datetime | None]:
    here = dt.datetime.now(dt.UTC)
    now, since = _moment("until", until) or here, _moment("since", since)
    if since is not None and since >= now:
        raise IllegalSetting(f"the window is empty: since {since.isoformat()}, until {now.isoformat()}")
    if since is not None and ledger is not None:
        raise IllegalSetting("a ledger begins where its last run ended: leave `since` out")
    if ledger is not None and now > here:
        raise IllegalSetting(
            f"until {now.isoformat()} is in the future; the next run of a ledger would begin there and skip records"
        )
    if ledger is not None and now < here - dt.timedelta(hours=_LONGEST_LAG_HOURS):
        raise IllegalSetting(
            f"until {now.isoformat()} is more than {_LONGEST_LAG_HOURS} hours in the past; this run would read later "
            "deliveries, and the next runs of the ledger would read them again: leave `until` out"
        )
    return now, since


def _keep_ms(ledger_keep: dt.timedelta | None) -> int:
    keep_ms = 0 if ledger_keep is None else ledger_keep // dt.timedelta(milliseconds=1)
    if ledger_keep is not None and keep_ms <= 0:
        raise IllegalSetting(f"ledger_keep {ledger_keep}: must be more than 0; leave it out to keep all runs")
    return keep_ms


def _count(ledger: DataFrame, wanted: Column) -> int:
    """Return how many rows match; this also fills the cache, which a filter alone would not."""
    (row,) = ledger.agg(F.count_if(wanted).alias("found")).collect()
    return int(row.found)


def _missed(extents: ExtentsSince, from_ms: int, ends: Mapping[Partition, int] | None) -> Mapping[Partition, Extent]:
    """Return the extents of the partitions, without records deleted before the ledger's progress."""
    if ends is None:
        return extents(from_ms)
    return {place: one if one.first > ends.get(place, 0) else Extent(0, one.end) for place, one in extents(0).items()}


def _moment(name: str, value: dt.datetime | None) -> dt.datetime | None:
    if value is not None and value.tzinfo is None:
        raise IllegalSetting(f"{name} {value.isoformat()} has no time zone; write {value.isoformat()}Z for UTC")
    return value


def _ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)
