"""Which dead letters a plan sends, what it writes for each, and why it leaves the others out."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.wire import properties as p
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.spark_connectors.headers import HeaderColumns

__all__ = ["SEND", "STATUSES", "earlier_replays", "with_identity", "with_message", "with_status"]

SEND: Final = "send"
STATUSES: Final = {
    SEND: "will be sent",
    "no_group": "nothing tells its consumer group; name one with group",
    "no_origin": "nothing tells its origin topic",
    "damaged": "a header that tells its identity or its count does not hold what it must",
    "superseded": "the same message has a newer dead letter",
    "replayed": "another plan has replayed it",
    "capped": "it was replayed as often as is allowed",
}
"""What a plan says of each dead letter."""
_NEEDED: Final = (p.ORIGIN_MESSAGE_ID, p.RETRY_TOPIC, p.REPLAY_TIMES)
_REPLACED: Final = (*sorted(p.OUR_PROPERTIES), p.REPLAY_ID, p.REPLAY_TIMES)


def with_identity(dead: DataFrame, target: str, group: str | None) -> DataFrame:
    """Adds `message_id` (the origin message id, else where the dead letter stands) and `real_topic`, its target.

    Args:
        dead: dead letters in the readers' schema.
        target: `retry` or `origin`.
        group: for those that do not tell theirs.
    """
    own = F.concat_ws("/", "kafka_topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    groups = F.coalesce(F.col("group"), F.lit(group).cast("string"))
    real_topic = F.concat(F.lit(RETRY_PREFIX), groups) if target == "retry" else F.col("origin_topic")
    return dead.withColumns(
        {"message_id": F.coalesce("origin_message_id", own), "group": groups, "real_topic": real_topic}
    )


def earlier_replays(lane: DataFrame) -> DataFrame:
    """What any plan wrote: `message_id`, `real_topic`, when and how often; from records of `DELAY.0s`.

    A send-back of a replayed message has its headers too; its count tells it apart, for a replay begins at 0.
    """
    replays = lane.where(F.col("replay_id").isNotNull() & (F.col("attempt") == 0))
    return replays.groupBy(F.col("origin_message_id").alias("message_id"), F.col("target").alias("real_topic")).agg(
        F.max("appended").alias("replayed_at"), F.max("replay_times").alias("replayed_times")
    )


def with_status(chosen: DataFrame, everything: DataFrame, earlier: DataFrame, max_replays: int) -> DataFrame:
    """Adds `status` (see `STATUSES`) and raises `replay_times` to what is known from all topics.

    Args:
        chosen: the dead letters that the filter took, with their identity.
        everything: all dead letters of the same topics, with their identity.
        earlier: see `earlier_replays`.
        max_replays: a message that was replayed so often is not sent again.
    """
    place = F.struct("appended", "kafka_topic", "partition", "offset")
    # Never null: else Spark looks for nulls before it joins, on Kafka's rows, with a filter so long that it cannot
    # compile it.
    target = F.coalesce("real_topic", F.lit("")).alias("sent_to")
    newest = everything.groupBy("message_id", target).agg(
        F.max(place).alias("newest"), F.max("replay_times").alias("newest_times"), F.count("*").alias("dead_letters")
    )
    newest = newest.where(F.col("dead_letters") > 1)  # few, so the join costs nothing
    own = earlier.where(F.col("real_topic").startswith(RETRY_PREFIX))
    own = own.withColumnRenamed("real_topic", "retry_name")
    to_all = (
        earlier.where(~F.col("real_topic").startswith(RETRY_PREFIX))
        .groupBy("message_id")
        .agg(F.max("replayed_at").alias("all_at"), F.max("replayed_times").alias("all_times"))
    )
    known = (
        chosen.withColumns({"retry_name": F.concat(F.lit(RETRY_PREFIX), "group"), "sent_to": target})
        .join(newest, ["message_id", "sent_to"], "left")
        .join(own, ["message_id", "retry_name"], "left")
        .join(to_all, ["message_id"], "left")
    )
    times = F.greatest("replay_times", "newest_times", "replayed_times", "all_times")
    status = (
        F.when(F.arrays_overlap("malformed", F.array(*map(F.lit, _NEEDED))), "damaged")
        .when(F.col("group").isNull() & F.col("real_topic").isNull(), "no_group")
        .when(F.col("real_topic").isNull(), "no_origin")
        .when(F.col("newest") > place, "superseded")
        .when(F.greatest("replayed_at", "all_at") >= F.col("appended"), "replayed")
        .when(times >= max_replays, "capped")
        .otherwise(SEND)
    )
    kept = [name for name in chosen.columns if name != "replay_times"]
    return known.select(*kept, times.alias("replay_times"), status.alias("status"))


def with_message(planned: DataFrame, plan_id: str, target: str) -> DataFrame:
    """Replaces `headers` by those that are sent: the user's as they were, then ours."""
    stored = HeaderColumns.of(F.col("headers"))
    is_ours = "header -> header.key IN ({names}) OR startswith(header.key, '{prefix}')".format(
        names=", ".join(f"'{name}'" for name in _REPLACED), prefix=p.DLQ_ERRORS
    )
    # `NOT` of a null key would be null, and the header lost.
    users = F.expr(f"filter(headers, {is_ours.replace('-> ', '-> NOT coalesce(')}, false))")
    ours = {
        p.ORIGIN_MESSAGE_ID: F.col("message_id"),
        p.REAL_TOPIC: F.col("real_topic"),
        p.BORN_TIMESTAMP: F.unix_millis("born").cast("string"),
        p.REPLAY_ID: F.lit(plan_id),
        p.REPLAY_TIMES: (F.col("replay_times") + 1).cast("string"),
    }
    if target == "retry":
        maximum = stored.count(p.MAX_RECONSUME_TIMES).cast("string")
        ours = {
            p.RETRY_TOPIC: F.col("origin_topic"),
            p.RECONSUME_TIME: F.lit("0"),
            p.DELAY: F.lit("0"),
            p.MAX_RECONSUME_TIMES: maximum,
            **ours,
        }
    else:
        ours[p.REAL_QID] = F.col("origin_partition").cast("string")
    headers = [_header(name, value) for name, value in ours.items()]
    return planned.withColumn(
        "headers", F.concat(users, F.filter(F.array(*headers), lambda one: one["value"].isNotNull()))
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), F.encode(value, "UTF-8").alias("value"))
