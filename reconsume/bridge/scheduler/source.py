"""The records of a worker's partitions, read from librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import is_end, is_missing, start_error, translate
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.short_polls import poll_until
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.by_partition import by_partition
from reconsume.bridge.scheduler.membership.assignment import Assignment
from reconsume.bridge.scheduler.membership.group_member import group_error
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead

logger = SafeLogger(__name__)

_BEFORE_DUE: Final = 500
"""Maximum of records in a read while none in memory is due: a partition exceeds its read-ahead by at most these."""


class Source:
    """Passes polled records to the read-ahead, or to the assignment while a partition has not started.

    Args:
        consumer: the group's member.
        most: maximum of records in a read.
        clock: returns milliseconds, for the moments at which records are due.
    """

    def __init__(
        self, consumer: GroupConsumer, read_ahead: ReadAhead, assignment: Assignment, most: int, clock: Clock
    ) -> None:
        self._consumer = consumer
        self._read_ahead = read_ahead
        self._assignment = assignment
        self._most = most
        self._clock = clock

    def read(self, timeout: float) -> None:
        """Take librdkafka's available records; `consume(n, t)` alone would wait for n records or all of t.

        Shown by benchmarks/scheduler/lateness.py, and by footprint.py for the memory of waiting records.
        """
        message = poll_until(self._consumer, timeout)
        if message is not None:
            self._keep([message])
            due_ms = self._read_ahead.next_due_ms()
            is_due = due_ms is None or due_ms <= self._clock()
            self._keep(self._consumer.consume(self._most if is_due else min(self._most, _BEFORE_DUE)))

    def _keep(self, messages: Sequence[PolledRecord]) -> None:
        runs, assignment = list(by_partition(messages)), self._assignment
        is_begun = assignment.is_begun
        if not is_begun:
            assignment.heard_of(message for *_, run in runs for message in run[:1])
        for topic, partition, failed, run in runs:
            where = topic or "", partition or 0
            if failed:
                for message in run:
                    self._failed(where, message)
            else:
                (self._read_ahead if is_begun else assignment).add(where, run)

    def _failed(self, where: Partition, message: PolledRecord) -> None:
        error = message.error()
        assert error is not None
        if is_end(error):
            self._read_ahead.reached_end(where, message.offset() or 0)
        elif (ended := group_error(error) or start_error(error, "starting to read")) is not None:
            raise ended
        elif not is_missing(error):
            logger.warning("%s", translate(error, f"reading topic {where[0] or 'of the scheduler'}"))

    def pause_and_resume(self, now: float) -> None:
        """Pause and resume partitions so that only records due soon are fetched.

        Args:
            now: milliseconds; minus infinity while no record may leave.
        """
        for queues, act, paused in (
            (self._read_ahead.to_pause(now), self._consumer.pause, True),
            (self._read_ahead.to_resume(), self._consumer.resume, False),
        ):
            if queues:
                act((queue.topic, queue.partition) for queue in queues)
                for queue in queues:
                    queue.paused = paused
