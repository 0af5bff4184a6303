"""Runs a plan: sends its unsent records, chunk by chunk.

Guarantees:
    1. Sent records are read back from `DELAY.0s`, never remembered: only the topic survives a kill. The read includes
       uncommitted records: Spark writes without transactions, and behind a scheduler's open transaction a reader of
       committed records would miss them, and send them again. Test: tests/spark/replay/test_runs.py.
       Their states are written while the run lasts, so that what `DELAY.0s` forgets meanwhile is known, too.
    2. A replay's own copy is the one with `RECONSUME_TIME` 0. A send-back of a replayed message carries `REPLAY_ID`
       too, also through `DELAY.0s` when it dies, but never 0. Test: tests/spark/replay/test_listener.py.
    3. A dead letter with a state is not sent, whether it got it before or after the plan was made; see `run_rows` for
       the time while the run lasts. Test: tests/spark/replay/test_states.py.
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.foreign_values import check_types
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.names import group_of_name
from reconsume.spark_connectors.replay.chunks import check_run, chunk_size, chunks_of, pause_seconds
from reconsume.spark_connectors.replay.plan import PARTITION, ReplayPlan, records, write_in_order
from reconsume.spark_connectors.replay.replays import read_replays, same_message, stored_replays
from reconsume.spark_connectors.replay.run_rows import RunRows, mark_sent, sink
from reconsume.spark_connectors.replay.selection import SEND
from reconsume.spark_connectors.replay.states import STATE_KEY, read_states
from reconsume.spark_connectors.session import literal_path, local_rows, rows_if_there, runs_tasks_once
from reconsume.spark_connectors.source import TopicSource

_DAY_MS: Final = 86_400_000
_EVENT: Final = "at BIGINT, run STRING, what STRING"


class ReplayInterrupted(ReconsumeError):
    """A run ended early; running the same plan again continues it."""


class PlanTooOld(IllegalSetting):
    """A plan was interrupted too long ago: which of its records were sent is unknown."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a run: records sent by this run, settled otherwise, and in the whole plan."""

    sent: int
    before: int
    total: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a run.

    Attributes:
        sent: records sent by this run.
        before: records settled before their turn: sent by an interrupted run, another plan or a job, or resolved by
            someone.
    """

    plan_id: str
    sent: int
    before: int


class RunEvent(NamedTuple):
    """The start or end of a run (`started`, `finished`); `at` in milliseconds by its driver's clock."""

    at: int
    run: str
    what: str


def run_replay(
    spark: SparkSession,
    bootstrap_servers: str,
    plan: ReplayPlan,
    *,
    rate: float | None = None,
    progress: Callable[[ReplayProgress], None] = lambda _progress: None,
    at_least_once: bool = False,
    settle_seconds: float = 10.0,
    bulk_partitions: Sequence[int] = (),
    retention_days: float = 7,
    options: Mapping[str, str] | None = None,
) -> ReplayResult:
    """Send the unsent records of a plan; nothing, if it was run to its end before.

    Args:
        spark: a session with the Kafka connector.
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        plan: a plan of `plan_replay` or `open_plan`.
        rate: the maximum of records in any second; None for no limit.
        progress: called after each chunk.
        at_least_once: also run if Spark may restart a failed task, which sends its records twice.
        settle_seconds: after an interrupted run, wait until no record arrived from it for this time.
        bulk_partitions: the partitions of `DELAY.0s` for floods, as a replay is one; each group uses one of them. By
            default records go by their keys.
        retention_days: the installation's `topics.retention_days`; `DELAY.0s` shows for that long what was sent.
        options: Kafka settings for Spark (`kafka.…`).

    Raises:
        IllegalSetting: an invalid argument, Spark retries tasks, or the plan is too old.
        ReplayInterrupted: Spark failed, or another run of the plan began.
    """
    check_types(locals(), plan=ReplayPlan, at_least_once=bool)
    source = TopicSource.of(spark, bootstrap_servers, plan.topic_prefix, options)
    check_run(rate, settle_seconds, bulk_partitions, retention_days)
    if not at_least_once:
        _check_retries(spark)
    events = _events(spark, plan)
    if events and events[-1].what == "finished":
        progress(ReplayProgress(0, plan.to_send, plan.to_send))
        return ReplayResult(plan.plan_id, 0, plan.to_send)
    if events:
        _check_break(plan, _known_ms(source, plan, events), longest_break_days(retention_days))
    run = uuid.uuid4().hex
    _add_event(spark, plan, run, "started")
    with explained(f"what plan {plan.plan_id} has sent cannot be read back"):
        if any(event.run != run for event in _events(spark, plan)):
            _settle(source, plan, settle_seconds)
            mark_sent(source, plan, _sent_before(source, plan))
        read_at = time.monotonic()
        left = _left(source, plan, run)
        runs = _runs(left)
    done, ended, rows = 0, -math.inf, RunRows(source, plan, left, f"{plan.folder}/settled/{run}", read_at)
    before = plan.to_send - sum(map(len, runs))
    progress(ReplayProgress(0, before, plan.to_send))
    for chunk in chunks_of(runs, chunk_size(rate)):
        time.sleep(max(0.0, ended + pause_seconds(rate) - time.monotonic()))
        with _interrupted(plan, done):
            rows.look_again(chunk.first, time.monotonic())
        count = rows.count(chunk)
        if count:
            _send(source, plan, run, done, rows.between(chunk.first, chunk.last), bulk_partitions)
            done, ended = done + count, time.monotonic()
        before += chunk.size - count
        progress(ReplayProgress(done, before, plan.to_send))
        rows.sent(chunk, ended)
    rows.mark()
    _add_event(spark, plan, run, "finished")
    return ReplayResult(plan.plan_id, done, before)


