"""The records that take part in retries, as narrow rows: only the fields for pairing them, without values."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.dead_letter_states import RESOLVED
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.delay_levels.wire.properties import ORIGIN_MESSAGE_ID, REAL_TOPIC, TIMER_DELIVER_MS
from reconsume.delay_levels.wire.quarantine import QUARANTINE_ORIGIN, QUARANTINE_RELEASED, QUARANTINE_RESOLVED
from reconsume.spark_connectors.headers import HeaderColumns
from reconsume.spark_connectors.names import KINDS, group_of_name, kind_pattern, place_of
from reconsume.spark_connectors.schema import typed
from reconsume.spark_connectors.session import rows_to_read, tasks_of
from reconsume.spark_connectors.source import TopicSource

IDENTITY: Final = ("group", "origin_message_id", "replay_times", "attempt")
"""The identity of an attempt. A replay restarts the count, so its number is part of it."""

_CAUSE_LENGTH: Final = 200
PRODUCERS_TIME: Final = 0
"""Kafka's number for `CreateTime`: the time is from the clock of a producer, or of a mirrored cluster."""


def read_records(source: TopicSource) -> DataFrame:
    """Read all send-backs and deliveries, one row for each record.

    Columns: `IDENTITY`; `side` (`inbox`, `sent`, `arrived`); place and time; `due`, `level`, `delay_ms`; `dead`
    (for the dead-letter topic), `kind`, `astray` (on another topic than it names); `damage`, the names of malformed
    headers; `stamp`, equal for all copies of a message; `released`, null; `by_producer`, whether `appended` is
    from the producer's clock. Delayed messages are left out, because they are not send-backs.

    A mark that closes a quarantined record is a row of the kind `released`: its `origin_message_id` is the position
    of that record, its `cause` the position that it went to, or `RESOLVED`.
    """
    in_quarantine, headers = F.col("topic") == source.names.quarantine, HeaderColumns(F.col("headers"))
    # As in `wire.quarantine.mark_of`: a record that was quarantined has more headers than a mark.
    is_mark = in_quarantine & (F.size("headers") == 1)
    resolved, went_to = headers.not_negative(QUARANTINE_RESOLVED), F.make_valid_utf8(F.col("value").cast("string"))
    # Computed first, or key, value and all headers would be copied from step to step. For records that are not in the
    # quarantine, which are nearly all, the last three are not computed.
    early = {
        "stamp": F.xxhash64("key", "value"),
        "source": F.when(in_quarantine, headers.text(QUARANTINE_ORIGIN)),
        "mark": F.when(is_mark, F.coalesce(headers.not_negative(QUARANTINE_RELEASED), resolved)),
        "went_to": F.when(is_mark, F.when(resolved.isNotNull(), F.lit(RESOLVED)).otherwise(went_to)),
    }
    frame = typed(
        source.raw(pattern=_pattern(source)).withColumns(early), source.names.prefix, more=("timestampType", *early)
    )
    upstream = F.col("kind").isin("delay", "inbox")
    # Not a higher-order function: Spark would interpret it and all its inputs.
    damage = F.concat_ws(", ", F.array_remove("malformed", TIMER_DELIVER_MS))
    target = F.col("target")
    # A record for an ordinary topic is a delayed message.
    goes_back = target.startswith(RETRY_PREFIX) | target.startswith(DLQ_PREFIX) | _is_malformed(REAL_TOPIC)
    ours = ~upstream | target.isNull() | goes_back
    return frame.where(ours).withColumn("damage", damage).select(*_columns(source.names.prefix))


def records_to_read(source: TopicSource) -> int | None:
    """Return about how many records `read_records` will read; None if Spark does not tell."""
    whole = source.with_options(minPartitions="1").raw(pattern=_pattern(source))
    return rows_to_read(source.raw(pattern=_pattern(source)), tasks_of(whole) or 0)


def _pattern(source: TopicSource) -> str:
    return "|".join(kind_pattern(source.names.prefix, kind) for kind in KINDS)


def _nowhere() -> Column:
    """Return whether a record has no REAL_TOPIC, so that its target is unknown."""
    return (F.col("kind") == "delay") & F.col("target").isNull() & (F.col("damage") == "")


def _is_malformed(name: str) -> Column:
    return F.array_contains("malformed", name)


def _columns(topic_prefix: str) -> list[Column]:
    kind = F.col("kind")
    inbox = kind == "inbox"
    taken_in = inbox | ((kind == "quarantine") & F.col("source").startswith(topic_prefix + "SEND_BACK/"))
    # A record without an identity stays alone, and is paired by its contents.
    nameless = F.col("attempt").isNull() | _is_malformed(ORIGIN_MESSAGE_ID)
    place = F.coalesce("source", place_of("kafka_topic", "partition", "offset"))
    origin = F.when(nameless, place).otherwise(F.coalesce("origin_message_id", place))
    is_mark = F.col("mark").isNotNull()
    cause = F.substring("cause", 1, _CAUSE_LENGTH)
    return [
        F.col("group"),
        F.when(is_mark, place_of("kafka_topic", "partition", "mark")).otherwise(origin).alias("origin_message_id"),
        F.coalesce("replay_times", F.lit(0)).alias("replay_times"),
        # The inbox holds the count before the rule is applied; ANSI mode would raise an error beyond the largest count.
        F.try_add("attempt", F.when(taken_in, 1).otherwise(0)).alias("attempt"),
        F.when(inbox, "inbox").when(kind == "delay", "sent").otherwise("arrived").alias("side"),
        F.when(is_mark, "released").otherwise(kind).alias("kind"),
        F.col("kafka_topic"),
        F.col("partition"),
        F.col("offset"),
        F.col("appended"),
        F.col("due"),
        F.col("level"),
        F.col("delay_ms"),
        F.when(kind == "delay", F.col("target").startswith(DLQ_PREFIX)).otherwise(kind == "dead_letter").alias("dead"),
        _astray().alias("astray"),
        F.col("replay_id").isNotNull().alias("replayed"),
        F.when(_nowhere(), REAL_TOPIC).when(F.col("damage") != "", F.col("damage")).alias("damage"),
        F.col("stamp"),
        F.col("deliveries"),
        F.when(is_mark, F.col("went_to")).otherwise(cause).alias("cause"),
        F.lit(None).cast("string").alias("released"),
        (F.col("timestampType") == PRODUCERS_TIME).alias("by_producer"),
    ]


def _astray() -> Column:
    """Return whether a delivery names another topic than its own; unknown without REAL_TOPIC."""
    kind, target = F.col("kind"), F.col("target")
    elsewhere = (group_of_name(target) != F.col("group")) | (target.startswith(DLQ_PREFIX) != (kind == "dead_letter"))
    return F.coalesce(kind.isin("retry", "dead_letter") & elsewhere, F.lit(False))
