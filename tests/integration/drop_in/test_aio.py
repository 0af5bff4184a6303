"""The asyncio drop-in on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import Message, TopicPartition

from reconsume.consumers import AIOConsumer, polled_from, reconsume_times
from tests.integration.installation import Installation, installation
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def conf(here: Installation, group: str, **more: Any) -> dict[str, Any]:
    return here.settings.client_settings() | {"group.id": group, "enable.auto.commit": False} | more


async def until(consumer: AIOConsumer, count: int, way: str) -> list[Message]:
    """The next so many messages."""
    found: list[Message] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            if way == "consume":
                read = await consumer.consume(count - len(found), 0.1)
            else:
                one = await consumer.poll(0.1)
                read = [] if one is None else [one]
            found += [message for message in read if message.error() is None]
    return found


@pytest.mark.parametrize("way", ["poll", "consume"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_messages_that_were_sent_back_come_again(here: Installation, way: str, exactly_once: bool) -> None:
    name = f"aio-{way}-{exactly_once}"
    group, topic = here.name(name), here.topic(name)
    here.produce(topic, b"one", b"two")
    assigned: list[str] = []

    async def on_assign(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
        assigned.extend(one.topic for one in partitions)
        for one in partitions:
            one.offset = confluent_kafka.OFFSET_BEGINNING if one.topic == topic else one.offset
        await consumer.assign(partitions)

    async def run() -> None:
        settings = conf(here, group, **{"auto.offset.reset": "latest"})
        more: dict[str, Any] = {"topic_prefix": here.settings.topic_prefix, "exactly_once": exactly_once}
        async with AIOConsumer(settings, **more) as consumer:
            assert isinstance(consumer, confluent_kafka.aio.AIOConsumer)
            await consumer.subscribe([topic], on_assign=on_assign)
            first = await until(consumer, 2, way)
            await consumer.send_message_back(first[0], cause="late")
            await consumer.send_message_back(first, ack_index=0)
            again = await until(consumer, 2, way)
            assert [(one.topic(), one.value(), reconsume_times(one)) for one in again] == [
                (topic, b"one", 1),
                (topic, b"two", 1),
            ]
            assert {polled_from(one).topic for one in again} == {consumer.retry_topic}
            await consumer.commit(message=first[1], asynchronous=False)
            await consumer.commit(message=again[1], asynchronous=False)

    asyncio.run(run())
    assert set(assigned) == {topic, here.settings.names.retry(group)}
    assert here.committed(group, topic) == 2
    assert here.committed(group, here.settings.names.retry(group)) == polled_offset_after(here, group)


def polled_offset_after(here: Installation, group: str) -> int:
    """The offset behind the second retry; between them may be the marker of a transaction."""
    end = here.admin.end_offsets([(here.settings.names.retry(group), 0)])
    return next(iter(end.values())) - 1


def test_several_tasks_send_back_at_once_while_another_one_polls(here: Installation) -> None:
    group, topic = here.name("tasks"), here.topic("tasks")
    here.produce(topic, *(b"%d" % number for number in range(50)))

    async def run() -> list[Message]:
        settings = conf(here, group, **{"auto.offset.reset": "earliest"})
        async with AIOConsumer(settings, topic_prefix=here.settings.topic_prefix) as consumer:
            await consumer.subscribe([topic])
            first = await until(consumer, 50, "consume")
            async with asyncio.TaskGroup() as group_:
                again = group_.create_task(until(consumer, 50, "poll"))
                for message in first:
                    group_.create_task(consumer.send_message_back(message))
            return again.result()

    again = asyncio.run(run())
    assert {reconsume_times(message) for message in again} == {1}
    assert sorted(int(message.value() or b"") for message in again) == list(range(50))


def test_a_cause_that_is_not_worth_a_retry_makes_a_dead_letter(here: Installation) -> None:
    group, topic = here.name("hopeless"), here.topic("hopeless")
    here.produce(topic, b"no time", b"refused")

    async def run() -> None:
        settings = conf(here, group, **{"auto.offset.reset": "earliest"})
        more: dict[str, Any] = {"topic_prefix": here.settings.topic_prefix, "dead_letter_on": (ValueError,)}
        async with AIOConsumer(settings, **more) as consumer:
            await consumer.subscribe([topic])
            first, second = await until(consumer, 2, "poll")
            await consumer.send_message_back(first, cause=UnicodeError("no dep_time"))
            await consumer.send_message_back(second, cause=ConnectionError("refused"))
            [again] = await until(consumer, 1, "poll")
            assert again.value() == b"refused"

    asyncio.run(run())
    [letter] = wait_until(lambda: here.dead_letters(group), "the dead letter")
    assert (letter.value, letter["__dlq.errors.exception.class"]) == (b"no time", "builtins.UnicodeError")
