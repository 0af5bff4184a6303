"""A plan of a replay: a folder with a table of dead letters, what is sent for each, and why some are left out."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import NoneType
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types, texts
from reconsume.delay_levels.wire.names import check_group
from reconsume.spark_connectors.compiled import small_methods
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.local_rows import local_rows
from reconsume.spark_connectors.readers import read_dead_letters
from reconsume.spark_connectors.replay.selection import (
    SEND,
    STATUSES,
    earlier_replays,
    with_identity,
    with_message,
    with_status,
)
from reconsume.spark_connectors.schema import typed
from reconsume.spark_connectors.source import TopicSource

__all__ = ["Histogram", "ReplayPlan", "histogram", "open_plan", "plan_from", "plan_replay", "read_lane", "records"]

_TARGETS: Final = ("retry", "origin")
_BUCKETS: Final = 10_000
_LARGEST: Final = 20
"""Rows of a histogram."""
_ROW_GROUP_BYTES: Final = 4 * 1024 * 1024
_CLOCKS_DIFFER_MS: Final = 3_600_000
"""At most, of two brokers."""
_PLAN_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}", re.ASCII)
_KEPT: Final = (
    *("status", "group", "real_topic", "message_id", "kafka_topic", "partition", "offset", "appended", "attempt"),
    *("cause", "exception_class", "replay_times", "origin_topic", "key", "value", "headers"),
)


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a plan's folder says of itself.

    Attributes:
        folder: any path that Spark writes to.
        plan_id: becomes the header `REPLAY_ID`.
        created_ms: by the clock of the driver.
        since_ms: before anything that the plan sends, by the clock of the brokers.
        where: the filter, an SQL expression over the readers' schema.
        target: `retry` or `origin`.
        bucket: so many offsets of a dead-letter topic are the smallest piece of a run.
        counts: dead letters by status.
    """

    folder: str
    plan_id: str
    created_ms: int
    where: str
    target: str
    topic_prefix: str
    max_replays: int
    since_ms: int = 0
    bucket: int = 1
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def to_send(self) -> int:
        """How many dead letters a run sends."""
        return self.counts.get(SEND, 0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of one column of a plan: (value, status, count), the largest value first."""

    column: str
    rows: list[tuple[str, str, int]]


def plan_replay(
    spark: SparkSession,
    bootstrap_servers: str,
    folder: str,
    *,
    where: str = "true",
    groups: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    target: str = "retry",
    group: str | None = None,
    max_replays: int = 2,
    plan_id: str | None = None,
    topic_prefix: str = "reconsume.",
    options: Mapping[str, str] | None = None,
) -> ReplayPlan:
    """Choose dead letters and write the plan; nothing is sent.

    Args:
        spark: a session with the Kafka connector.
        bootstrap_servers: host:port of Kafka.
        folder: for the plan; there must be none in it yet.
        where: which dead letters, an SQL expression over the readers' schema.
        groups: whose dead letters; by default those of all groups.
        topics: dead-letter topics to read in their place, also of other systems.
        target: `retry` sends to the group's retry topic, `origin` to the origin topic, where every group sees it.
        group: for dead letters that do not tell their group.
        max_replays: a message that was replayed so often is refused.
        plan_id: by default a new one.
        topic_prefix: of the installation.
        options: of Spark's Kafka source, such as `kafka.security.protocol` or `startingTimestamp`.

    Raises:
        IllegalSetting: an argument cannot work, or the folder has a plan already.
        ReconsumeError: Spark failed; see `failures`.
    """
    source = TopicSource.of(spark, bootstrap_servers, topic_prefix, options)
    check_types(locals(), folder=(str, os.PathLike), where=str, target=str, max_replays=int)
    check_types(locals(), group=(str, NoneType), plan_id=(str, NoneType))
    topics = None if topics is None else texts(topics, "topics")
    groups = None if groups is None else texts(groups, "groups", "['departures']")
    everything = read_dead_letters(
        spark, bootstrap_servers, groups, topics=topics, topic_prefix=topic_prefix, options=options
    )
    plan = ReplayPlan(
        folder=folder,
        plan_id=plan_id or f"replay-{uuid.uuid4().hex[:12]}",
        created_ms=time.time_ns() // 1_000_000,
        where=where,
        target=target,
        topic_prefix=topic_prefix,
        max_replays=max_replays,
    )
    with explained(f"plan {plan.plan_id} cannot be made"), small_methods(spark):
        return plan_from(source, plan, everything, everything, group)


def plan_from(
    source: TopicSource, plan: ReplayPlan, candidates: DataFrame, everything: DataFrame, group: str | None
) -> ReplayPlan:
    """Write the plan for these candidates, given all dead letters that are known; in `small_methods`."""
    _check(source.spark, plan, group)
    chosen = with_identity(_filtered(candidates, plan.where), plan.target, group)
    earlier = earlier_replays(read_lane(source))
    known = with_identity(everything, plan.target, group)
    planned = with_status(chosen, known, earlier, plan.max_replays)
    planned = with_message(planned, plan.plan_id, plan.target).select(*_KEPT)
    sent = F.col("status") == SEND
    # What is not sent is listed without its contents.
    planned = planned.withColumns({name: F.when(sent, F.col(name)) for name in ("key", "value", "headers")})
    # A run reads one range of offsets after the other; in this order it reads little more than that.
    planned = planned.repartitionByRange("kafka_topic", "partition", "offset")
    planned = planned.sortWithinPartitions("kafka_topic", "partition", "offset")
    # Small row groups, so that a chunk is read by several tasks and little else with it.
    planned.write.mode("overwrite").option("parquet.block.size", _ROW_GROUP_BYTES).parquet(f"{plan.folder}/records")
    written = records(source.spark, plan.folder)
    counts = {row["status"]: row["count"] for row in written.groupBy("status").count().collect()}
    found = {"counts": counts, "bucket": _bucket(written), "since_ms": _since_ms(written, plan.created_ms)}
    plan = ReplayPlan(**asdict(plan) | found)
    facts = {name: value for name, value in asdict(plan).items() if name != "folder"}
    local_rows(source.spark, [{"value": json.dumps(facts)}], "value STRING").write.text(f"{plan.folder}/plan")
    return plan


def open_plan(spark: SparkSession, folder: str) -> ReplayPlan | None:
    """The plan of a folder, None if there is none."""
    try:
        lines = spark.read.text(f"{folder}/plan").collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return ReplayPlan(folder=folder, **json.loads(lines[0]["value"])) if lines else None


def records(spark: SparkSession, folder: str) -> DataFrame:
    """The plan's table: one row for each dead letter that the filter took."""
    return spark.read.parquet(f"{folder}/records")


def histogram(spark: SparkSession, plan: ReplayPlan, column: str) -> Histogram:
    """How many dead letters by `cause`, `group`, `hour` or any column of the plan, for a person to look at."""
    table = records(spark, plan.folder).withColumn(
        "hour", F.date_format(F.date_trunc("hour", "appended"), "yyyy-MM-dd HH:mm")
    )
    shown = F.coalesce(F.substring(F.col(column).cast("string"), 1, 120), F.lit("(none)"))
    largest = table.groupBy(shown.alias("shown")).count().orderBy(F.desc("count"), "shown").limit(_LARGEST)
    order = {row["shown"]: number for number, row in enumerate(largest.collect())}
    counted = table.groupBy(shown.alias("shown"), "status").count().where(F.col("shown").isin(*order)).collect()
    rows = [(row["shown"], row["status"], row["count"]) for row in counted]
    return Histogram(column, sorted(rows, key=lambda row: (order[row[0]], list(STATUSES).index(row[1]))))


def read_lane(source: TopicSource, since_ms: int | None = None) -> DataFrame:
    """`DELAY.0s`, through which every replay goes, with what is beyond an open transaction.

    Spark writes without transactions, so a replay counts as soon as it is stored; a reader of committed records would
    not see it while a scheduler has a transaction open before it.
    """
    starts = {"startingoffsets", "startingtimestamp", "endingoffsets", "endingtimestamp"}
    more = {name: value for name, value in source.options.items() if name.lower() not in starts}
    lane = replace(source, options=more | {"kafka.isolation.level": "read_uncommitted"})
    lane = lane if since_ms is None else lane.since(since_ms)
    return typed(lane.raw([source.names.delay(0)]), source.topic_prefix)


def _check(spark: SparkSession, plan: ReplayPlan, group: str | None) -> None:
    if plan.target not in _TARGETS:
        raise IllegalSetting(f"target {plan.target!r}: use {' or '.join(_TARGETS)}")
    if plan.max_replays < 1:
        raise IllegalSetting(f"max_replays {plan.max_replays}: at 0 nothing could ever be replayed; use 1 or more")
    if not _PLAN_ID.fullmatch(plan.plan_id):
        raise IllegalSetting(f"plan id {plan.plan_id!r}: use at most 200 letters, digits, '.', '_', ':' and '-'")
    if group is not None:
        check_group(group)
    if open_plan(spark, plan.folder) is not None:
        raise IllegalSetting(f"{plan.folder} has a plan already: run that one, or choose another folder")


def _filtered(dead: DataFrame, where: str) -> DataFrame:
    try:
        frame = dead.where(F.expr(where))
        _ = frame.schema  # Spark Connect looks at an expression only when it must
    except (ParseException, AnalysisException) as error:
        raise IllegalSetting(f"the filter {where!r} is no SQL expression over the dead letters: {error}") from error
    return frame


def _since_ms(written: DataFrame, created_ms: int) -> int:
    """Before the plan was made, by the brokers' clock: they stored its dead letters then; the driver's may be ahead."""
    last = written.agg(F.unix_millis(F.max("appended"))).collect()[0][0]
    return max(0, min(created_ms, int(last or created_ms)) - _CLOCKS_DIFFER_MS)


def _bucket(written: DataFrame) -> int:
    """So many offsets that there are at most some 10,000 pieces."""
    spans = written.groupBy("kafka_topic", "partition").agg((F.max("offset") - F.min("offset") + 1).alias("span"))
    total = spans.agg(F.sum("span")).collect()[0][0] or 0
    return max(1, int(total) // _BUCKETS)
