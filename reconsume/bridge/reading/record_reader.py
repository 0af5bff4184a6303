"""Reads single records by their positions, as RocketMQ's broker does for a send-back."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.connection_errors import ConnectionErrors
from reconsume.bridge.kafka.errors import is_end, is_missing, is_out_of_range, translate, translated
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.process.polled_records import ClientError, PolledRecord, place_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, RecordNotFound
from reconsume.delay_levels.wire.properties import LARGEST, LARGEST_PARTITION
from reconsume.delay_levels.wire.send_back_copy import Position

logger = SafeLogger(__name__)

OnRead = Callable[[PolledRecord | ReconsumeError], None]
"""Called once, in the asking, reading or closing thread, with the record or the error."""

_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 0.5
_NEAR: Final = 200
"""Records this close to each other are read in one go; for others the reader seeks."""


@dataclass(slots=True)
class _Wish:
    """A record that a caller waits for."""

    deadline: float
    on_read: OnRead


@dataclass(slots=True)
class _Partition:
    """The wanted records of a partition.

    Attributes:
        wanted: waiting callers, by offset.
        at: the next offset to read; None while the partition is not read.
        ended: whether its end was reached, which is reported only once.
    """

    wanted: dict[int, list[_Wish]] = field(default_factory=dict)
    at: int | None = None
    ended: bool = False


class RecordReader:
    """Reads committed records (RocketMQ: BR-09). Any thread may call `read`, which never blocks.

    Requests that arrive meanwhile are read together, one stretch of each partition at a time. It reads in a background
    thread after `start`, else in `run_once`.

    Guarantees: an offset out of range fails only that request; later records are read.
    Test: tests/integration/bridge/test_record_reader.py.

    Args:
        base: librdkafka settings that every client uses.
        client_id: shown in the brokers' logs.
        seconds: the longest wait for a record.
        group: the group whose rights are used, by default `client_id`; it is never joined, and nothing is committed.
    """

    def __init__(self, base: Mapping[str, Any], client_id: str, seconds: float, group: str = "") -> None:
        alone = {
            "group.id": group or client_id,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # Prefetched records are discarded at the next stretch.
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 8_192,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 1,
        }
        self._settings = consumer_settings(base, client_id) | alone
        self._heard: ConnectionErrors = self._settings["error_cb"]
        self._connections, self._consumer = self._made()
        self._seconds = seconds
        self._asked: queue.SimpleQueue[tuple[Position, _Wish] | None] = queue.SimpleQueue()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconsume-read-again", daemon=True)

    def _made(self) -> tuple[Connections, GroupConsumer]:
        connections = Connections(self._settings)
        return connections, GroupConsumer(connections.settings)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def read(self, position: Position, on_read: OnRead) -> None:
        """Request a record.

        `on_read` gets `RecordNotFound` if it does not exist (deleted, not written yet, a missing partition, or a
        transaction marker), `KafkaNotReachable` if no broker answered in time.
        """
        if position.partition > LARGEST_PARTITION or position.offset > LARGEST:
            on_read(_no_record(position, "Kafka has no such numbers"))
            return
        self._asked.put((position, _Wish(time.monotonic() + self._seconds, on_read)))

    def close(self) -> None:
        """Stop; waiting callers get an error."""
        self._stop.set()
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join()
        with closing(self._consumer):
            self._take_wishes()
            for key in list(self._partitions):
                self._refuse_all(key, KafkaNotReachable(f"reading {key[0]}-{key[1]} again: the process is ending"))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with translated("reading records again"):
                    self.run_once()
            except ReconsumeError as error:
                logger.warning("%s", error)
                self._stop.wait(_POLL_SECONDS)
            except Exception:
                # Without this thread every later read would wait forever.
                logger.exception("reading records again: trying again")
                self._stop.wait(_POLL_SECONDS)

    def _take_wishes(self) -> None:
        """Take new requests; wait for the first one while none is open."""
        block = not self._partitions and not self._stop.is_set()
        while True:
            try:
                one = self._asked.get(block, _IDLE_SECONDS)
            except queue.Empty:
                return
            block = False
            if one is not None:
                position, wish = one
                partition = self._partitions.setdefault((position.topic, position.partition), _Partition())
                partition.wanted.setdefault(position.offset, []).append(wish)

    def run_once(self) -> None:
        """Move each partition to its next wanted record, then handle new records."""
        self._take_wishes()
        try:
            self._connections.check()
        except KafkaNotReachable as error:
            self._replace_client(error)
        self._give_up(time.monotonic())
        for key in list(self._partitions):
            self._turn(key)
        if not self._partitions:
            self._consumer.poll(0)  # for the reports of librdkafka, which would pile up
            return
        first = self._consumer.poll(_POLL_SECONDS)
        if first is not None:
            for message in (first, *self._consumer.consume(500)):
                self._take(message)

    def _replace_client(self, why: KafkaNotReachable) -> None:
        """Read the wanted records with a new client, because this one never connects again."""
        logger.error("reading records again: client replaced: %s", why)
        old = self._consumer
        self._connections, self._consumer = self._made()
        for partition in self._partitions.values():
            partition.at = None
        old.close()

    def _turn(self, key: tuple[str, int]) -> None:
        """Continue while the next record is near; else seek, or leave the partition."""
        partition = self._partitions[key]
        at = partition.at
        if at is not None and not partition.ended and any(at <= one < at + _NEAR for one in partition.wanted):
            return
        if at is not None:
            self._consumer.stop([key])
        if not partition.wanted:
            del self._partitions[key]
            return
        partition.at, partition.ended = min(partition.wanted), False
        self._consumer.start({key: partition.at})

    def _take(self, message: PolledRecord) -> None:
        key = place_of(message)
        partition = self._partitions.get(key)
        if partition is None or partition.at is None:
            return
        error = message.error()
        if error is not None:
            self._take_error(key, partition, error)
            return
        start, offset = partition.at, message.offset() or 0
        partition.at = offset + 1
        # A skipped offset holds a transaction marker, an aborted record, or a compacted one.
        for passed in [one for one in partition.wanted if start <= one < offset]:
            self._answer(partition, passed, _no_record(Position(*key, passed), f"the next one is at {offset}"))
        self._answer(partition, offset, message)

    def _take_error(self, key: tuple[str, int], partition: _Partition, error: ClientError) -> None:
        at = partition.at or 0
        if is_end(error):
            missing = [one for one in partition.wanted if at <= one < at + _NEAR]
            partition.ended = True
        elif is_out_of_range(error):
            # The error concerns only the start of the read; further on records may exist.
            missing = [at]
            partition.ended = True
        elif is_missing(error):
            missing = list(partition.wanted)
        elif error.retriable():
            missing = []
        else:
            self._refuse_all(key, translate(error, f"reading {key[0]}-{key[1]} again"))
            return
        for offset in missing:
            self._answer(partition, offset, _no_record(Position(*key, offset), error.str()))

    def _refuse_all(self, key: tuple[str, int], error: ReconsumeError) -> None:
        partition = self._partitions[key]
        for offset in list(partition.wanted):
            self._answer(partition, offset, error)

    def _give_up(self, now: float) -> None:
        for key, partition in self._partitions.items():
            for offset, wishes in list(partition.wanted.items()):
                if min(wish.deadline for wish in wishes) <= now:
                    where = f"reading {key[0]}/{key[1]}/{offset} again"
                    self._answer(partition, offset, self._heard.silence(self._seconds, where))

    @staticmethod
    def _answer(partition: _Partition, offset: int, result: PolledRecord | ReconsumeError) -> None:
        for wish in partition.wanted.pop(offset, ()):
            wish.on_read(result)


def read_again(base: Mapping[str, Any], position: Position, group: str, client_id: str) -> PolledRecord:
    """Return the committed record at this position (RocketMQ: BR-09).

    Args:
        base: librdkafka settings that every client uses.
        position: the position of the record.
        group: the group whose rights are used; it is never joined, and nothing is committed.
        client_id: shown in the brokers' logs.

    Raises:
        RecordNotFound: no such record: deleted, not written yet, or a transaction marker.
        KafkaNotReachable: no broker answered within 15 s.
        KafkaRefused: rights are missing.
    """
    count_partitions(KafkaAdmin(base, client_id), position)
    found: list[PolledRecord | ReconsumeError] = []
    reader = RecordReader(base, client_id, _SECONDS, group)
    try:
        reader.read(position, found.append)
        with translated(f"reading {position} again"):
            while not found:
                reader.run_once()
    finally:
        reader.close()
    if isinstance(found[0], ReconsumeError):
        raise found[0]
    return found[0]


def count_partitions(admin: KafkaAdmin, position: Position) -> int:
    """Return the number of partitions of a position's topic.

    The reader cannot distinguish a missing partition from one without a leader.

    Raises:
        RecordNotFound: the position does not exist.
    """
    topic = position.topic
    count = admin.partitions([topic]).get(topic, 0)
    if not 0 <= position.partition < count:
        raise _no_record(
            position, f"topic {topic} has {count} partitions" if count else f"topic {topic} does not exist"
        )
    if position.offset < 0:
        raise _no_record(position, "offsets begin at 0")
    return count


def _no_record(position: Position, why: str) -> RecordNotFound:
    return RecordNotFound(f"look message by offset failed: there is no record at {position} ({why})")
