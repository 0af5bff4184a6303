"""The outcome of each dead letter of a plan, read from the topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.dead_letter_states import RESENT, RESOLVED
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.properties import BORN_TIMESTAMP, ORIGIN_MESSAGE_ID
from reconsume.spark_connectors.headers import HeaderColumns
from reconsume.spark_connectors.readers import read_kinds
from reconsume.spark_connectors.replay.plan import ReplayPlan, records
from reconsume.spark_connectors.replay.replays import read_replays, same_message
from reconsume.spark_connectors.replay.selection import SEND
from reconsume.spark_connectors.replay.states import STATE_KEY, read_states
from reconsume.spark_connectors.schema import typed
from reconsume.spark_connectors.source import TopicSource

_PLACE: Final = ("kafka_topic", "partition", "offset")
_LIFE: Final = ("message_id", "real_topic", "born", "replay_times")
"""The columns that name one death of a message; its copy has a `REPLAY_TIMES` that is one higher."""


def replay_report(
    spark: SparkSession, bootstrap_servers: str, plan: ReplayPlan, *, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return one row for each dead letter of the plan, with its current `outcome`.

    `sent` waits for the scheduler; `delivered` is on its target; `dead_again` has failed there again; `replayed` was
    sent by another plan or a job meanwhile, `resolved` by someone; `copies` above 1 means that Spark sent it more than
    once, or that its copy was released from the quarantine. What `DELAY.0s` and the retry topic keep no more counts by
    the state of its dead letter.
    """
    table = records(spark, plan.folder).drop("key", "value", "headers", "number")
    source = TopicSource.of(spark, bootstrap_servers, plan.topic_prefix, options)
    sends = F.col("status") == SEND
    # Another plan of the same id may have sent copies of an earlier death.
    lives = table.where(sends).select(*_PLACE, *_LIFE)
    lane = read_replays(source, plan.since_ms)
    lane = lane.join(lives.withColumnRenamed("replay_times", "life"), same_message(lane, lives))
    mine = (F.col("replay_id") == plan.plan_id) & (F.col("replay_times") - 1 == F.col("life"))
    sent = lane.groupBy(*_PLACE).agg(
        F.max(F.when(mine, F.col("replayed_at"))).alias("sent_at"),
        F.count_if(mine).alias("copies"),
        F.max(F.when(~mine, F.col("replayed_at"))).alias("other_at"),
    )
    seen = _seen(source, plan, lives)
    outcome = (
        F.when(~sends, F.col("status"))
        .when(F.col("dead_again"), "dead_again")
        .when(F.col("delivered"), "delivered")
        .when(F.col("quarantined"), "quarantined")
        .when(F.col("sent_at").isNotNull(), "sent")
        .when(F.col("state").isNotNull() & (F.col("job") == plan.plan_id), "sent")
        .when((F.col("state") == RESENT) | (F.col("other_at") >= F.col("appended")), "replayed")
        .when(F.col("state") == RESOLVED, "resolved")
        .otherwise("not_sent")
    )
    states = read_states(source).select(*STATE_KEY, "state", "job")
    known = table.withColumn("stored_ms", F.unix_millis("appended")).join(states, [*STATE_KEY], "left")
    joined = known.join(sent, [*_PLACE], "left").join(seen, [*_PLACE], "left")
    return joined.select(
        *table.columns,
        outcome.alias("outcome"),
        F.when(sends, F.col("sent_at")).alias("sent_at"),
        F.when(sends, F.coalesce("copies", F.lit(0))).alias("copies"),
    )


def _seen(source: TopicSource, plan: ReplayPlan, lives: DataFrame) -> DataFrame:
    """Return where the messages of a plan's rows were seen beyond `DELAY.0s`."""
    # A range in the options is one of dead letters; their copies came later.
    source = source.of_clients().since(plan.since_ms)
    kinds = ("retry", "dead_letter", "quarantine")
    ours = read_kinds(
        source.spark, source.bootstrap_servers, kinds, topic_prefix=plan.topic_prefix, options=source.options
    )
    of_group = F.when(F.col("kind") == "quarantine", F.col("target")).otherwise(
        F.concat(F.lit(RETRY_PREFIX), F.col("group"))
    )
    identity = F.col("origin_message_id").alias("message_id")
    found = ours.select("kind", "replay_id", "replay_times", identity, "born", of_group.alias("real_topic"))
    if plan.target == "origin" and (topics := _targets(source, plan)):
        # There the copy is a message of its own; its headers have the identity from the plan. Topics that do not exist
        # match nothing.
        copies = typed(source.raw(pattern="|".join(map(re.escape, topics))), plan.topic_prefix, "message")
        stored = HeaderColumns(F.col("headers"))
        given = stored.text(ORIGIN_MESSAGE_ID).alias("message_id"), stored.moment(BORN_TIMESTAMP).alias("born")
        there = copies.select("kind", "replay_id", "replay_times", *given, F.col("topic").alias("real_topic"))
        found = found.unionByName(there)
    found = found.where(F.col("replay_id") == plan.plan_id).withColumn("replay_times", F.col("replay_times") - 1)
    of_rows = found.join(lives, same_message(found, lives, "replay_times"))
    return of_rows.groupBy(*_PLACE).agg(
        F.max(F.col("kind") == "dead_letter").alias("dead_again"),
        F.max(F.col("kind") == "quarantine").alias("quarantined"),
        F.max(F.col("kind").isin("retry", "message")).alias("delivered"),
    )


def _targets(source: TopicSource, plan: ReplayPlan) -> list[str]:
    """Return the topics to which schedulers may have moved copies; they refuse those of reconsume."""
    sent = records(source.spark, plan.folder).where(F.col("status") == SEND)
    topics = [row["real_topic"] for row in sent.select("real_topic").distinct().collect()]
    return [topic for topic in topics if not topic.startswith(source.names.prefix)]
