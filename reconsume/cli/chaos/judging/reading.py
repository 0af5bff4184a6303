"""Read all topics of a run into the judge, while they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.cli.chaos.judging.judge import PLACE_BITS, ChaosJudge, Place
from reconsume.cli.chaos.poison import ORIGIN_OF_POISON, UNMADE_PREFIX, poison_in
from reconsume.cli.chaos.workload import ORIGIN, PROCESSED, failures_in
from reconsume.cli.processing import PROCESSED_ORIGIN
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.properties import ORIGIN_MESSAGE_ID, REAL_TOPIC, RECONSUME_TIME
from reconsume.delay_levels.wire.quarantine import QUARANTINE_REASON

__all__ = ["TopicReader"]

_BATCH: Final = 2_000
_WAIT_SECONDS: Final = 0.2
_LOOK_EVERY_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 15.0
_FIRST_OF: Final = {ORIGIN: 0, ORIGIN_OF_POISON: 64}
_FIRST_OF_INBOX: Final = 128
"""In a place, partition 0 of the topics in which messages begin."""


class TopicReader:
    """A thread that follows every topic and tells the judge; use it as a context.

    Args:
        cluster: not by way of the proxies.
        say: told when reading has stopped and begins again.
    """

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.judge = ChaosJudge()
        self.lock = threading.Lock()
        self.quiet_since = time.monotonic()
        self._cluster = cluster
        self._names = names = cluster.names
        self._written = names.prefix + "DELAY.", names.prefix + "RETRY.", names.prefix + "DLQ."
        self._say = say
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._next: dict[Partition, int] = {}
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what has ended the thread."""
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self._failed = error

    def unread(self) -> list[Partition]:
        """The partitions that have committed records which the judge has not seen.

        Raises:
            ReconsumeError: Kafka does not say where their ends are.
        """
        ends = self._cluster.admin.end_offsets(self._ours())
        with self.lock:
            return sorted(where for where, end in ends.items() if self._next.get(where, 0) < end)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._follow_until_stalled()
            if not self._stop.is_set():
                self._say(f"the judge has read nothing for {_STALLED_SECONDS:g} s and goes on with a new consumer")

    def _follow_until_stalled(self) -> None:
        """With one consumer: on a busy machine one has stopped reading for good, so after a while another goes on."""
        consumer = Consumer(
            consumer_settings(self._cluster.base, "chaos-judge")
            | {"group.id": "chaos-judge", "enable.partition.eof": True}
        )
        assigned: set[Partition] = set()
        look_at, read_at = 0.0, time.monotonic()
        try:
            while not self._stop.is_set() and time.monotonic() < read_at + _STALLED_SECONDS:
                if time.monotonic() >= look_at:
                    assigned |= self._assign_new(consumer, assigned)
                    look_at = time.monotonic() + _LOOK_EVERY_SECONDS
                if self._take(consumer.consume(_BATCH, _WAIT_SECONDS)):
                    read_at = time.monotonic()
        finally:
            consumer.close()

    def _assign_new(self, consumer: Consumer, assigned: set[Partition]) -> set[Partition]:
        try:
            new = self._ours() - assigned
        except ReconsumeError:
            return set()  # a broker is away; that is what this is all about
        if new:
            consumer.incremental_assign(
                [TopicPartition(*where, self._next.get(where, OFFSET_BEGINNING)) for where in new]
            )
        return new

    def _ours(self) -> set[Partition]:
        ours = (ORIGIN, ORIGIN_OF_POISON, PROCESSED, self._names.prefix)
        return {where for where in all_partitions(self._cluster.admin.topics()) if where[0].startswith(ours)}

    def _take(self, messages: list[Message]) -> bool:
        """Tell the judge; whether a record was read or the end of a partition reached."""
        read = False
        with self.lock:
            for one in messages:
                error = one.error()
                if error is None:
                    self._tell(one)
                    self.quiet_since = time.monotonic()
                elif error.code() == KafkaError._PARTITION_EOF:
                    where = one.topic() or "", one.partition() or 0
                    self._next[where] = max(self._next.get(where, 0), one.offset() or 0)
                else:
                    continue
                read = True
        return read

    def _tell(self, message: Message) -> None:
        topic, stored_ms = message.topic() or "", message.timestamp()[1]
        partition, offset = message.partition() or 0, message.offset() or 0
        if offset < self._next.get((topic, partition), 0):
            return  # read again after a broker came back; it is still one record
        self._next[topic, partition] = offset + 1
        headers = dict(headers_of(message)) if topic != ORIGIN else {}
        if topic in (ORIGIN, ORIGIN_OF_POISON) or _is_unmade(headers, topic == self._names.send_back):
            poison = None if topic == ORIGIN else poison_in(message.value())
            self.judge.produced(_place(topic, partition, offset), failures_in(message.value()), stored_ms, poison)
        elif topic == PROCESSED:
            self.judge.processed(_origin(headers[PROCESSED_ORIGIN]), stored_ms)
        elif topic.startswith((*self._written, self._names.quarantine)):
            self._tell_copy(topic, headers, stored_ms, f"{topic}-{partition}@{offset}")

    def _tell_copy(self, topic: str, headers: Mapping[str, bytes | None], stored_ms: int, at: str) -> None:
        delay, _, dead_letter = self._written
        place, times = _origin(headers[ORIGIN_MESSAGE_ID]), int(headers[RECONSUME_TIME] or b"0")
        if topic == self._names.quarantine:
            reason = (headers[QUARANTINE_REASON] or b"").decode()
            self.judge.quarantined(place, times, stored_ms, f"{at}: {reason}")
        elif topic.startswith(delay):
            self.judge.sent_back(place, times, stored_ms, self._names.delay_ms(topic), at)
        else:
            self.judge.moved(place, times, stored_ms, at, dead=topic.startswith(dead_letter))


def _is_unmade(headers: Mapping[str, bytes | None], is_inbox: bool) -> bool:
    """Whether a record begins in the inbox, for a group whose retry topic cannot be made."""
    return is_inbox and (headers.get(REAL_TOPIC) or b"").startswith((RETRY_PREFIX + UNMADE_PREFIX).encode())


def _origin(position: bytes | None) -> Place:
    topic, partition, offset = (position or b"").decode().rsplit("/", 2)
    return _place(topic, int(partition), int(offset))


def _place(topic: str, partition: int, offset: int) -> Place:
    first = _FIRST_OF.get(topic, _FIRST_OF_INBOX)
    return offset << PLACE_BITS | first + partition
