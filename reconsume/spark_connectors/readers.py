"""Readers: the topics of reconsume as DataFrames of one schema, batch or streaming."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types, texts, type_name, whole_number
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.connector import check_session
from reconsume.spark_connectors.names import KINDS, kind_pattern
from reconsume.spark_connectors.schema import typed

__all__ = [
    "check_source",
    "create_views",
    "read_dead_letters",
    "read_delays",
    "read_kinds",
    "read_messages",
    "read_raw",
    "read_retries",
]

_STARTS: Final = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_DEFAULT_PREFIX: Final = "reconsume."


def read_messages(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: Iterable[str],
    *,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Records of ordinary topics: each one is its own origin.

    Args:
        spark: a session with the Kafka connector, see `configure`.
        bootstrap_servers: host:port of Kafka, several with commas.
        topics: names as they are in Kafka.
        streaming: whether the DataFrame is a stream.
        options: of Spark's Kafka source, such as `startingTimestamp`, `minPartitions` or `kafka.security.protocol`;
            they win over ours (from the beginning, `read_committed`).
    """
    topics = texts(topics, "topics")
    names = TopicNames(_DEFAULT_PREFIX)
    for topic in topics:
        if names.is_scheduled(topic) or topic.startswith(f"{_DEFAULT_PREFIX}RETRY."):
            raise IllegalSetting(
                f"topic {topic!r} is one of reconsume's own: use read_delays, read_retries, read_kinds"
            )
    raw = read_raw(spark, bootstrap_servers, topics=topics, streaming=streaming, options=options)
    return typed(raw, _DEFAULT_PREFIX, "message")


def read_retries(
    spark: SparkSession,
    bootstrap_servers: str,
    groups: Iterable[str] | None = None,
    *,
    topic_prefix: str = _DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Records of `%RETRY%<group>`: of these groups, by default of all that there are."""
    names = TopicNames(topic_prefix)
    topics = None if groups is None else [names.retry(group) for group in texts(groups, "groups", "['departures']")]
    pattern = kind_pattern(topic_prefix, "retry")
    raw = read_raw(spark, bootstrap_servers, topics=topics, pattern=pattern, streaming=streaming, options=options)
    return typed(raw, topic_prefix)


def read_dead_letters(
    spark: SparkSession,
    bootstrap_servers: str,
    groups: Iterable[str] | None = None,
    *,
    topics: Iterable[str] | None = None,
    topic_prefix: str = _DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Records of `%DLQ%<group>`: of these groups, by default of all that there are.

    Args:
        spark: a session with the Kafka connector.
        bootstrap_servers: host:port of Kafka.
        groups: consumer groups.
        topics: Kafka topics to read in their place, also the dead-letter topics of Spring Kafka, Kafka Connect,
            SmallRye, Pulsar and Kafka's share groups.
        topic_prefix: of the installation.
        streaming: whether the DataFrame is a stream.
        options: of Spark's Kafka source; they win over ours.

    Raises:
        IllegalSetting: both groups and topics are given.
    """
    if groups is not None and topics is not None:
        raise IllegalSetting("give either groups or topics: topics are read in place of the groups' own")
    names, foreign = TopicNames(topic_prefix), topics is not None
    if groups is not None:
        topics = [names.dead_letter(group) for group in texts(groups, "groups", "['departures']")]
    pattern = kind_pattern(topic_prefix, "dead_letter")
    raw = read_raw(spark, bootstrap_servers, topics=topics, pattern=pattern, streaming=streaming, options=options)
    return typed(raw, topic_prefix, "dead_letter", foreign=foreign)


def read_delays(
    spark: SparkSession,
    bootstrap_servers: str,
    delays_ms: Iterable[int] | None = None,
    *,
    topic_prefix: str = _DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Records of the delay topics: of these durations in milliseconds, by default of all that there are."""
    names = TopicNames(topic_prefix)
    if delays_ms is not None and (isinstance(delays_ms, str | bytes) or not isinstance(delays_ms, Iterable)):
        raise IllegalSetting(f"delays_ms must be a list of int, such as [10_000], got {type_name(type(delays_ms))}")
    topics = None
    if delays_ms is not None:
        topics = [names.delay(whole_number(delay, "each of delays_ms")) for delay in delays_ms]
    pattern = kind_pattern(topic_prefix, "delay")
    raw = read_raw(spark, bootstrap_servers, topics=topics, pattern=pattern, streaming=streaming, options=options)
    return typed(raw, topic_prefix)


def read_kinds(
    spark: SparkSession,
    bootstrap_servers: str,
    kinds: Iterable[str] = tuple(KINDS),
    *,
    topic_prefix: str = _DEFAULT_PREFIX,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Records of several kinds of our topics in one pass: `delay`, `retry`, `dead_letter`, `inbox`, `quarantine`."""
    wanted = texts(kinds, "kinds", "['retry']")
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        raise IllegalSetting(f"kind {unknown[0]!r} is unknown; there are: {', '.join(KINDS)}")
    pattern = "|".join(kind_pattern(topic_prefix, kind) for kind in wanted)
    raw = read_raw(spark, bootstrap_servers, pattern=pattern, streaming=streaming, options=options)
    return typed(raw, topic_prefix)


def read_raw(
    spark: SparkSession,
    bootstrap_servers: str,
    *,
    topics: Iterable[str] | None = None,
    pattern: str | None = None,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Spark's own columns of Kafka: these topics or, without them, all that match the Java regular expression.

    Raises:
        IllegalSetting: no topic, or one that Kafka cannot have.
    """
    check_source(spark, bootstrap_servers, options)
    settings = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    given = dict(options or {})
    if not any(name.lower() in _STARTS for name in given):
        settings["startingOffsets"] = "earliest"
    if topics is not None:
        settings["subscribe"] = ",".join(_checked(topics))
    else:
        settings["subscribePattern"] = pattern or ""
    source = spark.readStream if streaming else spark.read
    return source.format("kafka").options(**settings | given).load()


def create_views(
    spark: SparkSession,
    bootstrap_servers: str,
    *,
    topic_prefix: str = _DEFAULT_PREFIX,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """Temporary views for SQL: `reconsume_delays`, `reconsume_retries`, `reconsume_dead_letters`.

    Each query reads the topics as they are then.

    Returns:
        the names of the views.
    """
    frames = {
        "reconsume_delays": read_delays(spark, bootstrap_servers, topic_prefix=topic_prefix, options=options),
        "reconsume_retries": read_retries(spark, bootstrap_servers, topic_prefix=topic_prefix, options=options),
        "reconsume_dead_letters": read_dead_letters(
            spark, bootstrap_servers, topic_prefix=topic_prefix, options=options
        ),
    }
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return list(frames)


def check_source(spark: object, bootstrap_servers: object, options: object) -> None:
    """Check what all readers take; raises `IllegalSetting`."""
    check_session(spark)
    check_types(locals(), bootstrap_servers=str, options=(Mapping, NoneType))


def _checked(topics: Iterable[str]) -> list[str]:
    found = texts(topics, "topics")
    if not found:
        raise IllegalSetting("no topic is given; name at least one")
    for topic in found:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic, re.ASCII):
            raise IllegalSetting(f"topic {topic!r} is illegal in Kafka; use letters, digits, '.', '_' and '-'")
    return found
