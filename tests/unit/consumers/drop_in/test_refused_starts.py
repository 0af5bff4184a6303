"""A cluster that refuses to say where the retry topic starts, on a Kafka in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers import Consumer
from reconsume.testing import InMemoryKafka
from reconsume.testing.consumer import InMemoryConsumer

WAYS = {"poll": lambda consumer: [consumer.poll(0)], "consume": lambda consumer: consumer.consume(100, 0)}

Read = Callable[[Consumer], list[KafkaMessage]]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryKafka]:
    known = InMemoryConsumer.committed
    refusals = [KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]

    def refused_once(*given: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return known(*given)

    with InMemoryKafka() as kafka:
        kafka.create_topic("flights")
        monkeypatch.setattr(InMemoryConsumer, "committed", refused_once)
        yield kafka


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_refusal_drops_no_message_and_is_raised_once_by_the_next_call(
    kafka: InMemoryKafka, read: Read, exactly_once: bool
) -> None:
    conf = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "departures", "enable.auto.commit": False}
    with Consumer(conf, exactly_once=exactly_once) as consumer:
        assigned = []
        consumer.subscribe(["flights"], on_assign=lambda _consumer, given: assigned.extend(given))
        kafka.produce("flights", b"UA1545")
        first = read(consumer)
        assert {one.topic for one in assigned} == {"flights", consumer.retry_topic}
        assert set(consumer._ownership._times_assigned) == {(one.topic, 0) for one in assigned}
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            read(consumer)
        messages = [one for one in first + read(consumer) if one is not None]
        assert [one.value() for one in messages] == [b"UA1545"]
