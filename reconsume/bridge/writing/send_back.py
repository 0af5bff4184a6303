"""Writes send-backs to Kafka and reports their acknowledgements."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import clock_of
from reconsume.bridge.kafka.lasting_producer import LastingProducer, ProducedRecord
from reconsume.bridge.kafka.partitioning import choose_partition
from reconsume.bridge.process.safe_logger import LimitedLogger, SafeLogger
from reconsume.bridge.topics.existing_topics import ExistingTopics
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.bridge.writing.waiting_limit import OnDone, WaitingLimit
from reconsume.delay_levels.errors import (
    GroupIsFull,
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    RecordTooLarge,
    SendBackFailed,
    TopicNotReady,
)
from reconsume.delay_levels.wire.inbox import inbox_copy
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import SendBackCopy, SendBackRequest, send_back_copy

logger = SafeLogger(__name__)

OnWritten = Callable[[SendBackCopy, int], None]
"""Called before that with the acknowledged copy and its append time."""

_SERVE_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 60.0
_SHUT_DOWN: Final = KafkaNotReachable("shut down before it was sent back")


def _nobody_asks(_copy: SendBackCopy, _stored_ms: int) -> None:
    """Do nothing: most callers only need the acknowledgement."""


def _both(first: ReconsumeError, second: ReconsumeError) -> SendBackFailed:
    """Return the error if both ways failed; what only one of them refuses may succeed later."""
    failed = SendBackFailed(f"{first}; then {second}")
    failed.__cause__ = second if isinstance(first, RecordTooLarge) or not isinstance(second, KafkaRefused) else first
    return failed


@dataclass(slots=True, eq=False)
class _SendBack(ProducedRecord):
    """A send-back: first the copy for the delay topic, and after a refusal the one for the inbox.

    One object holds everything: thousands are in flight at a time, and Python's garbage collector visits each.

    Attributes:
        writer: writes it.
        request: the send-back request.
        key: the failed record's key.
        value: the failed record's value.
        on_done: called once at the end.
        on_written: called before that after an acknowledgement.
        copy: the copy in flight.
        first: the refusal of the direct copy; None while that copy is in flight.
    """

    writer: SendBackWriter
    request: SendBackRequest
    key: bytes | None
    value: bytes | None
    on_done: OnDone
    on_written: OnWritten
    copy: SendBackCopy = field(init=False)
    first: ReconsumeError | None = field(init=False, default=None)

    @property
    def doing(self) -> str:
        """Return the beginning of error messages."""
        return f"sending back to {self.copy.topic}"

    def written(self, partition: int, offset: int, stored_ms: int) -> None:
        """Note the acknowledgement."""
        del partition, offset
        self.writer.limit.sent(self.request.group, self.copy.topic)
        self.on_written(self.copy, stored_ms)
        if self.first is not None:
            self.writer.inbox_logger.warning("%s; sent through %s instead", self.first, self.copy.topic)
        self.on_done(None)

    def refused(self, error: ReconsumeError) -> None:
        """Note that this copy is not stored, perhaps because its topic is gone."""
        if self.first is None:
            self.writer.look_again_for(self.copy.topic)
        self.take_next_way(error)

    def take_next_way(self, error: ReconsumeError) -> None:
        """Try the other copy after a refusal, or report the failure."""
        if self.first is None:
            self.writer.write_to_inbox(self, error)
        else:
            self.on_done(_both(self.first, error))


def direct_copy(
    request: SendBackRequest, key: bytes | None, names: TopicNames, groups: Groups, failed_ms: float
) -> SendBackCopy | None:
    """Return the copy by the send-back rule; None for a group without retry queues.

    Raises:
        SubscriptionGroupNotExist: the group must be registered first.
    """
    config = groups.find(request.group)
    if config.retry_queue_nums <= 0:
        # RocketMQ: BR-04. The consumer has logged a warning at its start.
        return None
    return send_back_copy(
        request,
        names,
        config.policy(groups.table),
        group_max_reconsume_times=config.retry_max_times,
        real_qid=choose_partition(key, config.retry_queue_nums),
        failed_ms=failed_ms,
    )


class SendBackWriter:
    """Sends failed messages back. Safe to use from several threads.

    Guarantees: `send_back` never blocks, because the poll loop calls it. A record whose topic was never looked up, or
    that the full producer refuses, waits in a background thread, which looks each topic up once.
    Test: tests/unit/bridge/writing/test_send_back_writer.py.

    A send-back that fails is tried once more as an ordinary message to the SEND_BACK inbox (RocketMQ: SB-04, SB-05);
    after that the caller must keep the message; if both ways refuse it, the error's cause is a `KafkaRefused`.
    While no broker answers nothing fails: the record waits, because a second copy of a stored record would be a
    duplicate (RocketMQ: SB-13). Only an unusable producer is replaced, and its records are tried again.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        groups: the groups as known now.
        client_id: shown in the brokers' logs.

    Attributes:
        limit: the limit of the groups' waiting messages.
        inbox_logger: logs send-backs that took the inbox.
    """

    def __init__(
        self, base: Mapping[str, Any], names: TopicNames, groups: Callable[[], Groups], client_id: str
    ) -> None:
        self._names = names
        self._groups = groups
        self._clock = clock_of(base)
        self._stop = threading.Event()
        self._existing = ExistingTopics(KafkaAdmin(base, client_id, stop=self._stop))
        self._lanes = LanePartitions(groups)
        self.limit = WaitingLimit(base, names, groups, client_id)
        self.inbox_logger = LimitedLogger(__name__)
        self._producer = LastingProducer(producer_settings(base, client_id))
        self._waiting: dict[str, deque[_SendBack]] = {}
        self._changed = threading.Condition()
        self._settling = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="reconsume-send-back", daemon=True)
        self._thread.start()
        self._lookups = threading.Thread(target=self._look_up, name="reconsume-send-back-lookups", daemon=True)
        self._lookups.start()

    def send_back(
        self,
        request: SendBackRequest,
        key: bytes | None,
        value: bytes | None,
        on_done: OnDone,
        on_written: OnWritten = _nobody_asks,
    ) -> None:
        """Write the copy by the send-back rule; `on_done` may be called in another thread."""
        one = _SendBack(self, request, key, value, on_done, on_written)
        try:
            copy = direct_copy(request, key, self._names, self._groups(), self._clock())
            if copy is not None:
                one.on_done = self.limit.admit(request, copy, on_done)
        except GroupIsFull as error:
            on_done(error)
            return
        except ReconsumeError as error:
            self.write_to_inbox(one, error)
            return
        if copy is None:
            on_done(None)
        else:
            one.copy = copy
            self._write(one)

    def flush(self, seconds: float) -> int:
        """Wait for all acknowledgements; return how many are missing."""
        end = time.monotonic() + seconds
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting, max(0.0, end - time.monotonic()))
            self._producer.flush(max(0.0, end - time.monotonic()))
            with self._changed:
                open_ones = sum(map(len, self._waiting.values())) + len(self._producer)
            # Failed ones may wait again, for the inbox.
            if not open_ones or time.monotonic() >= end:
                return open_ones

    def close(self) -> None:
        """Stop; unacknowledged records are given up, and their `on_done` gets an error."""
        self._stop.set()  # first, so that records given up are not tried again through the inbox
        self.limit.close()
        with self._changed:
            self._changed.notify_all()
        # The look-up thread may wait for an answer; then it finds nothing left to do.
        with closing(self._producer):
            try:
                for topic in list(self._waiting):
                    self._settle(topic, _SHUT_DOWN)
            finally:
                self._thread.join()

    def write_to_inbox(self, one: _SendBack, first: ReconsumeError) -> None:
        """Try the inbox after a refusal."""
        if self._stop.is_set():
            one.on_done(SendBackFailed(str(first)))
            return
        one.copy, one.first = inbox_copy(one.request, self._names, self._clock()), first
        self._write(one)

    def look_again_for(self, topic: str) -> None:
        """Look the topic up before its next record."""
        self._existing.forget(topic)

    def _write(self, one: _SendBack) -> None:
        """Produce at once if the topic is known and the producer has room; else leave it to the background thread."""
        topic = one.copy.topic
        if self._existing.known(topic) is not None and not self._stop.is_set():
            try:
                self._produce(one)
            except BufferError:
                pass
            else:
                return
        with self._changed:
            if not self._stop.is_set():
                self._waiting.setdefault(topic, deque()).append(one)
                self._changed.notify_all()
                return
        one.take_next_way(_SHUT_DOWN)

    def _produce(self, one: _SendBack) -> None:
        """Produce the record; the inbox has no bulk partitions.

        Raises:
            BufferError: the producer's queue is full.
        """
        topic, partition = one.copy.topic, ANY_PARTITION
        if one.first is None:
            partition = self._lanes.choose(topic, self._existing.known(topic) or 0, one.request.group, one.key)
        try:
            self._produce_to(partition, one)
        except ReconsumeError as error:
            # The copy is larger than any producer may send, or the producer is broken.
            one.refused(error)
        except BufferError:
            raise
        except Exception as error:  # noqa: BLE001 - reported to the caller
            # confluent-kafka takes no such record, such as one with a number as a header, also not for the inbox.
            failed = SendBackFailed(f"{one.doing}: {type(error).__name__}: {error}")
            failed.__cause__ = error
            one.on_done(failed)

    def _produce_to(self, partition: int, one: _SendBack) -> None:
        """Produce to the partition, or to any one while the producer does not know that it was added."""
        try:
            self._producer.write(one, one.copy.topic, one.value, one.key, partition, one.copy.headers)
        except TopicNotReady:
            if partition == ANY_PARTITION:
                raise
            self._produce_to(ANY_PARTITION, one)

    def _look_up(self) -> None:
        """Look up one topic after the other; a topic without an answer delays no other."""
        unanswered: Counter[str] = Counter()
        while not self._stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stop.is_set(), _LOOK_AGAIN_SECONDS)
                topic = min(self._waiting, key=lambda one: unanswered[one], default="")
            if not topic:
                self._existing.look_again()
                continue
            try:
                self._existing.require(topic)
            except KafkaNotReachable as error:
                # Whether it exists is unknown, so nothing has failed yet.
                logger.warning("%s; trying again", error)
                unanswered[topic] += 1
                self._stop.wait(_AGAIN_SECONDS)
            except ReconsumeError as error:
                unanswered.pop(topic, None)
                self._settle(topic, error)
            except Exception:
                # Without this thread all records of unknown topics would wait forever.
                logger.exception("topic %s was not looked up, trying again", topic)
                unanswered[topic] += 1
                self._stop.wait(_AGAIN_SECONDS)
            else:
                unanswered.pop(topic, None)
                self._settle(topic, None)

    def _settle(self, topic: str, error: ReconsumeError | None) -> None:
        """Produce or refuse all records that wait for a topic; each once, in any thread."""
        with self._settling:
            for _ in range(len(self._waiting.get(topic, ()))):
                # Only settling threads remove records, and a record counts as waiting until the producer has it.
                self._settle_one(self._waiting[topic][0], error)
                with self._changed:
                    self._waiting[topic].popleft()
            with self._changed:
                if not self._waiting.get(topic, True):
                    del self._waiting[topic]
                    self._changed.notify_all()

    def _settle_one(self, one: _SendBack, error: ReconsumeError | None) -> None:
        while error is None:
            try:
                self._produce(one)
            except BufferError:
                if self._stop.wait(_SERVE_SECONDS):
                    error = _SHUT_DOWN
            else:
                return
        one.take_next_way(error)

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.serve(_SERVE_SECONDS)
            except Exception:
                # Without this thread no send-back would be acknowledged.
                logger.exception("serving acknowledgements of send-backs failed, trying again")
                self._stop.wait(_SERVE_SECONDS)
