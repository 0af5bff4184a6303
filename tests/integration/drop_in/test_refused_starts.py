"""A rebalance within `consume` in which the cluster refuses to say where the retry topic starts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from reconsume.bridge.kafka.clients import DerivedConsumer
from tests.integration.drop_in.poll_loop import drop_in
from tests.integration.installation import installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

CONF = {
    "auto.offset.reset": "latest",
    "partition.assignment.strategy": "cooperative-sticky",
    "topic.metadata.refresh.interval.ms": 1_000,
}


def test_messages_of_partitions_that_did_not_move_are_returned(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused = False

    def committed(consumer: Any, *given: Any) -> Any:
        if is_refused:
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
        return Consumer.committed(consumer, *given)

    monkeypatch.setattr(DerivedConsumer, "committed", committed, raising=False)
    with installation(bootstrap_servers) as here:
        group, topic = here.name("stays"), here.topic("stays")
        retry = here.settings.names.retry(group)
        here.admin.create(retry, 1, -1, {})
        done = threading.Event()
        with ThreadPoolExecutor(1) as thread, drop_in(here, group, conf=CONF) as consumer:
            consumer.subscribe([topic])
            producing = thread.submit(produce, here.settings.client_settings(), topic, done)
            read: list[int] = []

            def step() -> list[int]:
                read.extend(int(one.value() or b"") for one in consumer.consume(500, 1.0))
                return read

            try:
                wait_until(step, "the first message")
                is_refused = True
                admin = AdminClient(here.settings.client_settings())
                admin.create_partitions([NewPartitions(retry, 2)])[retry].result(PATIENCE)
                with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
                    wait_until(lambda: step() is None, "the refusal")
            finally:
                done.set()
            last = producing.result(PATIENCE)
            wait_until(lambda: step()[-1] == last, "messages after the refusal")
            assert read == [*range(read[0], last + 1)]
            assert {one.partition for one in consumer.assignment() if one.topic == retry} == {0, 1}


def produce(settings: dict[str, Any], topic: str, done: threading.Event) -> int:
    """Produce a number about each millisecond; return the last one."""
    producer = Producer(settings | {"linger.ms": 0})
    for number in count():
        producer.produce(topic, b"%d" % number)
        producer.poll(0.001)
        if done.is_set():
            assert producer.flush(PATIENCE) == 0
            producer.close()
            return number
    raise AssertionError
