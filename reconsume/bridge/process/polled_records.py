"""Records and errors as a consumer gives them, by what is asked of them.

confluent-kafka's own objects have these shapes, so no record is wrapped or copied on its way.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.process.clock import Clock

LOG_APPEND_TIME: Final[int] = TIMESTAMP_LOG_APPEND_TIME
"""The kind of a timestamp that the brokers have set."""


class ClientError(Protocol):
    """An error of Kafka, or of its client; `bridge.kafka.errors` says what it means."""

    def code(self) -> int:
        """Its number; those of the client are negative."""

    def name(self) -> builtins.str:
        """Its number as a word."""

    def str(self) -> builtins.str:
        """The text of it."""

    def fatal(self) -> bool:
        """Whether the client is unusable."""

    def retriable(self) -> bool:
        """Whether the same request may succeed later."""


class PolledRecord(Protocol):
    """A record, or an error in its place. `headers_of` gives its headers."""

    def topic(self) -> str | None:
        """Where it stands; an error may be of no topic."""

    def partition(self) -> int | None:
        """Where it stands; an error may be of no partition."""

    def offset(self) -> int | None:
        """Where it stands; most errors have none."""

    def key(self) -> bytes | None:
        """The key, as it was produced."""

    def value(self) -> bytes | None:
        """The value, as it was produced; None is a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """The kind and the milliseconds."""

    def error(self) -> ClientError | None:
        """The error; None for a record."""

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""

    def __len__(self) -> int:
        """The bytes of the value."""


# Methods in C, for `map`: a line of Python for each record shows in the rate. Records have offsets; errors, which may
# have none, are not asked.
topic_of: Final = cast("Callable[[PolledRecord], str | None]", Message.topic)
partition_of: Final = cast("Callable[[PolledRecord], int | None]", Message.partition)
offset_of: Final = cast("Callable[[PolledRecord], int]", Message.offset)
timestamp_of: Final = cast("Callable[[PolledRecord], tuple[int, int]]", Message.timestamp)
key_of: Final = cast("Callable[[PolledRecord], bytes | None]", Message.key)
error_of: Final = cast("Callable[[PolledRecord], ClientError | None]", Message.error)


def place_of(record: PolledRecord) -> tuple[str, int]:
    """Return the topic and the partition; an empty name for an error of no topic."""
    return record.topic() or "", record.partition() or 0


def stored_ms(record: PolledRecord, clock: Clock) -> float:
    """When the brokers stored a record, or now if its timestamp is its producer's: then nothing else is known.

    So a topic that had its producers' timestamps for a while makes records late, never early.
    """
    kind, timestamp_ms = record.timestamp()
    return timestamp_ms if kind == LOG_APPEND_TIME else clock()


def bytes_of(records: Iterable[PolledRecord]) -> int:
    """Return the size of all their values."""
    return sum(map(len, records))
