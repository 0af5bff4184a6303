"""The end of a drop-in, on a Kafka in memory."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from reconsume.consumers import AIOConsumer, Consumer
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.testing import InMemoryKafka
from tests.support.waiting import wait_until


def test_a_callback_that_raises_at_the_end_leaves_no_thread_of_ours() -> None:
    def on_revoke(_consumer: Any, _partitions: Any) -> None:
        raise ValueError("the program's")

    with InMemoryKafka() as kafka:
        kafka.produce("flights", b"UA1545")
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["flights"], on_revoke=on_revoke)
        polled = consumer.poll(0)
        assert polled is not None
        with pytest.raises(ValueError, match="the program's"):
            consumer.close()
        with pytest.raises(SendBackFailed, match="the consumer is closed") as refused:
            consumer.send_message_back(polled)
        assert refused.value.failed == (0,)


@pytest.mark.parametrize("by_user", [False, True])
def test_a_message_that_nobody_got_is_not_committed_by_the_end(by_user: bool) -> None:
    """An assignment waits; by default a poll stores offsets, which the end commits."""

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)

    with InMemoryKafka() as kafka:
        kafka.produce("flights", b"UA1545")
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["flights"], **({"on_assign": on_assign} if by_user else {}))
        consumer.close()
        with Consumer(settings) as after:
            after.subscribe(["flights"])
            polled = after.poll(0)
            assert polled is not None
            assert polled.value() == b"UA1545"


def test_an_asyncio_drop_in_is_made_while_a_broker_refuses_connections() -> None:
    """Its error callback needs the event loop in which it is made."""

    async def told(_error: KafkaError) -> None:
        """Nothing to do."""

    async def make() -> None:
        for _ in range(30):
            settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": told}
            await AIOConsumer(settings).close()

    asyncio.run(make())


def followers() -> int:
    return sum(one.name == "reconsume-groups" for one in threading.enumerate())


def test_a_send_back_after_the_end_starts_no_thread() -> None:
    """A program that only assigns has needed none before."""
    with InMemoryKafka() as kafka:
        kafka.produce("flights", b"UA1545")
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("flights", 0, 0)])
        polled = consumer.poll(0)
        assert polled is not None
        before = followers()
        consumer.close()
        with pytest.raises(SendBackFailed, match="the consumer is closed"):
            consumer.send_message_back(polled)
        assert followers() == before


def test_a_consumer_that_is_dropped_without_close_leaves_no_thread_of_ours() -> None:
    """As confluent-kafka's does; a program may make another one after each error."""
    with InMemoryKafka() as kafka:
        before = followers()
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
        consumer.subscribe(["flights"])
        assert followers() == before + 1
        del consumer
        gc.collect()
        wait_until(lambda: followers() == before, "its thread has ended")
