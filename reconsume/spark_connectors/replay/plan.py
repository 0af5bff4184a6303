"""The plan of a replay: a folder with a table of dead letters, the records to send, and the reasons for omissions."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import NoneType
from typing import Any, Final, Self

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.foreign_values import check_types, of_type, texts
from reconsume.delay_levels.wire.names import check_group
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.readers import dead_letters
from reconsume.spark_connectors.replay.replays import JOB_ID, read_replays
from reconsume.spark_connectors.replay.selection import (
    SEND,
    STATUSES,
    with_identity,
    with_message,
    with_status,
)
from reconsume.spark_connectors.replay.states import read_states
from reconsume.spark_connectors.session import (
    check_folder,
    literal_path,
    local_rows,
    rows_if_there,
    rows_to_read,
    small_methods,
    spread,
)
from reconsume.spark_connectors.source import TopicSource

_TARGETS: Final = ("retry", "origin")
PARTITION: Final = 1 << 33
"""Spark numbers the rows of each partition from multiples of this."""
_LARGEST: Final = 20
"""Rows of a histogram."""
_ROW_GROUP_BYTES: Final = 4 * 1024 * 1024
_CLOCKS_DIFFER_MS: Final = 3_600_000
"""The largest difference between the clocks of two brokers."""
PLAN_OPTIONS: Final = {
    "where": "--where",
    "target": "--to",
    "groups": "--group",
    "topics": "--topic",
    "group": "--for-group",
    "max_replays": "--max-replays",
}
"""The names of `plan_replay`'s arguments on the command line."""
_PLAN_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}", re.ASCII)
_KEPT: Final = (
    *("status", "group", "real_topic", "message_id", "born", "kafka_topic", "partition", "offset", "appended"),
    *("attempt", "cause", "exception_class", "replay_times", "origin_topic", "key", "value", "headers"),
)


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A plan, as described in its folder.

    Attributes:
        folder: any path that Spark can write to.
        plan_id: the header `REPLAY_ID` of the copies.
        created_ms: the time of creation by the driver's clock.
        since_ms: a time before any record of the plan is sent, by the brokers' clock.
        where: the filter, an SQL expression over the readers' schema.
        target: `retry` or `origin`.
        counts: dead letters by status.
        groups: the groups of the dead letters; None for all groups.
        topics: the dead-letter topics that were read instead of groups.
        group: the group of dead letters without a header that names it.
    """

    folder: str
    plan_id: str
    created_ms: int
    where: str
    target: str
    topic_prefix: str
    max_replays: int
    since_ms: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[str] | None = None
    topics: Sequence[str] | None = None
    group: str | None = None

    def check_same(self, chosen: Mapping[str, Any], options: Mapping[str, str]) -> None:
        """Raise unless the options of a command line match the plan.

        Args:
            chosen: the given arguments of `plan_replay`.
            options: the options of the command line by argument, for messages.

        Raises:
            IllegalSetting: an option differs from the plan.
        """
        for name, option in options.items():
            made = getattr(self, name)
            said = chosen.get(name, made)
            if said != made:
                raise IllegalSetting(
                    f"{option} {said!r}: the plan in {self.folder} was made with {made!r}; "
                    f"leave {option} out to continue that plan, or choose another folder with --plan"
                )

    @property
    def to_send(self) -> int:
        """The number of dead letters that a run sends."""
        return self.counts.get(SEND, 0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of one column of a plan: (value, status, count), the largest value first."""

    column: str
    rows: list[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """Which dead letters a plan sends, and where to, as given to `plan_replay`."""

    where: str
    target: str
    group: str | None
    max_replays: int
    groups: list[str] | None
    topics: list[str] | None

    @classmethod
    def of(
        cls,
        where: str,
        target: str,
        group: str | None,
        max_replays: int,
        groups: Iterable[str] | None,
        topics: Iterable[str] | None,
    ) -> Self:
        """Check the arguments of a user.

        Raises:
            IllegalSetting: an argument is illegal.
        """
        check_types(locals(), where=str, target=str, group=(str, NoneType), max_replays=int)
        if target not in _TARGETS:
            raise IllegalSetting(f"target {target!r}: use {' or '.join(_TARGETS)}")
        if max_replays < 1:
            raise IllegalSetting(f"max_replays must be 1 or more, not {max_replays}")
        if group is not None:
            check_group(group)
        groups = None if groups is None else texts(groups, "groups", "['departures']")
        topics = None if topics is None else texts(topics, "topics")
        return cls(where, target, group, max_replays, groups, topics)


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
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        folder: the folder of the plan; it must not have one yet.
        where: an SQL expression over the readers' schema that selects dead letters.
        groups: the consumer groups; by default all.
        topics: dead-letter topics to read instead, also of other systems.
        target: `retry` sends to the group's retry topic, `origin` to the origin topic, where every group sees it.
        group: the group of dead letters that do not name one.
        max_replays: a message that was replayed this often is refused.
        plan_id: by default a new one.
        topic_prefix: the prefix of the installation's topics.
        options: options of Spark's Kafka source, such as `kafka.security.protocol` or `startingTimestamp`.

    Raises:
        IllegalSetting: an invalid argument, or the folder has a plan already.
        ReconsumeError: Spark failed; see `failures`.
    """
    source = TopicSource.of(spark, bootstrap_servers, topic_prefix, options)
    check_folder("folder", folder)
    check_types(locals(), plan_id=(str, NoneType))
    which = PlanChoice.of(where, target, group, max_replays, groups, topics)
    dead, plan_id = dead_letters(source, which.groups, which.topics), plan_id or f"replay-{uuid.uuid4().hex[:12]}"
    with explained(f"plan {plan_id} cannot be made"):
        return plan_from(source, folder, plan_id, dead, which)


def plan_from(
    source: TopicSource,
    folder: str,
    plan_id: str,
    candidates: DataFrame,
    which: PlanChoice,
    others: DataFrame | None = None,
) -> ReplayPlan:
    """Write a plan for the candidates.

    The other dead letters, which the filter need not select, tell whether a candidate is superseded. They may include
    the candidates.
    """
    created_ms = time.time_ns() // 1_000_000
    if not _PLAN_ID.fullmatch(plan_id):
        raise IllegalSetting(f"plan id {plan_id!r}: use at most 200 letters, digits, '.', '_', ':' and '-'")
    if re.fullmatch(JOB_ID, plan_id):
        raise IllegalSetting(f"plan id {plan_id!r} is that of a job of `reconsume dlq resend`; choose another one")
    if open_plan(source.spark, folder) is not None:
        raise IllegalSetting(f"{folder} already has a plan; run that one, or choose another folder")
    size = rows_to_read(candidates)
    dead = candidates.withColumn("chosen", filter_of(candidates, which.where))
    if others is not None:
        dead = dead.unionByName(others.withColumn("chosen", F.lit(False)))
    # Records that are not sent are listed without key and value.
    dead = with_identity(_contents_where(dead, F.col("chosen")), which.target, which.group)
    with small_methods(source.spark):
        judged = with_status(dead, read_replays(source), read_states(source), which.max_replays, size)
        planned = _contents_where(judged, F.col("status") == SEND)
        write_in_order(with_message(planned, plan_id, which.target).select(*_KEPT), f"{folder}/records", size)
        written = records(source.spark, folder).groupBy("status")
        rows = written.agg(F.count("*").alias("count"), F.unix_millis(F.max("appended")).alias("last_ms")).collect()
    counts = {row["status"]: row["count"] for row in rows}
    since_ms = _since_ms([row.last_ms for row in rows], created_ms)
    known = asdict(which) | {"topic_prefix": source.names.prefix, "since_ms": since_ms, "counts": counts}
    plan = ReplayPlan(folder, plan_id, created_ms, **known)
    facts = {name: value for name, value in asdict(plan).items() if name != "folder"}
    told = local_rows(source.spark, [{"value": json.dumps(facts)}], "value STRING")
    told.write.mode("overwrite").text(f"{folder}/plan")  # a process that died here left a folder without a file
    return plan


def write_in_order(rows: DataFrame, path: str, size: int | None = None) -> None:
    """Write records of a plan by partition and offset, those to send first.

    The column `number` has the order: in each Spark partition it begins at a multiple of `PARTITION` and increases by
    one. A run reads one range of numbers after the other, and little more.

    Args:
        rows: the rows to write.
        path: the path of the table.
        size: the approximate number of rows; None if unknown.
    """
    order = (F.col("status") != SEND, F.col("kafka_topic"), F.col("partition"), F.col("offset"))
    rows = spread(rows, size, *order, in_order=True).sortWithinPartitions(*order)
    rows = rows.withColumn("number", F.monotonically_increasing_id())
    # Small row groups, so that several tasks read a chunk and little else.
    rows.write.mode("overwrite").option("parquet.block.size", _ROW_GROUP_BYTES).parquet(path)


def open_plan(spark: SparkSession, folder: str) -> ReplayPlan | None:
    """Return the plan in a folder; None if there is none.

    Raises:
        IllegalSetting: another version of reconsume made it, or its file was changed.
    """
    with explained(f"the plan in {folder} cannot be read; check that Spark reaches it and may read it"):
        lines = rows_if_there(lambda: spark.read.text(literal_path(f"{folder}/plan"), wholetext=True))
    if not lines:
        return None
    try:
        facts = of_type(json.loads("".join(row["value"] for row in lines)), "the plan", dict)
        if facts.keys() | {"folder"} != {field.name for field in fields(ReplayPlan)}:
            raise ValueError("another version of reconsume made it")  # noqa: TRY301 - with the words below
        check_types(facts, plan_id=str, created_ms=int, topic_prefix=str, since_ms=int, counts=dict)
        check_types(facts["counts"], **dict.fromkeys(facts["counts"], int))
        PlanChoice.of(**{name.name: facts[name.name] for name in fields(PlanChoice)})
    except (ValueError, RecursionError, ReconsumeError) as error:
        raise IllegalSetting(f"{folder}/plan cannot be read ({error}): make a new plan in another folder") from error
    return ReplayPlan(folder=folder, **facts)


def records(spark: SparkSession, folder: str) -> DataFrame:
    """Return the plan's table: one row for each dead letter that matches the filter."""
    return spark.read.parquet(literal_path(f"{folder}/records"))


def histogram(spark: SparkSession, plan: ReplayPlan, column: str) -> Histogram:
    """Return counts of dead letters by `cause`, `group`, `hour` or any column of the plan, for people."""
    table = records(spark, plan.folder).withColumn(
        "hour", F.date_format(F.date_trunc("hour", "appended"), "yyyy-MM-dd HH:mm")
    )
    shown = F.coalesce(F.substring(F.col(column).cast("string"), 1, 120), F.lit("(none)"))
    counts = (F.count_if(F.col("status") == status).alias(status) for status in STATUSES)
    counted = table.groupBy(shown.alias("shown")).agg(F.count("*").alias("all"), *counts)
    largest = counted.orderBy(F.desc("all"), "shown").limit(_LARGEST).collect()
    return Histogram(column, [(row.shown, name, row[name]) for row in largest for name in STATUSES if row[name]])


def filter_of(dead: DataFrame, where: str) -> Column:
    """Return a user's filter as a column; raises `IllegalSetting`."""
    try:
        wanted = F.expr(where)
        _ = dead.where(wanted).schema  # Spark Connect analyses an expression only when it must
    except (ParseException, AnalysisException) as error:
        raise IllegalSetting(f"the filter {where!r} is not an SQL expression over the dead letters: {error}") from error
    return wanted


def _contents_where(rows: DataFrame, wanted: Column) -> DataFrame:
    return rows.withColumns({name: F.when(wanted, F.col(name)) for name in ("key", "value", "headers")})


def _since_ms(last_ms: Iterable[int], created_ms: int) -> int:
    """Return a moment before the plan was made, by the brokers' clock; the driver's may be ahead."""
    return max(0, min(created_ms, max(last_ms, default=created_ms)) - _CLOCKS_DIFFER_MS)
