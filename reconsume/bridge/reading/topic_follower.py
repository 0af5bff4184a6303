"""Reads topics to their ends, and then follows them."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.errors import is_end, translated
from reconsume.bridge.kafka.group_consumer import BEGINNING, GroupConsumer
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.process.polled_records import PolledRecord, place_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import ReconsumeError

logger = SafeLogger(__name__)

_TOGETHER: Final = 1_000


class TailReader:
    """Reads partitions without an end. For one thread.

    Args:
        base: librdkafka settings that every client uses.
        client_id: shown in the brokers' logs.
        group: a group that this client has rights to; not joined, but librdkafka looks up its coordinator.

    Attributes:
        reached: the next offset by partition, after the first record or the end of the partition was read.
        unread: the partitions that were not read to their end yet.
        went_back: whether the offsets of a partition went back, because its topic was created again or lost records.
    """

    def __init__(self, base: Mapping[str, Any], client_id: str, group: str) -> None:
        alone = {
            "group.id": group,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "isolation.level": "read_committed",
            # Clients choose the size of their records.
            "queued.max.messages.kbytes": 4_096,
        }
        self._connections = Connections(consumer_settings(base, client_id) | alone)
        self._consumer = GroupConsumer(self._connections.settings)
        self._followed: set[Partition] = set()
        self.reached: dict[Partition, int] = {}
        self.unread: set[Partition] = set()
        self.went_back = False

    def follow(self, starts: Mapping[Partition, int | None]) -> None:
        """Read these partitions too, from these offsets; None is the beginning."""
        self.unread.update(starts)
        self._followed.update(starts)
        self._consumer.start({where: BEGINNING if start is None else start for where, start in starts.items()})

    def leave(self, topic: str) -> None:
        """Stop reading a topic; received records may still be returned."""
        gone = {where for where in self._followed if where[0] == topic}
        self._followed -= gone
        self._consumer.stop(gone)

    def read(self, seconds: float) -> Iterator[PolledRecord]:
        """Return new records and errors; wait up to `seconds`.

        Raises:
            KafkaNotReachable: this client reaches no broker any more.
        """
        self._connections.check()
        first = self._consumer.poll(seconds)
        for message in () if first is None else (first, *self._consumer.consume(_TOGETHER)):
            where, error = place_of(message), message.error()
            at_end = error is not None and is_end(error)
            if error is None or at_end:
                reached = (message.offset() or 0) + (error is None)
                self.went_back |= reached < self.reached.get(where, 0)
                self.reached[where] = reached
            if at_end:
                self.unread.discard(where)
            else:
                yield message

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


class TopicFollower(ABC):
    """Follows a topic in a background thread; starts again after an error and when the topic gets more partitions.

    Tests: tests/unit/bridge/groups/test_groups_follower.py, tests/integration/operations/test_withdrawals.py.

    Args:
        base: librdkafka settings that every client uses.
        topic: the topic to follow.
        client_id: shown in the brokers' logs.
        again_seconds: the wait before it starts again after an error.
        count_seconds: how often it looks up the number of partitions.
    """

    def __init__(
        self, base: Mapping[str, Any], topic: str, client_id: str, again_seconds: float, count_seconds: float
    ) -> None:
        self._base = base
        self._topic = topic
        self._client_id = client_id
        self._again_seconds = again_seconds
        self._count_seconds = count_seconds
        self._count_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def start(self) -> None:
        """Begin to read, unless it has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop following; waits for the thread, but not for Kafka."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        admin = KafkaAdmin(self._base, self._client_id, stop=self._stop)
        while not self._stop.is_set():
            try:
                self._count_at = time.monotonic() + self._count_seconds
                with translated(f"reading topic {self._topic}"):
                    self._follow(admin)
            except ReconsumeError as error:
                if not self._stop.is_set():
                    self._failed(error)
            except Exception:
                # If a follower died, the process would keep outdated knowledge without any sign of it.
                logger.exception("topic %s cannot be read; trying again", self._topic)
            self._stop.wait(self._again_seconds)

    def _has_grown(self, admin: KafkaAdmin, followed: int) -> bool:
        """Return whether the topic has more partitions than are followed; looked up now and then. No answer is no."""
        if time.monotonic() < self._count_at:
            return False
        self._count_at = time.monotonic() + self._count_seconds
        with suppress(ReconsumeError):
            return admin.partitions([self._topic]).get(self._topic, 0) > followed
        return False

    @abstractmethod
    def _follow(self, admin: KafkaAdmin) -> None:
        """Read until `stop`, or until the topic has more partitions; raises the error that ends it early."""

    @abstractmethod
    def _failed(self, error: ReconsumeError) -> None:
        """Note the error that has ended it."""
