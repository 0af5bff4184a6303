"""Read one record again by where it stands, as RocketMQ's broker does for a send-back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.kafka.patient_client import UNANSWERED
from reconsume.delay_levels.errors import RecordNotFound
from reconsume.delay_levels.wire.send_back_copy import Position

__all__ = ["read_again"]

_SECONDS: Final = 15.0
_SLICE_SECONDS: Final = 0.5


def read_again(base: Mapping[str, Any], position: Position, group: str, client_id: str) -> Message:
    """The committed record at this position (RocketMQ: BR-09).

    Args:
        base: librdkafka's settings for any client.
        position: of the record.
        group: whose right is used; nothing is joined or committed.
        client_id: shown in the brokers' logs.

    Raises:
        RecordNotFound: there is none: no longer kept, not there yet, or no record but a transaction's marker.
        KafkaNotReachable: no broker answered within 15 s.
        KafkaRefused: rights are missing.
        TopicNotReady: there is no such topic.
    """
    alone = {"group.id": group, "auto.offset.reset": "error", "enable.partition.eof": True}
    conf = consumer_settings(base, client_id) | alone
    consumer = make_consumer(conf)
    where = TopicPartition(position.topic, position.partition, position.offset)
    try:
        first, end = consumer.get_watermark_offsets(where, _SECONDS)
        if not first <= position.offset < end:
            raise _no_record(position, f"the partition holds {first} to {end - 1}" if end > first else "it is empty")
        consumer.assign([where])
        found = _poll(consumer)
        if found is None:
            raise _no_record(position, f"nothing came within {_SECONDS:.0f} s")
        if (error := found.error()) is not None:
            raise _no_record(position, error.str())
        if found.offset() != position.offset:
            raise _no_record(position, f"the next one is at {found.offset()}")
    except KafkaException as error:
        if error.args[0].code() not in UNANSWERED:
            raise translate(error, f"reading {position} again") from error
        consumer.poll(0)
        raise conf["error_cb"].no_answer(error.args[0], f"reading {position} again") from error
    finally:
        consumer.close()
    return found


def _poll(consumer: Consumer) -> Message | None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        found = consumer.poll(_SLICE_SECONDS)
        if found is not None:
            return found
    return None


def _no_record(position: Position, why: str) -> RecordNotFound:
    return RecordNotFound(f"look message by offset failed: there is no record at {position} ({why})")
