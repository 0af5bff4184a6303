"""How many records stand between two offsets: read where they are few, else estimated from the offsets.

A difference of offsets counts the end marks of transactions too, and what was aborted, compacted or done out of turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.errors import translate

__all__ = ["Count", "Span", "count_records", "total"]

logger = logging.getLogger(__name__)

_READ_UP_TO: Final = 500
"""Offsets of one partition."""
_SECONDS: Final = 10.0
_SLICE_SECONDS: Final = 0.1


class Span(NamedTuple):
    """The offsets from `start` to before `end`, without those in `done`."""

    start: int
    end: int
    done: frozenset[int] = frozenset()


class Count(NamedTuple):
    """A number of records; not exact if it is an estimate from offsets, which is rather too high than too low."""

    number: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.number:,}" if self.exact else f"~{self.number:,}"


def total(counts: Iterable[Count]) -> Count:
    """All together; exact if each is."""
    given = list(counts)
    return Count(sum(one.number for one in given), all(one.exact for one in given))


def count_records(base: Mapping[str, Any], spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, Count]:
    """Count the committed records of each span.

    Read are spans of at most 500 offsets, within 10 s altogether; what could not be read, for want of time or of the
    right to, is estimated.
    """
    few = {where: span for where, span in spans.items() if 0 < span.end - span.start <= _READ_UP_TO}
    read = _read(base, few, client_id) if few else {}
    return {
        where: Count(read[where], exact=True) if where in read else _estimate(span) for where, span in spans.items()
    }


def _estimate(span: Span) -> Count:
    between = max(0, span.end - span.start)
    return Count(max(0, between - len(span.done)), exact=between == 0)


def _read(base: Mapping[str, Any], spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, int]:
    """The counts of those spans that were read to their ends."""
    alone = {"group.id": client_id, "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = make_consumer(consumer_settings(base, client_id) | alone)
    counting = _Counting(spans)
    deadline = time.monotonic() + _SECONDS
    try:
        consumer.assign([TopicPartition(*where, span.start) for where, span in spans.items()])
        while counting.unread and time.monotonic() < deadline:
            message = consumer.poll(_SLICE_SECONDS)
            if message is not None:
                counting.add(message)
                for more in consumer.consume(_READ_UP_TO, 0):
                    counting.add(more)
    finally:
        consumer.close()
    return {where: count for where, count in counting.counts.items() if where not in counting.unread}


class _Counting:
    """What was read so far."""

    def __init__(self, spans: Mapping[Partition, Span]) -> None:
        self._spans = spans
        self.counts = dict.fromkeys(spans, 0)
        self.unread = set(spans)

    def add(self, message: Message) -> None:
        where = (message.topic() or "", message.partition() or 0)
        if where not in self.unread:
            return
        span, offset = self._spans[where], message.offset() or 0
        error = message.error()
        if error is not None:
            self._note(where, error)
            return
        self.counts[where] += offset < span.end and offset not in span.done
        if offset >= span.end - 1:
            self.unread.remove(where)

    def _note(self, where: Partition, error: KafkaError) -> None:
        """The end of the partition: what is before the span's end are marks. Any other error leaves an estimate."""
        if error.code() != KafkaError._PARTITION_EOF:
            logger.warning("%s", translate(error, f"counting {where[0]}-{where[1]}"))
            del self.counts[where]
        self.unread.remove(where)
