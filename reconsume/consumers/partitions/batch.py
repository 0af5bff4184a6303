"""Messages of one partition that were read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from reconsume.bridge.process.polled_records import PolledRecord, offset_of
from reconsume.consumers.message import Message


class Reading(NamedTuple):
    """Values that all messages of a consumer share."""

    retry_topic: str
    namespace_prefix: str


class LazyMessages(Sequence[Message]):
    """An immutable sequence of messages. Each message is created on first access and kept."""

    __slots__ = ("_made",)
    _made: tuple[Message, ...] | None

    def _make(self) -> tuple[Message, ...]:
        raise NotImplementedError

    def _messages(self) -> tuple[Message, ...]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        return self._messages()[place]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages())

    def __len__(self) -> int:
        return len(self._messages())

    def __repr__(self) -> str:
        return repr(self._messages())


class PolledBatch(LazyMessages):
    """The records of a partition that a poll has read.

    Guarantees: a batch is started, handed over and finished as a range of offsets; a listener's thread touches only
    records that the listener reads.
    Tests: tests/unit/consumers/partitions/test_batch.py, benchmarks/consumers.py.

    Attributes:
        polled: the records, in the order of their offsets; at least one.
    """

    __slots__ = ("_reading", "polled")

    def __init__(self, polled: Sequence[PolledRecord], reading: Reading) -> None:
        self.polled = polled
        self._reading = reading
        self._made = None

    def offsets(self) -> Sequence[int]:
        """The offsets of all records; a range if they rise without a gap."""
        if len(self.polled) > 1 and offset_of(self.polled[0]) == offset_of(self.polled[1]):
            # librdkafka 2.16 may return the first record twice (see `StaleRecords`). With a gap behind it, such a
            # batch is as long as one without copy and gap.
            return list(map(offset_of, self.polled))
        return offsets_of(self.polled)

    def made(self, start: int, end: int) -> tuple[Message, ...]:
        """Return the messages of the records from `start` to `end`."""
        retry_topic, prefix = self._reading
        return tuple([Message(one, retry_topic, 0, prefix) for one in self.polled[start:end]])

    def _make(self) -> tuple[Message, ...]:
        return self.made(0, len(self.polled))

    def __len__(self) -> int:
        return len(self.polled)


def offsets_of(polled: Sequence[PolledRecord]) -> Sequence[int]:
    """Return the rising offsets of records; a range if they have no gap."""
    first, last = offset_of(polled[0]), offset_of(polled[-1])
    if last - first + 1 == len(polled):
        return range(first, last + 1)
    return list(map(offset_of, polled))
