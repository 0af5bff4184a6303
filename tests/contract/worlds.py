"""The same installation on a real Kafka and in memory; a test that passes on both says what the double is worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from reconsume.bridge.process.settings import Settings
from reconsume.consumers import Consumer, DelayProducer, PushConsumer
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header
from reconsume.testing import InMemoryKafka
from tests.integration.installation import LEVELS, Installation, Record
from tests.support.waiting import wait_until

__all__ = ["InMemoryWorld", "RealWorld", "World"]

T = TypeVar("T")
_MOST_SECONDS = 60


class World(Protocol):
    """What a contract test may do; `until` is the only way in which time passes."""

    names: TopicNames
    client_settings: dict[str, Any]

    def name(self, name: str) -> str: ...

    def topic(self, name: str, partitions: int = 1) -> str: ...

    def produce(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int = -1,
    ) -> None: ...

    def consumer(
        self,
        group: str,
        topic: str,
        listener: Callable[..., Any],
        *,
        orderly: bool = False,
        per_key: bool = False,
        tags: str = "*",
        conf: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PushConsumer: ...

    def drop_in(self, group: str, conf: Mapping[str, Any] | None = None, **more: Any) -> Consumer: ...

    def delay_producer(self) -> DelayProducer: ...

    def read(self, topic: str) -> list[Record]: ...

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None: ...

    def until(self, condition: Callable[[], T], what: str) -> T: ...

    def now(self) -> datetime: ...


class _Settings:
    """What both make of an address and a prefix."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.names = TopicNames(prefix)
        self.client_settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        self._address = bootstrap_servers
        self._prefix = prefix
        self._closing = ExitStack()

    def consumer(
        self,
        group: str,
        topic: str,
        listener: Callable[..., Any],
        *,
        orderly: bool = False,
        per_key: bool = False,
        tags: str = "*",
        conf: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PushConsumer:
        consumer = PushConsumer(
            group,
            bootstrap_servers=self._address,
            conf={"auto.offset.reset": "earliest", "heartbeat.interval.ms": 500} | dict(conf or {}),
            topic_prefix=self._prefix,
            **more,
        ).subscribe(topic, tags)
        if orderly:
            return consumer.register_message_listener(listener, orderly=True, per_key=per_key)
        return consumer.register_message_listener(listener)

    def drop_in(self, group: str, conf: Mapping[str, Any] | None = None, **more: Any) -> Consumer:
        settings = {
            "bootstrap.servers": self._address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
        }
        return Consumer(settings | dict(conf or {}), topic_prefix=self._prefix, **more)

    def delay_producer(self) -> DelayProducer:
        return self._closing.enter_context(DelayProducer(bootstrap_servers=self._address, topic_prefix=self._prefix))

    def close(self) -> None:
        self._closing.close()


class RealWorld(_Settings):
    """An installation with a scheduler in a thread; waiting is waiting."""

    def __init__(self, here: Installation) -> None:
        super().__init__(here.settings.bootstrap_servers, here.settings.topic_prefix)
        self._here = here

    def name(self, name: str) -> str:
        return f"{self._here.settings.topic_prefix[:-1]}-{name}"

    def topic(self, name: str, partitions: int = 1) -> str:
        topic = orders(self._here.settings, name)
        self._here.admin.create(topic, partitions, -1, {})
        return topic

    def produce(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int = -1,
    ) -> None:
        self._here.produce(topic, *values, key=key, headers=headers, partition=partition)

    def read(self, topic: str) -> list[Record]:
        return self._here.read(topic)

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        return self._here.committed(group, topic, partition)

    def until(self, condition: Callable[[], T], what: str) -> T:
        return wait_until(condition, what)

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)


class InMemoryWorld(_Settings):
    """The double; waiting is letting its clock go on."""

    def __init__(self, kafka: InMemoryKafka) -> None:
        super().__init__(kafka.bootstrap_servers, "reconsume.")
        self._kafka = kafka

    def name(self, name: str) -> str:
        return name

    def topic(self, name: str, partitions: int = 1) -> str:
        self._kafka.create_topic(f"orders-{name}", partitions)
        return f"orders-{name}"

    def produce(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int = -1,
    ) -> None:
        for value in values:
            self._kafka.produce(topic, value, key=key, headers=headers, partition=partition)

    def read(self, topic: str) -> list[Record]:
        return [
            Record(
                one.key,
                one.value,
                list(one.headers),
                round(one.timestamp.timestamp() * 1000),
                one.partition,
                one.offset,
            )
            for one in self._kafka.records(topic)
        ]

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        return self._kafka.committed(group, topic, partition)

    def until(self, condition: Callable[[], T], what: str) -> T:
        self._kafka.settle()
        for _ in range(_MOST_SECONDS * 10):
            if value := condition():
                return value
            self._kafka.advance(timedelta(milliseconds=100))
        raise AssertionError(f"not within {_MOST_SECONDS} s of the fake clock: {what}")

    def now(self) -> datetime:
        return self._kafka.now


def orders(settings: Settings, name: str) -> str:
    """A topic that delayed messages may go to."""
    return f"{settings.topic_prefix[:-1]}-orders-{name}"


def in_memory() -> InMemoryKafka:
    """With the levels of the real installation."""
    return InMemoryKafka(message_delay_level=LEVELS, allowed_real_topics=["orders-.*"])


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
