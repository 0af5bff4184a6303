"""Replays as a stream: each run handles the dead letters since the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types
from reconsume.spark_connectors.readers import dead_letters
from reconsume.spark_connectors.replay.chunks import check_run
from reconsume.spark_connectors.replay.execution import PlanTooOld, longest_break_days, run_replay
from reconsume.spark_connectors.replay.plan import PlanChoice, ReplayPlan, filter_of, open_plan, plan_from
from reconsume.spark_connectors.session import check_folder, literal_path, rows_if_there
from reconsume.spark_connectors.source import TopicSource


def replay_stream(
    spark: SparkSession,
    bootstrap_servers: str,
    folder: str,
    name: str,
    *,
    where: str = "true",
    groups: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    target: str = "retry",
    group: str | None = None,
    max_replays: int = 2,
    rate: float | None = None,
    at_least_once: bool = False,
    settle_seconds: float = 10.0,
    bulk_partitions: Sequence[int] = (),
    retention_days: float = 7,
    topic_prefix: str = "reconsume.",
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that replays all new dead letters, then ends (`availableNow`).

    Each micro-batch is a plan, `<name>-<batch>`, under `<folder>/plans`. Spark repeats an interrupted batch with the
    same dead letters, and its plan continues where it stopped. So nothing is sent twice.

    Args:
        spark: a session with the Kafka connector.
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        folder: the folder for checkpoint and plans, for this name and these topics only.
        name: the name of this stream, part of every `REPLAY_ID`.
        where: an SQL expression over the readers' schema that selects dead letters.
        groups: the consumer groups; by default all.
        topics: dead-letter topics to read instead.
        target: `retry` or `origin`.
        group: the group of dead letters that do not name one.
        max_replays: a message that was replayed this often is refused.
        rate: the maximum of records per second.
        at_least_once: see `run_replay`.
        settle_seconds: see `run_replay`.
        bulk_partitions: see `run_replay`.
        retention_days: see `run_replay`.
        topic_prefix: the prefix of the installation's topics.
        options: options of Spark's Kafka source; `maxOffsetsPerTrigger` limits a batch.
    """
    check_folder("folder", folder)
    check_types(locals(), name=str, at_least_once=bool)
    check_run(rate, settle_seconds, bulk_partitions, retention_days)
    which = PlanChoice.of(where, target, group, max_replays, groups, topics)
    how: dict[str, Any] = {"rate": rate, "at_least_once": at_least_once, "settle_seconds": settle_seconds}
    how |= {"bulk_partitions": bulk_partitions, "retention_days": retention_days}
    source = TopicSource.of(spark, bootstrap_servers, topic_prefix, options)

    def replay_batch(batch: DataFrame, number: int) -> None:
        here, at = replace(source.of_clients(), spark=batch.sparkSession), f"{folder}/plans/{number}"
        plan = open_plan(here.spark, at)
        if plan is None:
            plan = plan_from(here, at, f"{name}-{number}", batch, which, dead_letters(here, which.groups, which.topics))
        try:
            run_replay(here.spark, bootstrap_servers, plan, options=here.options, **how)
        except PlanTooOld as error:
            raise IllegalSetting(
                f"plan {plan.plan_id} was interrupted over {longest_break_days(retention_days):.3g} days ago, so the "
                "records that it sent are unknown; use a new folder, and a --where that leaves out the dead letters in "
                f"{at}/records"
            ) from error

    _check_checkpoint(spark, folder)
    stream = dead_letters(source, which.groups, which.topics, streaming=True)
    filter_of(stream, where)
    writer = stream.writeStream.foreachBatch(replay_batch).option("checkpointLocation", f"{folder}/checkpoint")
    return writer.trigger(availableNow=True).start()


def plans_of(spark: SparkSession, folder: str, query: StreamingQuery) -> list[ReplayPlan]:
    """Return the plans of a query's batches, up to the last 100. One that it continued has read no dead letters."""
    batches = sorted({one.batchId for one in query.recentProgress})
    return [plan for batch in batches if (plan := open_plan(spark, f"{folder}/plans/{batch}")) is not None]


def _check_checkpoint(spark: SparkSession, folder: str) -> None:
    """Refuse plans without their checkpoint: Spark would begin at batch 0 again, and its plan has been sent."""
    begun = literal_path(f"{folder}/checkpoint/offsets")
    if open_plan(spark, f"{folder}/plans/0") is not None and not rows_if_there(lambda: spark.read.text(begun).limit(1)):
        raise IllegalSetting(
            f"{folder} has plans of earlier runs but no checkpoint, so new dead letters would be taken for theirs and "
            "not be sent; use a new folder: it leaves out what was replayed"
        )
