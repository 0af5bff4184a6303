"""Messages of a drop-in consumer whose parts a program has replaced."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers.drop_in.retry_message import storable
from reconsume.delay_levels.errors import IllegalSetting


def polled() -> KafkaMessage:
    return KafkaMessage(topic="flights", partition=3, offset=42, key=b"key", value=b"value")


@pytest.mark.parametrize("headers", [[("attempt", 3)], [("attempt", b"3", b"4")], {"attempt": b"3"}, ["attempt"]])
def test_headers_that_kafka_cannot_store_are_refused(headers: Any) -> None:
    message = polled()
    message.set_headers(headers)
    with pytest.raises(IllegalSetting, match=r"^flights-3@42: set_headers has replaced .* polled_from\(message\)"):
        storable(message)


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_key_or_value_that_kafka_cannot_store_is_refused(name: str) -> None:
    message = polled()
    getattr(message, f"set_{name}")({"attempt": 3})
    with pytest.raises(IllegalSetting, match=rf"^flights-3@42: set_{name} has replaced .* polled_from\(message\)"):
        storable(message)


def test_headers_that_kafka_can_store_may_be_replaced() -> None:
    message = polled()
    message.set_headers([("attempt", b"3"), ("note", "a text"), ("nothing", None)])
    assert storable(message) is message
