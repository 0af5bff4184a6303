"""Run a plan: send what was not sent yet, chunk by chunk.

Guarantees:
    1. What was sent is read back from `DELAY.0s`, never remembered: the topic is the only truth that survives a kill.
       Uncommitted records too: Spark writes without transactions, and behind a scheduler's open transaction a committed
       reader would miss it, and it would be sent again. Test: tests/spark/test_replay_runs.py.
    2. A replay's own copy is the one with `RECONSUME_TIME` 0. A send-back of a replayed message carries `REPLAY_ID`
       too, also through `DELAY.0s` when it dies, but never 0. Test: tests/spark/test_replay_listener.py.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import NoneType
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.foreign_values import check_types
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.replay.chunks import Bucket, Pace, ReplayChunk, chunk_size, chunks_of, parts_of
from reconsume.spark_connectors.replay.events import add_event, is_overtaken, read_events
from reconsume.spark_connectors.replay.plan import ReplayPlan, read_lane, records
from reconsume.spark_connectors.replay.selection import SEND
from reconsume.spark_connectors.source import TopicSource

__all__ = ["ReplayInterrupted", "ReplayProgress", "ReplayResult", "read_back", "run_replay"]

_LONGEST_BREAK_MS: Final = 6 * 86_400_000
"""`DELAY.0s` keeps seven days: later nobody could tell what an interrupted run has sent."""


class ReplayInterrupted(ReconsumeError):
    """A run ended before its time; the same plan run again goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a run is: records sent by this run, by earlier ones, and all that the plan sends."""

    sent: int
    before: int
    total: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a run did.

    Attributes:
        sent: by this run.
        before: were sent already, by an interrupted run or by another plan.
    """

    plan_id: str
    sent: int
    before: int


def run_replay(
    spark: SparkSession,
    bootstrap_servers: str,
    plan: ReplayPlan,
    *,
    rate: float | None = None,
    progress: Callable[[ReplayProgress], None] = lambda _progress: None,
    at_least_once: bool = False,
    settle_seconds: float = 10.0,
    options: Mapping[str, str] | None = None,
) -> ReplayResult:
    """Send what the plan sends and is not sent yet; nothing, if it was run to its end before.

    Args:
        spark: a session with the Kafka connector.
        bootstrap_servers: host:port of Kafka.
        plan: from `plan_replay` or `open_plan`.
        rate: records at most in any second; None for as fast as it goes.
        progress: called after each chunk.
        at_least_once: also run where Spark may start a failed task a second time, which sends its records twice.
        settle_seconds: after an interrupted run, nothing may come from it for so long before this one begins.
        options: Kafka's settings as Spark takes them (`kafka.…`).

    Raises:
        IllegalSetting: an argument cannot work, Spark retries tasks, or the plan lay still for too long.
        ReplayInterrupted: Spark failed, or another run of the plan began.
    """
    check_types(locals(), plan=ReplayPlan, rate=(int, float, NoneType), at_least_once=bool, settle_seconds=(int, float))
    source = TopicSource.of(spark, bootstrap_servers, plan.topic_prefix, options)
    if rate is not None and not rate > 0:
        raise IllegalSetting(f"rate {rate}: use a number of records per second above 0")
    if not at_least_once:
        _check_retries(spark)
    events = read_events(spark, plan.folder)
    if events and events[-1].what == "finished":
        progress(ReplayProgress(0, plan.to_send, plan.to_send))
        return ReplayResult(plan.plan_id, 0, plan.to_send)
    _check_break(plan, events[-1].at if events else None)
    run = uuid.uuid4().hex
    add_event(spark, plan.folder, run, "started")
    if any(event.run != run for event in read_events(spark, plan.folder)):
        _settle(source, plan, settle_seconds)
    with explained(f"what plan {plan.plan_id} has sent cannot be read back"):
        back = read_back(source, plan)
        back.write.mode("overwrite").parquet(f"{plan.folder}/sent/{run}")
    sent = spark.read.parquet(f"{plan.folder}/sent/{run}")
    buckets = _buckets(spark, plan, sent)
    done = _send_all(source, plan, run, buckets, sent, rate, progress)
    add_event(spark, plan.folder, run, "finished", done)
    return ReplayResult(plan.plan_id, done, plan.to_send - done)


def read_back(source: TopicSource, plan: ReplayPlan) -> DataFrame:
    """What this and other plans have sent since this one was made: identity, when, by which plan, and how often."""
    lane = read_lane(source, plan.since_ms)
    replays = lane.where(F.col("replay_id").isNotNull() & (F.col("attempt") == 0))
    return replays.groupBy(
        F.col("origin_message_id").alias("message_id"), F.col("target").alias("real_topic"), "replay_id"
    ).agg(F.max("appended").alias("sent_at"), F.count("*").alias("copies"))


def _send_all(
    source: TopicSource,
    plan: ReplayPlan,
    run: str,
    buckets: list[Bucket],
    sent: DataFrame,
    rate: float | None,
    progress: Callable[[ReplayProgress], None],
) -> int:
    done, pace = 0, Pace(rate)
    before = plan.to_send - sum(bucket.to_send for bucket in buckets)
    progress(ReplayProgress(0, before, plan.to_send))
    for chunk in _chunks(source.spark, plan, buckets, sent, rate):
        time.sleep(pace.wait_seconds(chunk.to_send, time.monotonic()))
        if is_overtaken(read_events(source.spark, plan.folder), run):
            raise ReplayInterrupted(
                f"another run of plan {plan.plan_id} has begun: this one stops after {done} records"
            )
        try:
            with explained("a chunk could not be sent"):
                _write(_rows(source.spark, plan, chunk, sent), source)
        except ReconsumeError as error:
            raise ReplayInterrupted(
                f"plan {plan.plan_id} stopped after {done} records of this run; run it again, it goes on with what is "
                f"missing: {error}"
            ) from error
        done += chunk.to_send
        pace.sent(chunk.to_send, time.monotonic())
        progress(ReplayProgress(done, before, plan.to_send))
    return done


