"""Which offsets of retries a drop-in consumer remembers."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from reconsume.consumers.drop_in.retry_message import GivenRetries, RetryMessage
from reconsume.delay_levels.errors import IllegalSetting
from tests.unit.consumers.doubles import RETRY_TOPIC, message_at


def retry_of(topic: str, offset: int) -> RetryMessage:
    headers = [("RETRY_TOPIC", topic.encode()), ("ORIGIN_MESSAGE_ID", f"{topic}/0/7".encode())]
    return RetryMessage(message_at(offset, topic=RETRY_TOPIC, headers=headers)._polled, RETRY_TOPIC)  # type: ignore[arg-type]


def at_the_start(partitions: list[TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition, 0) for one in partitions]


def test_origin_topics_that_clients_invent_do_not_fill_the_memory() -> None:
    retries = GivenRetries(RETRY_TOPIC)
    for number in range(3_000):
        retries.add(retry_of(f"invented-{number}", number))
    assert len(retries._offsets) == 1_000
    with pytest.raises(IllegalSetting, match="belongs to a retry"):
        retries.check([TopicPartition("invented-2999", 0, 3_000)], at_the_start)
