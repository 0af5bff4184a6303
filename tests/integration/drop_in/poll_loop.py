"""A drop-in consumer of an installation, and a poll loop that remembers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Message

from reconsume.consumers import Consumer
from tests.integration.installation import Installation
from tests.support.waiting import wait_until

__all__ = ["Reading", "drop_in"]


def drop_in(here: Installation, group: str, *, conf: Mapping[str, Any] | None = None, **more: Any) -> Consumer:
    """A consumer that reads from the beginning."""
    settings = here.settings.client_settings() | {"group.id": group, "auto.offset.reset": "earliest"}
    if "group.protocol" not in (conf or {}):
        settings |= {"heartbeat.interval.ms": 500}
    return Consumer(settings | dict(conf or {}), topic_prefix=here.settings.topic_prefix, **more)


class Reading:
    """Reads with `poll` or `consume`; errors are kept apart."""

    def __init__(self, consumer: Consumer, way: str = "poll") -> None:
        self._consumer = consumer
        self._way = way
        self._taken = 0
        self.messages: list[Message] = []
        self.errors: list[KafkaError] = []

    @property
    def values(self) -> list[bytes | None]:
        return [message.value() for message in self.messages]

    def step(self) -> None:
        if self._way == "consume":
            found = self._consumer.consume(10, 0.1)
        else:
            one = self._consumer.poll(0.1)
            found = [] if one is None else [one]
        for message in found:
            error = message.error()
            if error is None:
                self.messages.append(message)
            else:
                self.errors.append(error)

    def failed(self) -> bool:
        """Read on; whether there was an error by now."""
        self.step()
        return bool(self.errors)

    def until(self, count: int) -> list[Message]:
        """The next so many messages."""

        def enough() -> bool:
            self.step()
            return len(self.messages) >= self._taken + count

        wait_until(enough, f"{count} messages; {self.errors}")
        taken = self.messages[self._taken : self._taken + count]
        self._taken += count
        return taken

    def until_value(self, value: bytes, once_more: Callable[[], None]) -> None:
        """Until this value was read; it is produced again and again."""

        def found() -> bool:
            once_more()
            self.step()
            return value in self.values

        wait_until(found, f"{value!r}")
        self._taken = len(self.messages)