def _send(
    source: TopicSource, plan: ReplayPlan, run: str, done: int, rows: DataFrame, bulk_partitions: Sequence[int]
) -> None:
    """Send the rows of a chunk, unless another run of the plan has begun."""
    with _interrupted(plan, done):
        known = _events(source.spark, plan)
    if is_overtaken(known, run):
        raise ReplayInterrupted(f"another run of plan {plan.plan_id} has begun: this one stops after {done} records")
    with _interrupted(plan, done):
        _write(rows, source, bulk_partitions)


@contextmanager
def _interrupted(plan: ReplayPlan, done: int) -> Iterator[None]:
    """Add to an error how to continue the run."""
    try:
        with explained("a chunk could not be sent"):
            yield
    except ReconsumeError as error:
        raise ReplayInterrupted(
            f"plan {plan.plan_id} stopped after {done} records of this run; run it again to send the rest: {error}"
        ) from error


def is_overtaken(events: Sequence[RunEvent], run: str) -> bool:
    """Return whether another run of the plan started after this one."""
    started = [event for event in events if event.what == "started"]
    return bool(started) and started[-1].run != run


def _add_event(spark: SparkSession, plan: ReplayPlan, run: str, what: str) -> None:
    events = _events(spark, plan)
    # Later than all others, even if the clock of an earlier run was ahead.
    at = max(time.time_ns() // 1_000_000, events[-1].at + 1 if events else 0)
    line = {"at": at, "run": run, "what": what}
    with explained(f"{plan.folder}/events cannot be written"):
        local_rows(spark, [line], _EVENT).write.mode("append").json(f"{plan.folder}/events")


def _events(spark: SparkSession, plan: ReplayPlan) -> list[RunEvent]:
    """Return the events of the plan's runs, from files that are only added to its folder."""
    with explained(f"{plan.folder}/events cannot be read"):
        rows = rows_if_there(lambda: spark.read.schema(_EVENT).json(literal_path(f"{plan.folder}/events")).dropna())
    return sorted(RunEvent(row["at"], row["run"], row["what"]) for row in rows or ())


def _left(source: TopicSource, plan: ReplayPlan, run: str) -> DataFrame:
    """Return the records that nobody has sent or resolved since the plan was made."""
    rows = records(source.spark, plan.folder).where(F.col("status") == SEND)
    sent = read_replays(source, plan.since_ms)
    # A replay before this dead letter belongs to an earlier life of the message.
    same = same_message(rows, sent) & (sent["replayed_at"] >= rows["appended"])
    settled = read_states(source, plan.since_ms).select(*STATE_KEY)
    rows = rows.withColumn("stored_ms", F.unix_millis("appended"))
    gone = (
        rows.join(sent, same, "left_semi")
        .select(*STATE_KEY)
        .union(rows.join(settled, [*STATE_KEY], "left_semi").select(*STATE_KEY))
    )
    if gone.isEmpty():
        return rows
    write_in_order(rows.join(gone, [*STATE_KEY], "left_anti"), f"{plan.folder}/left/{run}")
    return source.spark.read.parquet(literal_path(f"{plan.folder}/left/{run}"))


def _sent_before(source: TopicSource, plan: ReplayPlan) -> DataFrame:
    """Return the records that an interrupted run has sent, from `DELAY.0s`.

    Copies of an earlier death are not theirs: a plan in another folder may have the same id, as batches of a stream do.
    """
    rows = records(source.spark, plan.folder).where(F.col("status") == SEND)
    sent = stored_replays(source, plan.since_ms).where(F.col("replay_id") == plan.plan_id)
    sent = sent.withColumn("replay_times", F.col("replay_times") - 1)
    return rows.join(sent, same_message(rows, sent, "replay_times"), "left_semi")


def _runs(rows: DataFrame) -> list[range]:
    """Return the numbers of all rows: a range for each partition that Spark has written."""
    first = F.col("number") - F.col("number") % PARTITION
    counts = rows.groupBy(first.alias("first")).count().orderBy("first").collect()
    return [range(row["first"], row["first"] + row["count"]) for row in counts]


def _write(rows: DataFrame, source: TopicSource, bulk_partitions: Sequence[int] = ()) -> None:
    columns = ["key", "value", "headers"]
    if bulk_partitions:
        # As in `LanePartitions`: by the group, or by the topic for the origin topic.
        hashed = F.crc32(F.encode(F.coalesce(group_of_name(F.col("real_topic")), "real_topic"), "UTF-8"))
        places = F.array(*map(F.lit, bulk_partitions))
        rows = rows.withColumn("partition", F.get(places, (hashed % len(bulk_partitions)).cast("int")))
        columns.append("partition")
    rows.select(*columns).write.format("kafka").options(**sink(source, source.names.delay(0))).save()


def _settle(source: TopicSource, plan: ReplayPlan, settle_seconds: float) -> None:
    """Wait until no more records arrive from an interrupted run: its executors may outlive its driver."""
    last = -1
    while (count := stored_replays(source, plan.since_ms).where(F.col("replay_id") == plan.plan_id).count()) != last:
        last = count
        time.sleep(settle_seconds)


def _check_retries(spark: SparkSession) -> None:
    """Refuse a Spark that restarts failed tasks: records of the first attempt would be sent twice."""
    master = spark.conf.get("spark.master", "") or ""
    once = runs_tasks_once(master)
    if not once and re.match(r"local\[.*,", master):
        raise IllegalSetting(
            f"the master {master} repeats a failed task, whatever spark.task.maxFailures says, and would send records "
            "twice; start Spark with a master such as local[*] or local[*, 1], or accept duplicates with at_least_once"
        )
    tries = (spark.conf.get("spark.task.maxFailures", None) or ("1" if once else "4")).strip()
    if tries != "1":
        raise IllegalSetting(
            f"spark.task.maxFailures is {tries}, so Spark may repeat a task that failed half-way, and send records "
            "twice; start Spark with spark.task.maxFailures=1, or accept duplicates with at_least_once"
        )
    speculation = spark.conf.get("spark.speculation", None) or "false"
    if speculation.strip().lower() == "true":  # as Spark reads it
        raise IllegalSetting(
            "spark.speculation is on, so Spark may run a task twice at once and send records twice; "
            "start Spark with spark.speculation=false, or accept duplicates with at_least_once"
        )


def _known_ms(source: TopicSource, plan: ReplayPlan, events: Sequence[RunEvent]) -> int:
    """Return when states or the plan itself last told all that it had sent."""
    with explained(f"the states of what plan {plan.plan_id} has sent cannot be read"):
        marked = read_states(source).where(F.col("job") == plan.plan_id).agg(F.max("at").alias("at")).collect()
    return max(events[0].at, marked[0]["at"] or 0)


def longest_break_days(retention_days: float) -> float:
    """Return after how many days `DELAY.0s` may no longer show what a run has sent just before it was interrupted."""
    return retention_days * 6 / 7


def _check_break(plan: ReplayPlan, known_ms: int, longest_days: float) -> None:
    if time.time_ns() // 1_000_000 - known_ms > longest_days * _DAY_MS:
        raise PlanTooOld(
            f"plan {plan.plan_id} was interrupted over {longest_days:.3g} days ago, and DELAY.0s may have "
            "deleted the records that it sent, so the missing ones are unknown; read its report, then make a new plan "
            "with a filter for the rest"
        )
