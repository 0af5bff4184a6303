"""Writes of single records: to compacted topics, and as a probe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import make_producer, store
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.errors import translated

_SECONDS: Final = 15.0
_REPORT_SECONDS: Final = 5.0
"""By then librdkafka has reported a record that was not acknowledged in time; it looks for them once a second."""


def write_records(cluster: Cluster, topic: str, records: Iterable[tuple[str, str | None]]) -> None:
    """Write keys and values, None to remove a key, and wait for the acknowledgements.

    All go to partition 0. By key, a topic that gets more partitions would keep the former record of a key in another
    one, and compaction never removes that.

    Raises:
        TopicNotReady: the topic does not exist.
        ReconsumeError: the brokers refuse a record, or do not answer.
    """
    write_at_once(cluster, topic, cluster.require(topic), [(value, key, 0, ()) for key, value in records])


def write_at_once(
    cluster: Cluster, client_id: str, topic: str, records: Iterable[tuple[Any, ...]]
) -> list[tuple[str, int, int, int]]:
    """Write records, wait for the acknowledgements and return what `store` returns.

    Args:
        cluster: the target cluster.
        client_id: shown in the brokers' logs.
        topic: an existing topic.
        records: value, key, partition and headers of each.

    Raises:
        ReconsumeError: the brokers refuse a record, or do not answer.
    """
    # Not idempotent: a second copy is harmless, and a missing right is reported as such.
    limit = {"message.timeout.ms": int(_SECONDS * 1000), "enable.idempotence": False}
    producer = make_producer(producer_settings(cluster.base, client_id) | limit)
    try:
        with translated(f"writing to {topic}"):
            return store(producer, [(topic, *one) for one in records], _SECONDS + _REPORT_SECONDS)
    finally:
        producer.close()
