"""Copies of messages, such as a program gets back from its worker processes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers import Message
from reconsume.consumers.drop_in.retry_message import RetryMessage, as_polled, origin, polled_from, reconsume_times
from tests.unit.consumers.doubles import RETRY_TOPIC

USERS = [("trace", b"1"), ("none", None)]
OURS = [("RETRY_TOPIC", b"flights"), ("ORIGIN_MESSAGE_ID", b"flights/3/42"), ("RECONSUME_TIME", b"2")]

each_way = pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301
    ids=["copy", "deepcopy", "pickle"],
)


def polled(users: list[Any]) -> KafkaMessage:
    return KafkaMessage(
        topic=RETRY_TOPIC,
        partition=1,
        offset=7,
        key=b"key",
        value=b"value",
        headers=[*users, *OURS],
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, 5),
        leader_epoch=3,
    )


def parts(one: KafkaMessage) -> list[Any]:
    return [
        one.topic(),
        one.partition(),
        one.offset(),
        one.key(),
        one.value(),
        one.headers(),
        one.timestamp(),
        len(one),
    ]


@each_way
@pytest.mark.parametrize("users", [USERS, []], ids=["headers", "no headers"])
def test_a_copy_of_a_retry_is_the_same_retry(copied: Callable[[Any], Any], users: list[Any]) -> None:
    retry = RetryMessage(polled(users), RETRY_TOPIC)
    other = copied(retry)
    assert isinstance(other, RetryMessage)
    assert parts(other) == parts(retry)
    assert (reconsume_times(other), origin(other)) == (2, origin(retry))
    assert polled_from(other) == polled_from(retry)
    assert type(as_polled(other)) is KafkaMessage
    assert parts(as_polled(other)) == parts(retry.polled)


@each_way
def test_parts_that_a_program_has_replaced_are_copied_too(copied: Callable[[Any], Any]) -> None:
    retry = RetryMessage(polled(USERS), RETRY_TOPIC)
    retry.set_key({"decoded": 1})
    retry.set_value({"decoded": 2})
    retry.set_headers([("decoded", b"3")])
    assert parts(copied(copied(retry)))[3:6] == [{"decoded": 1}, {"decoded": 2}, [("decoded", b"3")]]


@each_way
def test_a_copy_of_a_listeners_message_is_the_same_message(copied: Callable[[Any], Any]) -> None:
    message = Message(polled(USERS), RETRY_TOPIC)
    for other in (copied(message), copied(copied(message))):
        assert (other.topic, other.kafka, other.origin) == ("flights", message.kafka, message.origin)
        assert (other.reconsume_times, other.headers, other.all_headers) == (2, USERS, message.all_headers)
