"""States of dead letters: reads and writes of the DEAD_LETTERS topic in Spark."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.dead_letter_states import RESENT, RESOLVED, SUPERSEDED
from reconsume.spark_connectors.source import TopicSource

_KEY: Final = r"^([A-Za-z0-9._-]+)/([0-9]{1,10})/([0-9]{1,18})/(-?[0-9]{1,18})$"


STATE_KEY: Final = ("kafka_topic", "partition", "offset", "stored_ms")
"""The columns that name one dead letter, also if its topic was made again."""


def read_states(source: TopicSource, since_ms: int | None = None) -> DataFrame:
    """Return each dead letter's last state: `kafka_topic`, `partition`, `offset`, `stored_ms`, `state`, `at`, `job`.

    Reopened dead letters and malformed records are left out.

    Args:
        source: Kafka.
        since_ms: read only what was written from then on; None reads all.
    """
    topic = re.escape(source.names.dead_letter_states)
    kept = source.of_clients() if since_ms is None else source.of_clients().since(since_ms)
    # Writers use partition 0 alone, and offsets of several partitions cannot be compared.
    written = kept.raw(pattern=topic).where(F.col("partition") == 0)
    key, value = F.col("key").cast("string"), F.col("value").cast("string")
    state = F.get_json_object(value, "$.state").alias("state")
    at = F.get_json_object(value, "$.at").try_cast("long").alias("at")
    job = F.get_json_object(value, "$.job").alias("job")
    # Like `decode_state`: what is no state leaves the one before.
    legal = written.where(value.isNull() | (state.isin(RESENT, RESOLVED, SUPERSEDED) & (at >= 0)))
    found = F.max_by(F.when(value.isNotNull(), F.struct(state, at, job)), "offset")
    last = legal.groupBy(key.alias("key")).agg(found.alias("found"))

    def part(number: int) -> Column:
        return F.regexp_extract("key", _KEY, number)

    return last.where(F.col("key").rlike(_KEY) & F.col("found").isNotNull()).select(
        part(1).alias("kafka_topic"),
        part(2).try_cast("int").alias("partition"),
        part(3).cast("long").alias("offset"),
        part(4).cast("long").alias("stored_ms"),
        "found.*",
    )


def state_records(sent: DataFrame, plan_id: str, at_ms: int) -> DataFrame:
    """Return the records that mark dead letters as resent, for the only partition that `reconsume dlq` reads.

    Args:
        sent: rows of a plan.
        plan_id: the id of the plan.
        at_ms: the time.
    """
    key = F.concat_ws("/", "kafka_topic", "partition", "offset", F.unix_millis("appended"))
    state = {"state": F.lit(RESENT), "at": F.lit(at_ms), "by": F.lit("replay"), "job": F.lit(plan_id)}
    value = F.to_json(F.struct(*(column.alias(name) for name, column in state.items())))
    return sent.select(key.alias("key"), value.alias("value"), F.lit(0).alias("partition"))
