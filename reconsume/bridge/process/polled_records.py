"""The interfaces of records and errors that a consumer returns.

confluent-kafka's own objects satisfy them, so no record is wrapped or copied.
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
    """An error of Kafka or its client; `bridge.kafka.errors` interprets it."""

    def code(self) -> int:
        """Return its number; client errors are negative."""

    def name(self) -> builtins.str:
        """Return its name."""

    def str(self) -> builtins.str:
        """Return its text."""

    def fatal(self) -> bool:
        """Return whether the client is unusable."""

    def retriable(self) -> bool:
        """Return whether the same request may succeed later."""


class PolledRecord(Protocol):
    """A record, or an error in its place. `headers_of` returns its headers."""

    def topic(self) -> str | None:
        """Return the topic; an error may have none."""

    def partition(self) -> int | None:
        """Return the partition; an error may have none."""

    def offset(self) -> int | None:
        """Return the offset; most errors have none."""

    def key(self) -> bytes | None:
        """Return the key, as it was produced."""

    def value(self) -> bytes | None:
        """Return the value, as it was produced; None is a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind and the milliseconds of the timestamp."""

    def error(self) -> ClientError | None:
        """Return the error; None for a record."""

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""

    def __len__(self) -> int:
        """Return the bytes of the value."""


# Methods in C, for `map`: a line of Python for each record lowers the rate. Records have offsets; errors may not, and
# are not asked.
topic_of: Final = cast("Callable[[PolledRecord], str | None]", Message.topic)
partition_of: Final = cast("Callable[[PolledRecord], int | None]", Message.partition)
offset_of: Final = cast("Callable[[PolledRecord], int]", Message.offset)
timestamp_of: Final = cast("Callable[[PolledRecord], tuple[int, int]]", Message.timestamp)
key_of: Final = cast("Callable[[PolledRecord], bytes | None]", Message.key)
error_of: Final = cast("Callable[[PolledRecord], ClientError | None]", Message.error)


def place_of(record: PolledRecord) -> tuple[str, int]:
    """Return topic and partition; an empty topic for an error without one."""
    return record.topic() or "", record.partition() or 0


def stored_ms(record: PolledRecord, clock: Clock) -> float:
    """Return when the brokers stored a record, or now if its timestamp is from its producer.

    So a topic with producers' timestamps makes records late, never early.
    """
    kind, timestamp_ms = record.timestamp()
    return timestamp_ms if kind == LOG_APPEND_TIME else clock()


def bytes_of(records: Iterable[PolledRecord]) -> int:
    """Return the total size of their values."""
    return sum(map(len, records))
