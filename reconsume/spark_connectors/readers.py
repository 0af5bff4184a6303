"""Readers: the topics of reconsume as DataFrames of one schema, batch or streaming."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import of_type, texts, type_name
from reconsume.spark_connectors.names import KINDS, kind_pattern
from reconsume.spark_connectors.schema import typed
from reconsume.spark_connectors.source import DEFAULT_PREFIX, TopicSource


def read_messages(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: Iterable[str],
    *,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read records of ordinary topics; each is its own origin.

    Args:
        spark: a session with the Kafka connector, see `configure`.
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        topics: names of Kafka topics.
        streaming: whether the DataFrame is a stream.
        options: options of Spark's Kafka source, such as `startingTimestamp`, `minPartitions` or
            `kafka.security.protocol`; they override the defaults (from the beginning, `read_committed`).
    """
    topics, source = texts(topics, "topics"), TopicSource.of(spark, bootstrap_servers, options=options)
    for topic in topics:
        if source.names.is_scheduled(topic) or topic.startswith(f"{DEFAULT_PREFIX}RETRY."):
            raise IllegalSetting(
                f"topic {topic!r} is one of reconsume's own: use read_delays, read_retries, read_kinds"
            )
    return typed(source.raw(topics, streaming=streaming), DEFAULT_PREFIX, "message")


def read_retries(
    spark: SparkSession,
    bootstrap_servers: str,
    groups: Iterable[str] | None = None,
    *,
    topic_prefix: str = DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read records of `%RETRY%<group>`, by default of all groups."""
    source, topics = TopicSource.of(spark, bootstrap_servers, topic_prefix, options), None
    if groups is not None:
        topics = [source.names.retry(group) for group in texts(groups, "groups", "['departures']")]
    return typed(source.raw(topics, kind_pattern(topic_prefix, "retry"), streaming=streaming), topic_prefix)


def read_dead_letters(
    spark: SparkSession,
    bootstrap_servers: str,
    groups: Iterable[str] | None = None,
    *,
    topics: Iterable[str] | None = None,
    topic_prefix: str = DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read records of `%DLQ%<group>`, by default of all groups.

    Args:
        spark: a session with the Kafka connector.
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        groups: consumer groups.
        topics: Kafka topics to read instead, also dead-letter topics of Spring Kafka, Kafka Connect, SmallRye, Pulsar
            and Kafka's share groups.
        topic_prefix: the prefix of the installation's topics.
        streaming: whether the DataFrame is a stream.
        options: options of Spark's Kafka source; they override the defaults.

    Raises:
        IllegalSetting: both groups and topics are given.
    """
    source = TopicSource.of(spark, bootstrap_servers, topic_prefix, options)
    return dead_letters(source, groups, topics, streaming=streaming)


def dead_letters(
    source: TopicSource, groups: Iterable[str] | None, topics: Iterable[str] | None, *, streaming: bool = False
) -> DataFrame:
    """Read dead letters of a source, as `read_dead_letters`."""
    if groups is not None and topics is not None:
        raise IllegalSetting("give either groups or topics: topics are read in place of the groups' own")
    foreign = topics is not None
    if groups is not None:
        topics = [source.names.dead_letter(group) for group in texts(groups, "groups", "['departures']")]
    raw = source.raw(topics, kind_pattern(source.names.prefix, "dead_letter"), streaming=streaming)
    return typed(raw, source.names.prefix, "dead_letter", foreign=foreign)


def read_delays(
    spark: SparkSession,
    bootstrap_servers: str,
    delays_ms: Iterable[int] | None = None,
    *,
    topic_prefix: str = DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read records of the delay topics, by default of all; `durations` are in milliseconds."""
    source, topics = TopicSource.of(spark, bootstrap_servers, topic_prefix, options), None
    if delays_ms is not None and (isinstance(delays_ms, str | bytes) or not isinstance(delays_ms, Iterable)):
        raise IllegalSetting(f"delays_ms must be a list of int, such as [10_000], got {type_name(type(delays_ms))}")
    if delays_ms is not None:
        topics = [source.names.delay(of_type(delay, "each of delays_ms", int)) for delay in delays_ms]
    return typed(source.raw(topics, kind_pattern(topic_prefix, "delay"), streaming=streaming), topic_prefix)


def read_kinds(
    spark: SparkSession,
    bootstrap_servers: str,
    kinds: Iterable[str] = tuple(KINDS),
    *,
    topic_prefix: str = DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read several kinds of topics in one pass: `delay`, `retry`, `dead_letter`, `inbox`, `quarantine`."""
    wanted = texts(kinds, "kinds", "['retry']")
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        raise IllegalSetting(f"kind {unknown[0]!r} is unknown; use one of: {', '.join(KINDS)}")
    source = TopicSource.of(spark, bootstrap_servers, topic_prefix, options)
    pattern = "|".join(kind_pattern(topic_prefix, kind) for kind in wanted)
    return typed(source.raw(pattern=pattern, streaming=streaming), topic_prefix)
