"""The source of readers: session, brokers, installation, and options of Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Final, Self

from pyspark.sql import DataFrame, SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types, texts
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.session import (
    RECORDS_OF_A_TASK,
    check_session,
    cores_of,
    newer_reader,
    shuffle_partitions,
    tasks_of,
)

DEFAULT_PREFIX: Final = "reconsume."
FETCH_WAIT_MS: Final = "10"
"""At the end of a partition Spark asks for its offsets behind a request for more records, which Kafka answers only
after this time, by default 500 ms. Reading 100 partitions with 4 tasks at once would take 12 s longer."""
_SPLITS: Final = ("minpartitions", "maxrecordsperpartition")
_STARTS: Final = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_OF_CLIENTS: Final = ("kafka.", "failondataloss", "groupidprefix")
"""The beginnings of options that hold for every topic, not only for a range of records."""


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A source; users' options override the defaults (from the beginning, `read_committed`, short waits)."""

    spark: SparkSession
    bootstrap_servers: str
    names: TopicNames
    options: Mapping[str, str]

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        bootstrap_servers: str,
        topic_prefix: str = DEFAULT_PREFIX,
        options: Mapping[str, str] | None = None,
    ) -> Self:
        """Check the arguments of a reader; raises `IllegalSetting`."""
        check_session(spark)
        check_types(locals(), bootstrap_servers=str, options=(Mapping, NoneType))
        return cls(spark, bootstrap_servers, TopicNames(topic_prefix), dict(options or {}))

    def with_options(self, **more: str) -> Self:
        """Return the source with further options, which override existing ones."""
        return replace(self, options={**self.options, **more})

    def since(self, at_ms: int) -> Self:
        """Return the source from that moment on."""
        at = str(max(0, at_ms))
        return self.with_options(startingTimestamp=at, startingOffsetsByTimestampStrategy="latest")

    def of_clients(self) -> Self:
        """Return the source with only the options that hold for every topic, to read whole topics."""
        kept = {name: value for name, value in self.options.items() if name.lower().startswith(_OF_CLIENTS)}
        return replace(self, options=kept)

    def raw(self, topics: Iterable[str] | None = None, pattern: str = "", *, streaming: bool = False) -> DataFrame:
        """Return Spark's own Kafka columns for these topics, or for all that match the Java regular expression.

        Raises:
            IllegalSetting: no topic, or an illegal name.
        """
        settings = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.wait.ms": FETCH_WAIT_MS,
        }
        if not any(name.lower() in _STARTS for name in self.options):
            settings["startingOffsets"] = "earliest"
        if topics is not None:
            settings["subscribe"] = ",".join(_checked(topics))
        else:
            # Spark takes every topic in which it finds the pattern.
            settings["subscribePattern"] = f"^(?:{pattern})$"
        source = self.spark.readStream if streaming else self.spark.read
        settings |= dict(self.options)
        with newer_reader(self.spark):
            frame = source.format("kafka").options(**settings).load()
            if not (splits := self._splits(None if streaming else frame)):
                return frame
            return source.format("kafka").options(**splits | settings).load()

    def _splits(self, frame: DataFrame | None) -> dict[str, str]:
        """Return options that split partitions into tasks: otherwise one busy partition would be one task.

        Spark looks up the ranges of partitions, and splits them by size, only if more tasks than partitions are
        requested. Spark Connect reveals neither partitions nor cores; there the number of shuffle partitions decides
        how many tasks suit the cluster.

        Args:
            frame: the frame as read without splits; None for a stream, which knows its offsets.
        """
        if any(name.lower() in _SPLITS for name in self.options):
            return {}
        by_size = {"maxRecordsPerPartition": str(RECORDS_OF_A_TASK)}
        if frame is None:
            return by_size
        cores, partitions = cores_of(self.spark), tasks_of(frame)
        if cores is None:
            return by_size | {"minPartitions": str(shuffle_partitions(self.spark))}
        if not partitions:
            return {}
        return by_size | {"minPartitions": str(max(cores, partitions + 1))}


def _checked(topics: Iterable[str]) -> list[str]:
    found = texts(topics, "topics")
    if not found:
        raise IllegalSetting("no topic is given; name at least one")
    for topic in found:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic, re.ASCII):
            raise IllegalSetting(f"topic {topic!r} is illegal in Kafka; use letters, digits, '.', '_' and '-'")
    return found
