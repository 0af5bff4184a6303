"""Reads withdrawals: first those that other workers have stored, then the rest of CANCEL."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.process.safe_logger import LimitedLogger, SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.bridge.reading.topic_follower import TailReader
from reconsume.bridge.scheduler.withdrawals.withdrawn_topic import WithdrawnTopicWriter
from reconsume.delay_levels.errors import MalformedProperty, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.timer import CANCELS_KEPT_MS, LONGEST_DELAY_MS
from reconsume.delay_levels.wire.withdrawals import (
    ID_BYTES,
    PositionInCancel,
    Withdrawals,
    due_in,
    requested_withdrawal,
)

logger = SafeLogger(__name__)

_POLL_SECONDS: Final = 0.05
_WITHOUT_SECONDS: Final = 600.0
_REPORT_EVERY_MS: Final = 10_000


class WithdrawalsReader:
    """Reads WITHDRAWN to its end, CANCEL from the position stored there, and then follows both.

    CANCEL is authoritative. WITHDRAWN only saves time at the start: if it is missing or unreadable, CANCEL is read from
    its beginning. `is_over` then looks for the topic every ten minutes.

    Guarantees: after the start only tombstones and positions of WITHDRAWN are followed. An id from there would bring
    back the withdrawal of a dropped message. Test: tests/integration/operations/test_withdrawals.py.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        withdrawals: the known withdrawals; one thread adds to them.
        clock: returns milliseconds.

    Attributes:
        partitions: the partitions of CANCEL.
    """

    def __init__(self, base: Mapping[str, Any], names: TopicNames, withdrawals: Withdrawals, clock: Clock) -> None:
        self._base = base
        self._names = names
        self._withdrawals = withdrawals
        self._clock = clock
        self._positions: dict[int, int] = {}
        self._topic_id = ""
        self._writer: WithdrawnTopicWriter | None = None
        self._over_at = float("inf")
        # Clients determine the number of its lines.
        self._limited = LimitedLogger(__name__, lines=1, per_ms=_REPORT_EVERY_MS)
        self._reader = TailReader(base, "reconsume-cancels", names.cancel)
        self.partitions: list[Partition] = []

    def is_over(self, admin: KafkaAdmin) -> bool:
        """Return whether a new reader should replace this one: it works without WITHDRAWN, which can be used now.

        Before that a new reader would read all of CANCEL again, and delayed messages would wait meanwhile.
        """
        if time.monotonic() < self._over_at:
            return False
        self._over_at = time.monotonic() + _WITHOUT_SECONDS
        with suppress(ReconsumeError):
            return bool(_partitions(admin, self._names.withdrawn))
        return False

    def start(self, admin: KafkaAdmin, stop: threading.Event) -> None:
        """Read WITHDRAWN to its end, and start to read CANCEL.

        Raises:
            ReconsumeError: CANCEL cannot be read.
        """
        cancel = self._names.cancel
        partitions, ids = _partitions(admin, cancel), admin.topic_ids([cancel])
        self._topic_id = ids.get(cancel, "")
        try:
            self._load(admin, stop)
            self._writer = WithdrawnTopicWriter(self._base, self._names.withdrawn, self._topic_id, monotonic_ms)
        except ReconsumeError as error:
            self._positions.clear()
            self._do_without(error)
        self.partitions = partitions
        self._reader.follow({where: self._positions.get(where[1]) for where in partitions})

    def _load(self, admin: KafkaAdmin, stop: threading.Event) -> None:
        ends = admin.end_offsets(_partitions(admin, self._names.withdrawn))
        with RangeReader(self._base, self._names.cancel) as reader:
            for message in reader.read({where: (0, end) for where, end in ends.items()}, stop=stop):
                self._take_known(message)
        self._reader.follow(ends)

    def read(self) -> None:
        """Read available records; wait for a moment if there are none.

        Raises:
            ReconsumeError: CANCEL cannot be read.
        """
        if self._writer is not None and self._writer.is_full:
            time.sleep(_POLL_SECONDS)
        else:
            for message in self._reader.read(_POLL_SECONDS):
                if message.topic() == self._names.withdrawn:
                    self._follow_known(message)
                else:
                    self._take_request(message)
        if self._writer is not None:
            try:
                self._writer.turn(self._reached)
            except ReconsumeError as error:
                self._do_without(error)

    @property
    def _reached(self) -> dict[int, int]:
        """Return the next offset of each partition of CANCEL."""
        return {one: at for (topic, one), at in self._reader.reached.items() if topic == self._names.cancel}

    def has_reached(self, ends: Mapping[Partition, int]) -> bool:
        """Return whether everything before these offsets of CANCEL was read."""
        return all(self._reader.reached.get(where, -1) >= end for where, end in ends.items())

    def done(self, withdrawals: Iterable[bytes]) -> None:
        """Tell other workers to forget withdrawals of dropped messages."""
        if self._writer is not None:
            self._writer.done(withdrawals)

    def close(self) -> None:
        """Close the connections."""
        with closing(self._reader):
            if self._writer is not None:
                self._writer.close()

    def _follow_known(self, message: PolledRecord) -> None:
        if (error := message.error()) is not None:
            self._do_without(translate(error, f"reading topic {self._names.withdrawn}"))
        else:
            self._take_known(message)

    def _take_known(self, message: PolledRecord) -> None:
        """Handle a record of WITHDRAWN: an id with its due moment, its tombstone, or a position."""
        key, value, now = message.key() or b"", message.value(), self._clock()
        if len(key) != ID_BYTES:
            position = PositionInCancel.decode(key, value or b"")
            if position is not None and position.topic_id == self._topic_id:
                self._positions[position.partition] = position.offset
                if self._writer is not None:
                    self._writer.saw(position)
        elif value is None:
            self._withdrawals.discard(key)
        elif not self.partitions and (due_ms := due_in(value)) is not None:  # afterwards CANCEL itself is followed
            self._add(key, min(due_ms, int(now) + LONGEST_DELAY_MS), now)

    def _take_request(self, message: PolledRecord) -> None:
        """Handle a record of CANCEL."""
        partition, offset = message.partition() or 0, message.offset() or 0
        if (error := message.error()) is not None:
            raise translate(error, f"reading topic {self._names.cancel}")
        try:
            withdrawal, due_ms = requested_withdrawal(headers_of(message), message.timestamp()[1])
        except MalformedProperty as malformed:
            self._limited.warning("%s-%d@%d is ignored: %s", self._names.cancel, partition, offset, malformed)
            return
        now = self._clock()
        self._add(withdrawal, due_ms, now)
        if self._writer is not None and due_ms + CANCELS_KEPT_MS > now:
            self._writer.learned(partition, offset, withdrawal, due_ms)

    def _add(self, withdrawal: bytes, due_ms: int, now: float) -> None:
        if not self._withdrawals.add(withdrawal, due_ms, now):
            self._limited.warning("memory holds %s withdrawals; this one is not obeyed", f"{len(self._withdrawals):,}")

    def _do_without(self, error: ReconsumeError) -> None:
        logger.warning(
            "withdrawals are not shared, so the next start reads all of %s again: %s", self._names.cancel, error
        )
        if self._over_at == float("inf"):
            self._over_at = time.monotonic() + _WITHOUT_SECONDS
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._reader.leave(self._names.withdrawn)


def _partitions(admin: KafkaAdmin, topic: str) -> list[Partition]:
    count = admin.partitions([topic]).get(topic)
    if count is None:
        raise TopicNotReady(f"topic {topic} does not exist; create it: reconsume topics apply")
    return [(topic, one) for one in range(count)]
