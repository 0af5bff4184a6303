"""Send-backs and offsets of a PushConsumer in one transaction (`exactly_once=True`)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.bridge.writing.batch_size import BatchSize
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed, OutcomeUnknown
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import FailedMessage, Sender, points_of
from reconsume.delay_levels.errors import GroupIsFull, KafkaNotReachable, PartitionLost, SendBackFailed

logger = SafeLogger(__name__)

_AT_ONCE: Final = 500
"""Maximum of messages in one transaction."""
_AGAIN_SECONDS: Final = 0.5
_BRIEFLY_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 60.0
"""Limit of the wait for a transaction that another thread writes."""


class _Unresolved(NamedTuple):
    batch: Sequence[FailedMessage]
    points: Mapping[ProcessQueue, Commit]


@dataclass(eq=False, kw_only=True)
class TransactionalSender(Sender):
    """Writes failed messages and commits offsets in transactions, in a background thread.

    Guarantees:
        1. A send-back and the offset (or metadata) that marks its message as done are atomic: no crash sends a
           message back twice.
        2. The group metadata is taken before partitions are checked. If a partition is lost after the check, the
           group coordinator fences the transaction (KIP-447).
        3. A transaction with an unknown outcome is looked up before anything else is written.
        4. All commits of this consumer go through here, one after the other: a plain commit could move the offset back
           before a message that was sent back.
        5. A transaction that cannot be written in time is followed by smaller ones: see `BatchSize`.
        6. Only offsets of partitions that we owned all the time prove the outcome of a transaction. If only some of
           them have changed, another member has written: ask again when those partitions are known to be lost.
    Tests: tests/unit/consumers/sending/test_transactional_sender.py, tests/models/consumers/test_consumer_model.py.

    Attributes:
        writer: writes both in one transaction, and resolves unknown outcomes.
        group_metadata: returns the consumer's current metadata. Only the polling thread calls it, because
            confluent-kafka admits no other thread during a poll.
        known: gets the committed offsets.
        elapsed: monotonic milliseconds.
    """

    writer: ExactlyOnceWriter
    group_metadata: Callable[[], Any]
    known: KnownOffsets
    elapsed: Clock = monotonic_ms

    def __post_init__(self) -> None:
        self._unresolved: _Unresolved | None = None
        self._changed = threading.Condition()
        self._pending: list[FailedMessage] = []
        self._size = BatchSize(_AT_ONCE)
        self._to_commit: list[ProcessQueue] = []
        self._forgotten: WeakSet[ProcessQueue] = WeakSet()
        self._writing, self._until = threading.Lock(), math.inf
        self._asks = False
        self._metadata: Any = None
        self._closing = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reconsume-exactly-once", daemon=True)
        self._thread.start()

    def waiting_share(self) -> float:
        """Return the writer's fraction of `maxWaiting`."""
        return self.writer.limit.share(self.log.group)

    def write(self, failed: FailedMessage) -> None:
        """Put the message into the next transaction."""
        with self._changed:
            if failed.queue not in self._forgotten:
                self._pending.append(failed)
                self._changed.notify_all()

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit in the next transaction; raise the error that has ended the background thread."""
        if self._failure is not None:
            raise self._failure
        with self._changed:
            self._to_commit = [queue for queue in queues if queue.to_commit is not None]
            if self._to_commit:
                self._changed.notify_all()

    def serve(self) -> None:
        """Hand the background thread the group metadata that it has asked for."""
        if self._asks:
            metadata = self.group_metadata()
            with self._changed:
                self._metadata, self._asks = metadata, False
                self._changed.notify_all()

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> None:
        """Write the pending messages of these partitions now, in the caller's thread; the rest is read again."""
        leaving = set(queues)
        self.settle(leaving, seconds)
        self.forget(leaving)

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Write the pending messages of these partitions now, in the caller's thread; False if some remain."""
        leaving = set(queues)
        end = time.monotonic() + seconds
        written = self._wait_until_written(seconds)
        while leaving:
            with self._changed:
                self._to_commit = [queue for queue in leaving if queue.to_commit is not None]
            settled = self._settle(self.group_metadata(), max(0.0, end - time.monotonic()), end)
            if time.monotonic() >= end or not self._has_something_of(leaving):
                break
            if not settled:
                with self._changed:
                    self._changed.wait(_BRIEFLY_SECONDS)
        return written and not self._has_something_of(leaving)

    def forget(self, queues: Iterable[ProcessQueue]) -> None:
        """Send nothing more for lost partitions: their next owner has the messages."""
        gone = set(queues)
        with self._changed:
            self._forgotten |= gone
            kept = [one for one in self._pending if one.queue not in gone]
            given_up, self._pending = len(self._pending) - len(kept), kept
            self._to_commit = [queue for queue in self._to_commit if queue not in gone]
        _warn_of(given_up)

    def close(self) -> None:
        """End the threads; waiting messages stay uncommitted and are read again."""
        super().close()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait():
                if not self._settle(self._ask_for_metadata(), _PATIENCE_SECONDS):
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing, _AGAIN_SECONDS)
        except BaseException as error:
            self._failure = error
            logger.exception("thread of transactions ended")

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._to_commit or self._unresolved or self._closing)
            return not self._closing

    def _ask_for_metadata(self) -> Any:
        """Return current metadata from the polling thread; None at the end."""
        with self._changed:
            self._metadata, self._asks = None, True
            self._changed.wait_for(lambda: self._metadata is not None or self._closing)
            return self._metadata

    def _has_something_of(self, queues: set[ProcessQueue]) -> bool:
        with self._changed:
            waiting = [*self._pending, *(self._unresolved.batch if self._unresolved else ())]
            return any(one.queue in queues for one in waiting) or any(queue.to_commit is not None for queue in queues)

    def _settle(self, metadata: Any, seconds: float, until: float = math.inf) -> bool:
        """Write one transaction, if anything is pending; False to try again. After `until` no second one begins."""
        if metadata is None or not self._writing.acquire(timeout=seconds):
            return False
        self._until = until
        try:
            if not self._resolve():
                return False
            with self._changed:
                batch = self._next_batch()
                taken = set(batch)
                self._pending = [one for one in self._pending if one not in taken]
                queues, self._to_commit = self._to_commit, []
            return self._transact(batch, queues, metadata)
        finally:
            self._writing.release()

    def _next_batch(self) -> list[FailedMessage]:
        """Return pending messages for one transaction, at least one if any is in reach."""
        batch, size = list[FailedMessage](), 0
        for one in self._pending:
            if one.queue.in_reach(one.message):
                size += one.message.size
                if batch and (len(batch) >= self._size.records or size > self._size.bytes):
                    break
                batch.append(one)
        return batch

    def _transact(self, batch: Sequence[FailedMessage], queues: Iterable[ProcessQueue], metadata: Any) -> bool:
        done: dict[ProcessQueue, set[int]] = {queue: set() for queue in queues}
        for one in batch:
            done.setdefault(one.queue, set()).add(one.message.offset)
        points = {
            queue: point
            for queue, offsets in done.items()
            # Values that are committed already would prove nothing if the outcome had to be looked up.
            if (point := queue.commit_point(offsets)) is not None and point != queue.committed
        }
        if not points:
            self._keep(batch)
            # Messages beyond the reach of the metadata must wait until earlier messages are done.
            return not self._pending
        began = self.elapsed()
        try:
            self.writer.send_back(
                [Failed(one.request, one.message.key, one.message.body) for one in batch],
                points_of(points),
                metadata,
            )
        except OutcomeUnknown as error:
            logger.warning("%d failed messages may have been sent back: %s", len(batch), error)
            self._unresolved = _Unresolved(batch, points)
            self._took(batch, began, committed=False)
            return self._resolve()
        except (PartitionLost, KafkaNotReachable) as error:
            logger.warning("retrying %d failed messages: %s", len(batch), error)
            self._keep(batch)
            self._took(batch, began, committed=False)
            return False
        except SendBackFailed as error:
            return self._refused(batch, metadata, error)
        self._took(batch, began, committed=True)
        self._done(batch, points)
        return True

    def _took(self, batch: Sequence[FailedMessage], began: float, *, committed: bool) -> None:
        """Learn the size of the next transactions; one of offsets alone says nothing about it."""
        if batch:
            size = sum(one.message.size for one in batch)
            self._size.took(len(batch), size, self.elapsed() - began, committed=committed)

    def _resolve(self) -> bool:
        """Resolve unknown outcomes; return whether none is left."""
        if self._unresolved is None:
            return True
        batch, points = self._unresolved
        with self._changed:
            ours = points_of({queue: point for queue, point in points.items() if queue not in self._forgotten})
        try:
            committed = self.writer.was_committed(ours) if ours else False
        except (KafkaNotReachable, PartitionLost) as error:
            logger.warning("%s", error)
            return False
        logger.warning(
            "the transaction of %d failed messages was %s", len(batch), "committed" if committed else "undone"
        )
        self._unresolved = None
        if committed:
            self._done(batch, points)
        else:
            self._keep(batch)
        return True

    def _refused(self, batch: Sequence[FailedMessage], metadata: Any, error: SendBackFailed) -> bool:
        """Find out which message was refused: the others must not suffer for it."""
        if not batch:
            logger.warning("offsets not committed: %s", error)
            return False
        if len(batch) == 1:
            batch[0].done(error)
            return True
        rest, settled = _parts(batch, error), True
        # After an outage or a rebalance each of the others would fail too, as slowly; a shutdown waits for this thread,
        # and a rebalance for `settle`.
        while rest and settled and not self._closing and time.monotonic() < self._until:
            settled = self._transact(rest.pop(0), (), metadata)
        self._keep(list(chain.from_iterable(rest)))
        return settled and not rest

    def _keep(self, batch: Sequence[FailedMessage]) -> None:
        with self._changed:
            kept = [one for one in batch if one.queue not in self._forgotten]
            self._pending[:0] = kept
        _warn_of(len(batch) - len(kept))

    def _done(self, batch: Iterable[FailedMessage], points: Mapping[ProcessQueue, Commit]) -> None:
        self.known.note(points_of(points))
        for queue, point in points.items():
            queue.committed = point
        for one in batch:
            one.done(None)


def _warn_of(given_up: int) -> None:
    if given_up:
        logger.warning(
            "%d failed messages were not sent back before their partitions moved; they are read again", given_up
        )


def _parts(batch: Sequence[FailedMessage], error: SendBackFailed) -> list[Sequence[FailedMessage]]:
    """Split a refused batch into single messages; retries of a full group stay together, since none is refused."""
    retries = [one for one in batch if one.request.stored.reconsume_times > 0]
    if not isinstance(error, GroupIsFull) or len(retries) in (0, len(batch)):
        return [[one] for one in batch]
    return [retries, *([one] for one in batch if one.request.stored.reconsume_times == 0)]
