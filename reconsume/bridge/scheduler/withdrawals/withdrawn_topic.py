"""Writes the WITHDRAWN topic: what workers have read from CANCEL, so that none rereads all of it at its start."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import discard_producer, make_producer
from reconsume.bridge.kafka.errors import translate, translated
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.polled_records import ClientError, PolledRecord
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.withdrawals import PositionInCancel, known_withdrawal

logger = SafeLogger(__name__)

_FIRST_MS: Final = 2_000
_EVERY_MS: Final = 60_000
_AT_ONCE: Final = 10_000
_MOST_UNWRITTEN: Final = 50_000
_PATIENCE_MS: Final = 10_000


class WithdrawnTopicWriter:
    """Writes ids of withdrawals, then the position in CANCEL up to which the topic is complete.

    Several workers may write the same ids without harm, because an id is the key of its record. So a worker writes only
    ids that no other worker has written for about a minute. No worker waits for this topic, and only the duration of
    the next start depends on it.

    Guarantees: the position is written after the brokers have acknowledged all ids before it, so several writers, or
    a dead one, omit nothing. Tests: tests/unit/bridge/scheduler/withdrawals/test_withdrawn_topic.py,
    tests/integration/operations/test_withdrawals.py.

    Args:
        base: librdkafka settings that every client uses.
        topic: the WITHDRAWN topic.
        topic_id: the id of CANCEL.
        clock: monotonic milliseconds.
    """

    def __init__(self, base: Mapping[str, Any], topic: str, topic_id: str, clock: Clock) -> None:
        self._topic = topic
        self._topic_id = topic_id
        self._clock = clock
        self._unwritten: list[tuple[int, int, bytes, int]] = []
        self._sent: list[PositionInCancel] | None = None
        self._sent_count = self._in_flight = 0
        self._failed: ReconsumeError | None = None
        self._write_at = clock() + random.uniform(0, _FIRST_MS)  # noqa: S311 - no secret
        settings = producer_settings(base, "reconsume-cancels") | {"message.timeout.ms": _PATIENCE_MS}
        self._producer = make_producer(settings)

    @property
    def is_full(self) -> bool:
        """Return whether reading must stop until pending ids are written."""
        return len(self._unwritten) >= _MOST_UNWRITTEN

    def learned(self, partition: int, offset: int, withdrawal: bytes, due_ms: int) -> None:
        """Note a withdrawal that was read from CANCEL."""
        self._unwritten.append((partition, offset, withdrawal, due_ms))

    def saw(self, position: PositionInCancel) -> None:
        """Note a position that another worker has written: earlier ids are written already."""
        if position.topic_id != self._topic_id or self._sent is not None:
            return
        left = [one for one in self._unwritten if one[0] != position.partition or one[1] >= position.offset]
        if len(left) < len(self._unwritten):
            self._unwritten = left
            self._write_at = self._next_time()

    def turn(self, reached: Mapping[int, int]) -> None:
        """Write what is due; call this often.

        Args:
            reached: by partition of CANCEL the next offset to read.

        Raises:
            ReconsumeError: the topic accepts no records, and memory for pending ids is full.
        """
        with translated(f"writing to topic {self._topic}"):
            self._producer.poll(0)
            if self._sent is not None:
                if not self._in_flight:
                    self._finish(self._sent)
            elif self._unwritten and self._is_time():
                self._write(reached)

    def done(self, withdrawals: Iterable[bytes]) -> None:
        """Write tombstones; a lost one costs memory of later starts until 7 days after its message was due."""
        try:
            with translated(f"writing tombstones to {self._topic}"):
                for one in withdrawals:
                    self._producer.produce(self._topic, None, one)
        except (BufferError, ReconsumeError) as error:
            logger.debug("tombstones left out: %s", error)

    def close(self) -> None:
        """Close; unwritten requests are read again at the next start."""
        discard_producer(self._producer)

    def _is_time(self) -> bool:
        many = len(self._unwritten) >= _AT_ONCE and self._failed is None
        return many or self.is_full or self._clock() >= self._write_at

    def _write(self, reached: Mapping[int, int]) -> None:
        self._failed = None
        self._sent = [PositionInCancel(number, self._topic_id, offset) for number, offset in reached.items()]
        self._sent_count = len(self._unwritten)
        for _, _, withdrawal, due_ms in self._unwritten:
            key, value = known_withdrawal(withdrawal, due_ms)
            # librdkafka's queue has room for four times as many.
            self._producer.produce(self._topic, value, key, on_delivery=self._stored)
            self._in_flight += 1

    def _finish(self, positions: list[PositionInCancel]) -> None:
        """After the brokers' answers, write the position or try again."""
        self._sent, self._write_at = None, self._next_time()
        if self._failed is not None:
            if self.is_full:
                raise self._failed
            logger.warning("trying again in a minute: %s", self._failed)
            return
        for position in positions:
            key, value = position.encode()
            self._producer.produce(self._topic, value, key)
        del self._unwritten[: self._sent_count]

    def _stored(self, error: ClientError | None, _message: PolledRecord) -> None:
        self._in_flight -= 1
        if error is not None:
            self._failed = translate(error, f"writing to topic {self._topic}")

    def _next_time(self) -> float:
        """Return the next time, different from other workers', so that one writes and the others see it."""
        return self._clock() + _EVERY_MS * random.uniform(1, 2)  # noqa: S311 - no secret
