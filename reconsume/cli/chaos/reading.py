"""Read all topics of a run into the judge, while they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from reconsume.bridge.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka import consumer_settings, headers_of
from reconsume.cli.chaos.judge import Judge, Place
from reconsume.cli.chaos.workload import GROUP, ORIGIN, PROCESSED, failures_in
from reconsume.cli.processing import PROCESSED_ORIGIN
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.names import TopicNames
from reconsume.delay_levels.properties import ORIGIN_MESSAGE_ID, RECONSUME_TIME

__all__ = ["TopicReader"]

_BATCH: Final = 2_000
_WAIT_SECONDS: Final = 0.2
_LOOK_EVERY_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 15.0
_PLACE_BITS: Final = 8


class TopicReader:
    """A thread that follows every topic and tells the judge; use it as a context.

    Args:
        conf: librdkafka settings; not by way of the proxies.
        names: the installation's topics.
        say: told when reading has stopped and begins again.
    """

    def __init__(self, conf: Mapping[str, Any], names: TopicNames, say: Callable[[str], None]) -> None:
        self.judge = Judge()
        self.lock = threading.Lock()
        self.quiet_since = time.monotonic()
        self._conf = conf
        self._names = names
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
        admin = KafkaAdmin(self._conf)
        ends = admin.end_offsets(self._ours(admin))
        with self.lock:
            return sorted(where for where, end in ends.items() if self._next.get(where, 0) < end)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._follow_until_stalled()
            if not self._stop.is_set():
                self._say(f"the judge has read nothing for {_STALLED_SECONDS:g} s and goes on with a new consumer")

    def _follow_until_stalled(self) -> None:
        """With one consumer: on a busy machine one has stopped reading for good, so after a while another goes on."""
        admin = KafkaAdmin(self._conf)
        consumer = Consumer(
            consumer_settings(self._conf, "chaos-judge") | {"group.id": "chaos-judge", "enable.partition.eof": True}
        )
        assigned: set[Partition] = set()
        look_at, read_at = 0.0, time.monotonic()
        try:
            while not self._stop.is_set() and time.monotonic() < read_at + _STALLED_SECONDS:
                if time.monotonic() >= look_at:
                    assigned |= self._assign_new(consumer, admin, assigned)
                    look_at = time.monotonic() + _LOOK_EVERY_SECONDS
                if self._take(consumer.consume(_BATCH, _WAIT_SECONDS)):
                    read_at = time.monotonic()
        finally:
            consumer.close()

    def _assign_new(self, consumer: Consumer, admin: KafkaAdmin, assigned: set[Partition]) -> set[Partition]:
        try:
            new = self._ours(admin) - assigned
        except ReconsumeError:
            return set()  # a broker is away; that is what this is all about
        if new:
            consumer.incremental_assign(
                [TopicPartition(*where, self._next.get(where, OFFSET_BEGINNING)) for where in new]
            )
        return new

    def _ours(self, admin: KafkaAdmin) -> set[Partition]:
        ours = (ORIGIN, PROCESSED, self._names.prefix)
        return {
            (topic, one) for topic, count in admin.topics().items() if topic.startswith(ours) for one in range(count)
        }

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
        at = f"{topic}-{partition}@{offset}"
        if topic == ORIGIN:
            place = (offset << _PLACE_BITS) | partition
            self.judge.produced(place, failures_in(message.value()), stored_ms)
            return
        headers = dict(headers_of(message))
        if topic == PROCESSED:
            self.judge.processed(_place(headers[PROCESSED_ORIGIN]), stored_ms)
        elif topic.startswith(self._names.prefix + "DELAY."):
            delay_ms = self._names.delay_ms(topic)
            self.judge.sent_back(_place(headers[ORIGIN_MESSAGE_ID]), _times(headers), stored_ms, delay_ms, at)
        elif topic in (self._names.retry(GROUP), self._names.dead_letter(GROUP)):
            dead = topic == self._names.dead_letter(GROUP)
            self.judge.moved(_place(headers[ORIGIN_MESSAGE_ID]), _times(headers), stored_ms, at, dead=dead)


def _times(headers: Mapping[str, bytes | None]) -> int:
    return int(headers[RECONSUME_TIME] or b"0")


def _place(origin: bytes | None) -> Place:
    _, partition, offset = (origin or b"").decode().rsplit("/", 2)
    return (int(offset) << _PLACE_BITS) | int(partition)
