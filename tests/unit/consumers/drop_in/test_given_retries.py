"""Which offsets of retries a drop-in consumer remembers."""

from __future__ import annotations

from contextlib import nullcontext

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


@pytest.mark.parametrize(("position", "is_refused"), [(4, True), (5, False), (9, False), (-1_001, False)])
def test_a_seek_to_the_offset_of_a_retry_is_refused_if_it_skips_messages(position: int, *, is_refused: bool) -> None:
    """Before the first message of a partition, a program restores the offset that it has stored."""
    retries = GivenRetries(RETRY_TOPIC)
    retries.add(retry_of("flights", 5))
    with pytest.raises(IllegalSetting, match="belongs to a retry") if is_refused else nullcontext():
        retries.check_seek(TopicPartition("flights", 0, 5), lambda _: [TopicPartition("flights", 0, position)])
    retries.check_seek(TopicPartition("flights", 0, 6), at_the_start)
