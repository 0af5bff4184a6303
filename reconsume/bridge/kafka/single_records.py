"""Writes of single records: to compacted topics, and as a probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import make_producer, produce_patiently
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.errors import translate, translated
from reconsume.bridge.process.polled_records import ClientError, PolledRecord

_SECONDS: Final = 15.0


class WrittenRecord(NamedTuple):
    """The append time of a record in milliseconds, and its offset."""

    at_ms: int
    offset: int


def write_records(cluster: Cluster, topic: str, records: Iterable[tuple[str, str | None]]) -> None:
    """Write keys and values, None to remove a key, and wait for the acknowledgements.

    All go to partition 0. By key, a topic that gets more partitions would keep the former record of a key in another
    one, and compaction never removes that.

    Raises:
        TopicNotReady: the topic does not exist.
        ReconsumeError: the brokers refuse a record, or do not answer.
    """
    found = [{"key": key, "value": value, "partition": 0} for key, value in records]
    write_at_once(cluster, topic, cluster.require(topic), found)


def write_at_once(
    cluster: Cluster, client_id: str, topic: str, records: Iterable[Mapping[str, Any]]
) -> list[WrittenRecord]:
    """Write records, wait for the acknowledgements and return them.

    Args:
        cluster: the target cluster.
        client_id: shown in the brokers' logs.
        topic: an existing topic.
        records: each as keyword arguments of `Producer.produce`.

    Raises:
        ReconsumeError: the brokers refuse a record, or do not answer.
    """
    failed: list[ClientError] = []
    stored: list[WrittenRecord] = []

    def on_delivery(error: ClientError | None, message: PolledRecord) -> None:
        if error is not None:
            failed.append(error)
        else:
            stored.append(WrittenRecord(message.timestamp()[1], message.offset() or 0))

    # Not idempotent: a second copy is harmless, and a missing right is reported as such.
    limit = {"message.timeout.ms": int(_SECONDS * 1000), "enable.idempotence": False}
    producer = make_producer(producer_settings(cluster.base, client_id) | limit)
    try:
        with translated(f"writing to {topic}"):
            for record in records:
                produce_patiently(producer, topic, on_delivery=on_delivery, **record)
            producer.flush()
    finally:
        producer.close()
    if failed:
        raise translate(failed[0], f"writing to {topic}")
    return stored
