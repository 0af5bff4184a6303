"""The producer in memory takes the headers that confluent-kafka takes, and refuses the others with its words."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.testing import InMemoryKafka

HEADERS: list[Any] = [
    None,
    {},
    {"a": b"1"},
    [("a", b"1"), ("a", None), ("b", "text")],
    (("a", b"1"),),
    iter([("a", b"1")]),
    [["a", b"1"]],
    [("a", b"1", b"2")],
    [("a", bytearray(b"1"))],
    [("a", 3)],
    "text",
]


def answer(producer: Producer, headers: Any) -> str:
    try:
        producer.produce("flights", b"UA1545", headers=headers)
    except TypeError as error:
        return str(error)
    return "taken"


@pytest.mark.parametrize("headers", HEADERS, ids=lambda one: repr(one).partition(" object at")[0])
def test_it_answers_as_the_real_one(headers: Any) -> None:
    real = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with InMemoryKafka() as kafka:
        assert answer(kafka.producer(), headers) == answer(real, headers)
    real.purge()
