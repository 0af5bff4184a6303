"""Reads ranges of offsets to their ends, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.connection_errors import ConnectionErrors
from reconsume.bridge.kafka.errors import is_end, translate, translated
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.polled_records import PolledRecord, place_of
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.properties import Headers, size_of

_TOGETHER: Final = 1_000
_SLICE_SECONDS: Final = 0.2
"""The longest delay before a stop or the end of the time is noticed."""
_READ_AHEAD_KIB: Final = 16_384
_FETCH_BYTES: Final = 256 * 1024
"""Bytes of an answer for each partition, compressed: in memory they may be twenty times as many."""


class ReadRecord(NamedTuple):
    """A record of a topic; `stored_ms` is its timestamp."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    stored_ms: int

    @classmethod
    def of(cls, message: PolledRecord) -> ReadRecord:
        """Convert a record of confluent-kafka."""
        return cls(
            *place_of(message),
            message.offset() or 0,
            message.key(),
            message.value(),
            headers_of(message),
            message.timestamp()[1],
        )

    @property
    def where(self) -> Partition:
        """The record's partition."""
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return size_of(self.key, self.value, self.headers)


class RangeReader:
    """Reads ranges of offsets one after the other, on one connection.

    Args:
        base: librdkafka settings that every client uses.
        client_id: the name in the brokers' logs, and the name of the group, which it never joins.
        uncommitted: read records of open and aborted transactions too.
        seconds: the longest time without news of an unfinished partition.

    Attributes:
        unread: the partitions that the last `read` did not finish, with their ends.
    """

    def __init__(
        self, base: Mapping[str, Any], client_id: str, *, uncommitted: bool = False, seconds: float = 30.0
    ) -> None:
        self._seconds = seconds
        alone = {
            "group.id": client_id,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            # Prefetched records are discarded at the end of a range. The limit of bytes counts values only (librdkafka
            # 2.16), and dead letters are mostly headers: the default of 100,000 records took 240 MB.
            "queued.max.messages.kbytes": _READ_AHEAD_KIB,
            "queued.min.messages": _TOGETHER,
            "fetch.queue.backoff.ms": 10,
            "max.partition.fetch.bytes": _FETCH_BYTES,
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        }
        conf = consumer_settings(base, client_id) | alone
        self._heard: ConnectionErrors = conf["error_cb"]
        self._consumer = GroupConsumer(conf)
        self.unread: dict[Partition, int] = {}
        self._paused: set[Partition] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def records(self, ranges: Mapping[Partition, tuple[int, int]], **limits: Any) -> Iterator[ReadRecord]:
        """Read as `read` does, and return `ReadRecord`s."""
        return map(ReadRecord.of, self.read(ranges, **limits))

    def read(
        self,
        ranges: Mapping[Partition, tuple[int, int]],
        *,
        within_seconds: float | None = None,
        stop: threading.Event | None = None,
        on_refusal: Callable[[Partition, ReconsumeError], None] | None = None,
    ) -> Iterator[PolledRecord]:
        """Read from the first offset to before the second one, in order within each partition.

        This waits for open transactions before the second offset.

        Args:
            ranges: by partition; empty ranges are skipped.
            within_seconds: the longest time; the rest is in `unread`. None reads to the end.
            stop: ends the read early when it is set.
            on_refusal: called for an unreadable partition, which stays in `unread`; None raises.

        Raises:
            KafkaNotReachable: no record of an unfinished partition arrived in time.
            KafkaRefused: rights are missing.
        """
        self.unread = unread = {where: end for where, (start, end) in ranges.items() if start < end}
        silent, until = time.monotonic(), None if within_seconds is None else time.monotonic() + within_seconds
        refused: set[Partition] = set()
        with translated(f"reading {_names(unread)}"):
            self._start({where: ranges[where][0] for where in unread})
            while unread.keys() - refused and not (stop is not None and stop.is_set()):
                if until is not None and time.monotonic() >= until:
                    return
                first, news = self._consumer.poll(_SLICE_SECONDS), False
                for message in () if first is None else (first, *self._consumer.consume(_TOGETHER)):
                    where = place_of(message)
                    # Traffic of a finished partition, and errors of a refused one, say nothing of the others.
                    news = news or (where in unread and where not in refused)
                    if self._take(where, message, refused, on_refusal):
                        yield message
                if news:
                    silent = time.monotonic()
                elif until is None and time.monotonic() - silent > self._seconds:
                    raise self._heard.silence(self._seconds, f"reading {_names(unread)}")

    def leave(self, where: Partition) -> None:
        """Stop reading a partition."""
        if where in self.unread:
            self._finish(where)

    def _start(self, offsets: Mapping[Partition, int]) -> None:
        # A new assignment of librdkafka (2.16) keeps pauses. A resume after it delays the first fetch by 0.5 s.
        paused, self._paused = self._paused, set()
        self._consumer.resume(paused)
        self._consumer.read_only(offsets)

    def _finish(self, where: Partition) -> None:
        del self.unread[where]
        if self.unread:
            self._consumer.pause([where])
            self._paused.add(where)

    def _take(
        self,
        where: Partition,
        message: PolledRecord,
        refused: set[Partition],
        on_refusal: Callable[[Partition, ReconsumeError], None] | None,
    ) -> bool:
        """Return whether this is a wanted record; remove a finished partition from `unread`."""
        error = message.error()
        if error is not None and not is_end(error):
            if on_refusal is None:
                raise translate(error, f"reading {_names([where] if where[0] else self.unread)}")
            if where in self.unread.keys() - refused:
                refused.add(where)
                on_refusal(where, translate(error, f"reading {where[0]}-{where[1]}"))
            return False
        if where not in self.unread:
            return False
        offset, end = message.offset() or 0, self.unread[where]
        # The end of committed records may come before the range's end: more follows when the open transaction has
        # ended.
        if offset + (error is None) >= end:
            self._finish(where)
        return error is None and offset < end


def _names(partitions: Iterable[Partition]) -> str:
    return ", ".join(sorted({f"topic {topic}" for topic, _ in partitions}))
