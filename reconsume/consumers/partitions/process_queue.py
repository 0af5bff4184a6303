"""The messages of one partition that are read and not finished (RocketMQ's ProcessQueue)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import cast

from reconsume.bridge.kafka.admin import Commit
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.partitions.batch import LazyMessages, PolledBatch, bytes_of, sorted_offsets
from reconsume.delay_levels.progress.done_ahead import LONGEST_SPAN
from reconsume.delay_levels.progress.metadata import KeptProgress, encode_progress
from reconsume.delay_levels.progress.progress import OffsetProgress

__all__ = ["BatchPart", "ProcessQueue", "parts_of"]

_ONE_READ = 1_000
"""So many offsets one more read may add after a queue was found to have room."""


class ProcessQueue:
    """Safe to use from several threads.

    Guarantees:
        1. Of everybody who wants to decide a message's fate (its listener's result, its timeout) only the first
           one may: `claim` is True once. So a message that timed out is not sent back twice.
        2. After `drop` nothing may be claimed any more: the partition has another owner (RocketMQ: CC-15).
        3. What was finished before a restart is not begun again, and what had failed here keeps its count.
    Test: tests/unit/consumers/partitions/test_process_queue.py.

    A `BatchPart` whose listener succeeds costs its thread no lock and no look at a record: it goes into `_running`, and
    from there its batch and its ends go into `_succeeded`, each in one step that no other thread can be in the middle
    of; whoever takes it out of `_running` decides about it. What asks for progress notes all successes at once: if as
    many succeeded as were unfinished, it was all of them. No object is made that outlives the call, because those make
    Python's garbage collection run, a fifth of the cost of single messages: benchmarks/consumers.py.

    Args:
        topic: in Kafka.
        partition: its number.

    Attributes:
        message_queue: as listeners see it; whoever calls them sets it.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.paused = False
        self.committed: Commit | None = None
        self.message_queue: MessageQueue | None = None
        self._lock = threading.Lock()
        self._progress = OffsetProgress()
        self._failures: dict[int, int] = {}
        self._claimed: set[int] = set()
        self._started: dict[int, tuple[float, Message]] = {}
        self._running: dict[BatchPart, float] = {}
        self._succeeded: list[PolledBatch | int] = []
        self._dropped = False
        self._bytes = 0

    def keep(self, kept: KeptProgress, committed: int) -> None:
        """Before the first message is begun: what an earlier owner has committed, and has left beside that."""
        with self._lock:
            self._progress = OffsetProgress(kept.done, committed)
            self._failures = dict(kept.failures)

    def begin(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Take note of messages that were read; gives those that are not finished already.

        What was begun here is left out: around a rebalance librdkafka may give again what it has given. It may also
        give a record of an earlier assignment, which has been finished elsewhere since.
        """
        with self._lock:
            self._note_successes()
            if isinstance(messages, PolledBatch) and self._begin_batch(messages):
                return messages
            return self._begin_each(messages)

    def _begin_batch(self, batch: PolledBatch) -> bool:
        first = batch.first_offset
        if self._failures or self._progress.was_begun(first):
            return False
        if not self._progress.begin_all(batch.offsets()):
            return False
        self._bytes += bytes_of(batch.polled)
        return True

    def _begin_each(self, messages: Sequence[Message]) -> list[Message]:
        if messages and self._progress.was_begun(messages[0].offset):
            messages = [message for message in messages if not self._progress.was_begun(message.offset)]
        if self._progress.begin_all([message.offset for message in messages]):
            begun = list(messages)
        else:
            begun = [message for message in messages if self._progress.begin(message.offset)]
        self._bytes += sum([message.size for message in begun])
        if not self._failures:
            return begun
        return [
            message.failed_again_locally(times) if (times := self._failures.get(message.offset, 0)) else message
            for message in begun
        ]

    def start(self, messages: Sequence[Message], now_ms: float) -> bool:
        """Take note that a listener is about to be called; False if it must not be.

        A message may be finished here: its timeout could not send it back, so it was to be tried again, and then the
        late listener succeeded after all.
        """
        if isinstance(messages, BatchPart):
            return self.start_part(messages, now_ms)
        with self._lock:
            if self._dropped:
                return False
            unfinished = False
            for message in messages:
                if self._progress.is_unfinished(message.offset):
                    self._started[message.offset] = (now_ms, message)
                    unfinished = True
            return unfinished

    def start_part(self, part: BatchPart, now_ms: float) -> bool:
        """The same for messages that no listener was given before, so none of them is finished."""
        if self._dropped:
            return False
        self._running[part] = now_ms
        return True

    def take_apart(self, messages: Sequence[Message]) -> None:
        """Not all of them have the same fate: what was started as a `BatchPart` is, from now on, single messages."""
        if isinstance(messages, BatchPart):
            with self._lock:
                self._take_apart(messages)

    def _take_apart(self, part: BatchPart) -> None:
        started = self._running.pop(part, None)
        if started is not None:
            self._started.update((message.offset, (started, message)) for message in part)

    def claim(self, message: Message) -> bool:
        """The right to decide what becomes of a message; True only the first time."""
        offset = message.offset
        with self._lock:
            if self._dropped or not self._is_undecided(offset):
                return False
            self._claimed.add(offset)
            self._started.pop(offset, None)
            return True

    def succeed(self, messages: Sequence[Message]) -> None:
        """`claim` and `finish` for a whole batch: those whose fate somebody else has decided are left out."""
        if isinstance(messages, BatchPart):
            self.succeed_part(messages)
        else:
            self._succeed_each(messages)

    def succeed_part(self, part: BatchPart) -> None:
        """The same for one that was started as such."""
        if self._running.pop(part, None) is None:
            self._succeed_each(part)
        elif not self._dropped:
            self._succeeded.extend((part.batch, part.start, part.end))

    def _succeed_each(self, messages: Iterable[Message]) -> None:
        with self._lock:
            if self._dropped:
                return
            for message in messages:
                offset = message.offset
                self._started.pop(offset, None)
                if self._is_undecided(offset):
                    self._failures.pop(offset, None)
                    self._progress.finish(offset)
                    self._bytes -= message.size

    def _note_successes(self) -> None:
        """The caller holds the lock; many small parts are as cheap as a large one."""
        noted = self._succeeded[:]
        if not noted:
            return
        del self._succeeded[: len(noted)]  # others come behind them meanwhile
        batches = cast("list[PolledBatch]", noted[::3])
        starts, ends = cast("list[int]", noted[1::3]), cast("list[int]", noted[2::3])
        if sum(ends) - sum(starts) == self._progress.unfinished and not self._failures:
            self._progress.finish_everything()
            self._bytes = 0
            return
        slices = map(slice, starts, ends)
        records = list(chain.from_iterable(batch.polled[one] for batch, one in zip(batches, slices, strict=True)))
        offsets = sorted_offsets(records)
        self._progress.finish_all(offsets)
        self._bytes -= bytes_of(records)
        if self._failures:
            for offset in offsets:
                self._failures.pop(offset, None)

    def release(self, message: Message) -> bool:
        """Give the right back: the message is tried again here; False if the partition is gone."""
        with self._lock:
            self._claimed.discard(message.offset)
            return not self._dropped

    def failed(self, message: Message) -> None:
        """It is tried again here, and its count is to outlive a restart."""
        with self._lock:
            self._failures[message.offset] = self._failures.get(message.offset, 0) + 1

    def finish(self, message: Message) -> None:
        """The message needs nothing more: its listener succeeded or its send-back is acknowledged."""
        offset = message.offset
        with self._lock:
            self._claimed.discard(offset)
            self._failures.pop(offset, None)
            if self._progress.finish(offset):
                self._bytes -= message.size

    def _is_undecided(self, offset: int) -> bool:
        return offset not in self._claimed and self._progress.is_unfinished(offset)

    def expired(self, started_before_ms: float) -> list[Message]:
        """Messages whose listener was called before that moment and has not returned (RocketMQ: EX-03)."""
        with self._lock:
            for part, started in self._running.copy().items():
                if started < started_before_ms:
                    self._take_apart(part)
            return [message for started, message in self._started.values() if started < started_before_ms]

    def drop(self) -> None:
        """The partition is revoked, or the consumer stops."""
        with self._lock:
            self._dropped = True

    @property
    def dropped(self) -> bool:
        """Whether results for this partition are of no use any more."""
        return self._dropped

    def commit_point(self, also_finished: Collection[int] = ()) -> Commit | None:
        """What to commit (RocketMQ: CC-13, CC-14), also when these offsets are finished; None before a message."""
        with self._lock:
            self._note_successes()
            after = self._progress.after(also_finished)
            if after is None:
                return None
            safe, done = after
            if not done and not self._failures:
                return Commit(safe, "")
            failures = {one: times for one, times in self._failures.items() if one not in also_finished}
            return Commit(safe, encode_progress(safe, done, failures))

    @property
    def to_commit(self) -> Commit | None:
        """The commit point if it was not committed yet, else None."""
        point = self.commit_point()
        return point if point != self.committed else None

    def in_reach(self, message: Message) -> bool:
        """Whether a commit can say that this message is done ahead of those in front of it."""
        with self._lock:
            self._note_successes()
            safe = self._progress.safe_offset
        return safe is None or message.offset - safe < LONGEST_SPAN

    @property
    def size(self) -> int:
        """Messages read and not finished."""
        with self._lock:
            self._note_successes()
            return self._progress.unfinished

    def is_full(self, threshold: int, threshold_bytes: int, max_span: int) -> bool:
        """Whether reading must wait (RocketMQ: FC-02, FC-03), also for room in the commit's metadata."""
        with self._lock:
            self._note_successes()
            return (
                self._progress.unfinished >= threshold
                or self._bytes >= threshold_bytes
                or self._progress.span >= min(max_span, LONGEST_SPAN - _ONE_READ)
            )


class BatchPart(LazyMessages):
    """Some messages of a batch, for one call of a listener, the first that they are given to.

    Attributes:
        batch: which was begun in the queue.
        start: place of the first message in it.
        end: place behind the last one.
        queue: the queue.
    """

    __slots__ = ("batch", "end", "queue", "start")

    def __init__(self, batch: PolledBatch, start: int, end: int, queue: ProcessQueue) -> None:
        self.batch = batch
        self.start = start
        self.end = end
        self.queue = queue
        self._made = None

    def _make(self) -> tuple[Message, ...]:
        return self.batch.made(self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start


def parts_of(batch: PolledBatch, size: int, queue: ProcessQueue) -> Iterator[BatchPart]:
    """The batch in parts of so many messages.

    Threads may take them from one iterator: the ends of a part are found in C, which no other thread interrupts.
    Test: tests/unit/consumers/partitions/test_batch.py.
    """
    total = len(batch)
    return map(
        BatchPart, repeat(batch), range(0, total, size), chain(range(size, total, size), (total,)), repeat(queue)
    )
