"""Reads on where a worker is late, and finds the records of small groups behind those of one that floods."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.scheduler.queues.out_of_turn import Waits, offset_of
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.delay_levels.progress.overtaking import Overtaking
from reconsume.delay_levels.wire.properties import REAL_TOPIC

__all__ = ["Scout"]

logger = logging.getLogger(__name__)

_LATE_MS: Final = 1_000.0
_RECOVERED_MS: Final = 500.0
_GRACE_MS: Final = 5_000.0
"""What is over by then needs no second reading, which takes a third of the deliveries while it lasts."""
_SLICE: Final = 500
"""Records that are looked at together: of 5,000 each would cost half as much again, because they leave the caches."""
_MOST_SLICES: Final = 100
_LONGEST_MS: Final = 2_000.0
"""A turn takes so many, and so long, at most, so that the worker is back soon."""
_MOST_UNSEEN: Final = 2_000
"""Records of a partition that are read and not due; with more of them reading stops."""
_IDLE_MS: Final = 60_000
_AGAIN_MS: Final = 10_000


@dataclass(slots=True)
class _Survey:
    """Of one partition.

    Attributes:
        unseen: read and not looked at, because they are not due.
        next: the offset that is read next.
    """

    queue: PartitionQueue
    overtaking: Overtaking
    next: int
    unseen: deque[Message] = field(default_factory=deque)
    paused: bool = False

    @property
    def where(self) -> Partition:
        return self.queue.topic, self.queue.partition

    def look(self, records: Iterable[Waits]) -> None:
        """At the next ones, which are due; some may have left in their turn."""
        head, done = self.queue.head, () if self.queue.out_of_turn is None else self.queue.out_of_turn.done
        new = [one for one in records if (offset := offset_of(one[1])) >= head and offset not in done]
        looked = [(offset_of(message), _real_topic(message)) for _, message in new]
        chosen = self.overtaking.choose(looked, head)
        if chosen:
            self.queue.overtake(one for one in new if offset_of(one[1]) in chosen)

    def catch_up(self, now_ms: float) -> None:
        """With the worker, if it has read further meanwhile: at the start nothing is at hand here for a moment."""
        if self.queue.next_offset > self.next:
            self.look(self.due(now_ms))
            if not self.unseen:
                records = self.queue.due_from(self.next, now_ms)
                self.look(records)
                self.next = offset_of(records[-1][1]) + 1 if records else self.next

    def due(self, now_ms: float) -> Iterator[Waits]:
        """Takes what is due of what was read."""
        delay_ms = self.queue.delay_ms
        while self.unseen:
            kind, append_ms = self.unseen[0].timestamp()
            if kind != TIMESTAMP_LOG_APPEND_TIME or append_ms + delay_ms > now_ms:
                return
            yield append_ms + delay_ms, self.unseen.popleft()


class Scout:
    """Looks at a partition whose head is late, beyond what the worker has read, as far as records are due.

    To look at a record costs a small part of what its delivery costs. What is chosen is left to the queue of the
    partition. Nothing depends on it: what is not found, or is forgotten, leaves in its turn.

    It begins when a head has been late by a second for 5 s and all that was read is due. Its consumer takes part in no
    assignment. Who overtook is committed beside the offset, in the same transaction; the next owner asks for it with
    the first record of the partition. In `DELAY.0s` nothing overtakes.
    Tests: tests/unit/bridge/scheduler/queues/test_second_reader.py, tests/unit/bridge/scheduler/test_worker_model.py,
    tests/integration/test_scheduler_fairness.py.

    Everything happens in the worker's thread.

    Args:
        make: a consumer that reads committed records and is given offsets; it is made when it is needed.
        monotonic: milliseconds since some moment.
        grace_ms: so long a partition is late before it is looked at.
    """

    def __init__(
        self, make: Callable[[], Consumer], monotonic: Clock = monotonic_ms, grace_ms: float = _GRACE_MS
    ) -> None:
        self._make = make
        self._monotonic = monotonic
        self._grace_ms = grace_ms
        self._late_since: dict[Partition, float] = {}
        self._consumer: Consumer | None = None
        self._surveys: dict[Partition, _Survey] = {}
        self._used_ms = 0.0
        self._not_before_ms = float("-inf")

    @property
    def is_at_work(self) -> bool:
        """Whether something may have been chosen."""
        return bool(self._surveys)

    def look(self, read_ahead: ReadAhead, now_ms: float) -> None:
        """Look at more of the partitions that are late, at most 50,000 records."""
        passed = self._monotonic()
        if passed < self._not_before_ms:
            return
        try:
            self._end_some(read_ahead, now_ms)
            for queue in self._late_for_long(read_ahead, now_ms, passed):
                self._begin(queue)
            if self._surveys:
                self._used_ms = passed
                self._read(now_ms, passed + _LONGEST_MS)
            elif self._consumer is not None and passed - self._used_ms > _IDLE_MS:
                self.close()
        except KafkaException as error:
            logger.warning("small groups wait for their turn: %s", translate(error, "reading on"))
            self._not_before_ms = passed + _AGAIN_MS
            self.close()

    def _late_for_long(self, read_ahead: ReadAhead, now_ms: float, passed: float) -> Iterator[PartitionQueue]:
        """Those that are not looked at yet."""
        since = self._late_since
        for queue in read_ahead:
            if queue.is_flooded(now_ms, _LATE_MS):
                where = queue.topic, queue.partition
                if where not in self._surveys and passed - since.setdefault(where, passed) >= self._grace_ms:
                    yield queue
            elif since and queue.has_recovered(now_ms, _RECOVERED_MS):
                since.pop((queue.topic, queue.partition), None)

    def _end_some(self, read_ahead: ReadAhead, now_ms: float) -> None:
        """Of partitions that are gone, or in time again."""
        if not self._surveys:
            return
        here = {(queue.topic, queue.partition): queue for queue in read_ahead}
        for where, survey in list(self._surveys.items()):
            queue = survey.queue
            if here.get(where) is not queue or queue.has_recovered(now_ms, _RECOVERED_MS):
                self._end(where)

    def _begin(self, queue: PartitionQueue) -> None:
        """With what the worker has read, from the head on; then where it reads on."""
        if self._consumer is None:
            self._consumer = self._make()
        if queue.out_of_turn is not None:
            queue.out_of_turn.chosen.clear()
        done = () if queue.out_of_turn is None else queue.out_of_turn.done
        survey = _Survey(queue, Overtaking(done), queue.head)
        self._consumer.incremental_assign([TopicPartition(*survey.where, queue.next_offset)])
        self._surveys[survey.where] = survey

    def _end(self, where: Partition) -> None:
        assert self._consumer is not None
        del self._surveys[where]
        self._consumer.incremental_unassign([TopicPartition(*where)])

    def _read(self, now_ms: float, until: float) -> None:
        assert self._consumer is not None
        for survey in self._surveys.values():
            survey.catch_up(now_ms)
        for _ in range(_MOST_SLICES):
            messages = self._consumer.consume(_SLICE, 0)
            for message in messages:
                self._keep(message)
            for survey in self._surveys.values():
                if survey.unseen:
                    survey.look(survey.due(now_ms))
                self._pause_or_resume(survey)
            if not messages or self._monotonic() > until:
                break

    def _keep(self, message: Message) -> None:
        where = message.topic() or "", message.partition() or 0
        error = message.error()
        survey = self._surveys.get(where)
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise KafkaException(error)
            logger.debug("%s", translate(error, f"reading on in {where[0]}"))
        elif survey is not None and (offset := offset_of(message)) >= survey.next:
            survey.next = offset + 1
            survey.unseen.append(message)

    def _pause_or_resume(self, survey: _Survey) -> None:
        assert self._consumer is not None
        if not survey.paused and len(survey.unseen) > _MOST_UNSEEN:
            self._consumer.pause([TopicPartition(*survey.where)])
            survey.paused = True
        elif survey.paused and not survey.unseen:
            self._consumer.resume([TopicPartition(*survey.where)])
            survey.paused = False

    def close(self) -> None:
        """Let go; it begins anew when it is needed."""
        self._surveys.clear()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _real_topic(message: Message) -> bytes | None:
    """Whom the record is for; our headers are the last ones, and of duplicates the last counts."""
    for name, value in reversed(headers_of(message)):
        if name == REAL_TOPIC:
            return value
    return None