def _chunks(
    spark: SparkSession, plan: ReplayPlan, buckets: list[Bucket], sent: DataFrame, rate: float | None
) -> Iterator[ReplayChunk]:
    """What is sent at once; a bucket with more records than the rate allows for a second is cut."""
    size = chunk_size(rate)
    for chunk in chunks_of(buckets, size, plan.bucket):
        if rate is None or chunk.to_send <= size:
            yield chunk
            continue
        with explained("the plan cannot be read"):
            rows = _rows(spark, plan, chunk, sent).select("offset").orderBy("offset").collect()
        yield from parts_of(chunk, [row["offset"] for row in rows], size)


def _rows(spark: SparkSession, plan: ReplayPlan, chunk: ReplayChunk, sent: DataFrame) -> DataFrame:
    def within(topic: str, partition: int, first: int, last: int) -> Column:
        return (
            (F.col("kafka_topic") == topic) & (F.col("partition") == partition) & F.col("offset").between(first, last)
        )

    pieces = [within(piece.topic, piece.partition, piece.first, piece.last) for piece in chunk.ranges]
    rows = records(spark, plan.folder).where((F.col("status") == SEND) & reduce(or_, pieces))
    return rows.join(sent, _is_sent(rows, sent), "left_anti") if chunk.partly else rows


def _is_sent(rows: DataFrame, sent: DataFrame) -> Column:
    same = (rows["message_id"] == sent["message_id"]) & (rows["real_topic"] == sent["real_topic"])
    # A replay before this dead letter was one of the message's earlier lives.
    return same & (sent["sent_at"] >= rows["appended"])


def _buckets(spark: SparkSession, plan: ReplayPlan, sent: DataFrame) -> list[Bucket]:
    rows = records(spark, plan.folder).where(F.col("status") == SEND)
    rows = rows.select("message_id", "real_topic", "appended", "kafka_topic", "partition", "offset")
    number = F.floor(F.col("offset") / plan.bucket)
    by = ("kafka_topic", "partition", number.alias("number"))
    if sent.isEmpty():
        counted = rows.groupBy(*by).agg(F.count("*").alias("to_send"), F.lit(False).alias("partly"))
    else:
        last = sent.groupBy("message_id", "real_topic").agg(F.max("sent_at").alias("sent_at"))
        known = rows.join(last, ["message_id", "real_topic"], "left")
        missing = ~F.coalesce(F.col("sent_at") >= F.col("appended"), F.lit(False))
        counted = known.groupBy(*by).agg(F.count_if(missing).alias("to_send"), F.bool_or(~missing).alias("partly"))
    return [
        Bucket(row["kafka_topic"], row["partition"], row["number"], row["to_send"], row["partly"])
        for row in counted.collect()
    ]


def _write(rows: DataFrame, source: TopicSource) -> None:
    settings = dict(source.of_clients().options)
    settings.pop("kafka.isolation.level", None)
    settings |= {"kafka.bootstrap.servers": source.bootstrap_servers, "topic": source.names.delay(0)}
    rows.select("key", "value", "headers").write.format("kafka").options(**settings).save()


def _settle(source: TopicSource, plan: ReplayPlan, settle_seconds: float) -> None:
    """Wait until nothing comes any more from a run that was interrupted: its executors may outlive its driver."""
    last = -1
    while (count := _count(read_back(source, plan), plan)) != last:
        last = count
        time.sleep(settle_seconds)


def _count(sent: DataFrame, plan: ReplayPlan) -> int:
    counted = sent.where(F.col("replay_id") == plan.plan_id).agg(F.sum("copies")).collect()
    return int(counted[0][0] or 0)


def _check_retries(spark: SparkSession) -> None:
    """Refuse a Spark that runs a failed task again: what the first attempt has sent would be sent twice."""
    local = (spark.conf.get("spark.master", "") or "").startswith("local")
    tries = spark.conf.get("spark.task.maxFailures", "1" if local else "4")
    if tries != "1":
        raise IllegalSetting(
            f"spark.task.maxFailures is {tries}: a task that failed half-way and runs again sends its records twice; "
            "start Spark with spark.task.maxFailures=1, or accept that with at_least_once"
        )
    if spark.conf.get("spark.speculation", "false") == "true":
        raise IllegalSetting(
            "spark.speculation is on: the same task may run twice at once and send its records twice; "
            "start Spark with spark.speculation=false, or accept that with at_least_once"
        )


def _check_break(plan: ReplayPlan, last_ms: int | None) -> None:
    if last_ms is not None and time.time_ns() // 1_000_000 - last_ms > _LONGEST_BREAK_MS:
        raise IllegalSetting(
            f"plan {plan.plan_id} was interrupted over 6 days ago: what it has sent may be gone from DELAY.0s, so "
            "nobody can tell what is missing; look at its report, then make a new plan with a filter for the rest"
        )
