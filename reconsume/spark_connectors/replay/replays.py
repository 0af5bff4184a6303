"""The replays that `DELAY.0s` shows: copies of dead letters that Spark and jobs have sent."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.schema import typed
from reconsume.spark_connectors.source import TopicSource

JOB_ID: Final = r"resend-\d{8}T\d{6}-[0-9a-f]{6}"
"""The `REPLAY_ID` of jobs, which write in transactions: `operations.resend.new_replay_id`."""


def read_replays(source: TopicSource, since_ms: int | None = None) -> DataFrame:
    """Return replayed records in `DELAY.0s`.

    The columns are `message_id`, `born`, `real_topic`, `replay_id`, `replay_times` and `replayed_at`.

    Spark writes without transactions, so a replay counts as soon as it is stored; a reader of committed records would
    not see it behind a scheduler's open transaction. A job's resend counts when its transaction is committed. A
    send-back of a replayed message has the same headers, but not the count 0 of a replay.
    """
    is_of_job = F.col("replay_id").rlike(f"^{JOB_ID}$")
    by_jobs = stored_replays(source, since_ms, isolation="read_committed").where(is_of_job)
    return stored_replays(source, since_ms).where(~is_of_job).unionByName(by_jobs)


def stored_replays(
    source: TopicSource, since_ms: int | None = None, *, isolation: str = "read_uncommitted"
) -> DataFrame:
    """Return the same in one scan, copies of aborted transactions included: a plan of Spark has none."""
    lane = source.of_clients().with_options(**{"kafka.isolation.level": isolation})
    lane = lane if since_ms is None else lane.since(since_ms)
    written = typed(lane.raw([source.names.delay(0)]), source.names.prefix)
    message_id = F.col("origin_message_id")
    replays = written.where(F.col("replay_id").isNotNull() & (F.col("attempt") == 0) & message_id.isNotNull())
    return replays.select(
        message_id.alias("message_id"),
        "born",
        F.col("target").alias("real_topic"),
        "replay_id",
        "replay_times",
        F.col("appended").alias("replayed_at"),
    )


def same_message(rows: DataFrame, others: DataFrame, *more: str) -> Column:
    """Return the condition of a join by message and target, and by more columns: see `wire.resend.is_same_message`.

    Spark compares all pairs of records with the same id, so a program must not give one id to all its messages.
    """
    named = [rows[name] == others[name] for name in ("message_id", "real_topic", *more)]
    return reduce(operator.and_, named, F.coalesce(rows["born"] == others["born"], F.lit(True)))
