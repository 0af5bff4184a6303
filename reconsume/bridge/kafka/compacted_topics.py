"""Write single records to compacted topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import make_producer
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import TopicNotReady

__all__ = ["write_records"]

_SECONDS: Final = 15.0


def write_records(settings: Settings, topic: str, records: Iterable[tuple[str, str | None]]) -> None:
    """Write keys with their values, or with None to remove them, and wait until they are acknowledged.

    Raises:
        TopicNotReady: the topic does not exist.
        ReconsumeError: the brokers refuse a record, or do not answer.
    """
    if topic not in KafkaAdmin(settings.client_settings()).partitions([topic]):
        raise TopicNotReady(f"topic {topic} does not exist; make it: reconsume topics apply")
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    # Not idempotent: a second copy says the same, and a missing right is reported as such.
    limit = {"message.timeout.ms": int(_SECONDS * 1000), "enable.idempotence": False}
    producer = make_producer(producer_settings(settings.client_settings(), topic) | limit)
    try:
        for key, value in records:
            producer.produce(topic, key=key, value=value, on_delivery=on_delivery)
        producer.flush()
    except KafkaException as error:
        raise translate(error, f"writing to {topic}") from error
    finally:
        producer.close()
    if failed:
        raise translate(failed[0], f"writing to {topic}")
