"""An exception of a callback leaves `poll` as what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from reconsume.bridge.kafka.clients import make_consumer, make_producer
from reconsume.consumers.drop_in.consumer import Consumer
from tests.support.waiting import wait_until

NOBODY = "127.0.0.1:1"


def of_python(_error: Any) -> None:
    raise ValueError("of the program")


def of_c(_error: Any) -> None:
    len(5)  # type: ignore[arg-type]


def of_librdkafka(_error: Any) -> None:
    Producer({"no.such.setting": "1"})


@pytest.mark.parametrize("make", [make_consumer, make_producer, Consumer])
@pytest.mark.parametrize(
    ("callback", "error", "told"),
    [
        (of_python, ValueError, "of the program"),
        (of_c, TypeError, "has no len"),
        (of_librdkafka, KafkaException, "No such configuration property"),
    ],
)
def test_an_exception_of_a_callback_can_be_caught(
    make: Callable[[dict[str, Any]], Any], callback: Callable[[Any], None], error: type[Exception], told: str
) -> None:
    calls = []

    def first_time(told_of: Any) -> None:
        calls.append(told_of)
        if len(calls) == 1:
            callback(told_of)

    settings = {"bootstrap.servers": NOBODY, "error_cb": first_time, "log_level": 0}
    client = make(settings if make is make_producer else settings | {"group.id": "departures"})
    with pytest.raises(error, match=told):
        wait_until(lambda: client.poll(0.1), "the callback raises")
    if make is not make_producer:
        client.close()
