"""The unfinished messages of a partition (RocketMQ's ProcessQueue)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import cast

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.process.polled_records import bytes_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.partitions.batch import LazyMessages, PolledBatch, offsets_of
from reconsume.delay_levels.progress.done_ahead import LONGEST_SPAN
from reconsume.delay_levels.progress.metadata import KeptProgress, encode_progress
from reconsume.delay_levels.progress.progress import OffsetProgress

logger = SafeLogger(__name__)

_ONE_READ = 1_000
"""The maximum of offsets that one more read can add after a queue was found to have room."""


class ProcessQueue:
    """The unfinished messages of a partition. Safe to use from several threads.

    Guarantees:
        1. The listener's result and the timeout compete for a chunk, and only the first counts: `take` is True once.
           So a message that timed out is not sent back twice.
        2. After `drop` no chunk can be taken: the partition has another owner (RocketMQ: CC-15).
        3. After a restart, finished messages are not started again, and messages that failed in place keep their count.
    Test: tests/unit/consumers/partitions/test_process_queue.py.

    A chunk of a `PolledBatch` whose listener succeeds costs its thread no lock and no access to a record: it goes into
    `running`, and from there its batch, start and end go into `_succeeded`, each in one step that other threads cannot
    interrupt. A request for progress applies all successes at once: if as many succeeded as were unfinished, all are
    finished. No object outlives the call, because such objects make Python's garbage collection run, a fifth of the
    cost of single messages: benchmarks/consumers.py.

    Args:
        topic: the Kafka topic.
        partition: the number of the partition.
        message_queue: the name that listeners see, if it differs.

    Attributes:
        first: the start, if it was chosen here and a later owner would choose another one; else None.
        held: records read before it is known which of them are done; None from then on.
        dropped: whether the partition was revoked, so that results no longer count.
        running: the chunks in listeners, and when each started.
    """

    def __init__(self, topic: str, partition: int, message_queue: MessageQueue | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.paused = False
        self.committed: Commit | None = None
        self.message_queue = message_queue or MessageQueue(topic, partition)
        self.held: list[Sequence[Message]] | None = []
        self._lock = threading.Lock()
        self._progress = OffsetProgress()
        self._failures: dict[int, int] = {}
        self.running: dict[Chunk, float] = {}
        self._succeeded: list[PolledBatch | int] = []
        self.first: int | None = None
        self.dropped = False
        self._bytes = 0

    @property
    def where(self) -> Partition:
        """Topic and partition."""
        return self.topic, self.partition

    def keep(self, kept: KeptProgress, committed: int) -> None:
        """Set the start before the first message: committed offset and progress of an earlier owner."""
        with self._lock:
            self._progress = OffsetProgress(kept.done, committed)
            self._failures = dict(kept.failures)

    def begin(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Note messages that were read; return those that are not finished yet.

        Started messages are left out: around a rebalance librdkafka may return records again. It may also return a
        record of an earlier assignment that another member has finished since, or a record twice in one read.
        """
        with self._lock:
            self._note_successes()
            if isinstance(messages, PolledBatch) and self._begin_batch(messages):
                return messages
            return self._begin_each(messages)

    def _begin_batch(self, batch: PolledBatch) -> bool:
        offsets = batch.offsets()
        if self._failures or self._progress.was_begun(offsets[0]) or _has_copies(offsets):
            return False
        if not self._progress.begin_all(offsets):
            return False
        self._bytes += bytes_of(batch.polled)
        return True

    def _begin_each(self, messages: Sequence[Message]) -> list[Message]:
        if messages and self._progress.was_begun(messages[0].offset):
            messages = [message for message in messages if not self._progress.was_begun(message.offset)]
        if _has_copies([message.offset for message in messages]):
            messages = self._without_copies(messages)
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

    def _without_copies(self, messages: Sequence[Message]) -> list[Message]:
        """Keep one message of each offset; offsets that do not rise then are an error, since none may be skipped."""
        left = list({message.offset: message for message in messages}.values())
        copies = len(messages) - len(left)
        logger.info("records read twice topic=%s partition=%d copies=%d", self.topic, self.partition, copies)
        return left

    def start(self, chunk: Chunk, now: float) -> bool:
        """Record that a listener is about to be called; return False if it must not be."""
        if self.dropped:
            return False
        self.running[chunk] = now
        return True

    def take(self, chunk: Chunk) -> bool:
        """Take the right to decide about a started chunk; return True only the first time."""
        return self.running.pop(chunk, None) is not None and not self.dropped

    def succeed(self, chunk: Chunk) -> None:
        """Finish all of a chunk, unless another thread has already decided about it."""
        if self.running.pop(chunk, None) is None or self.dropped:  # inlined `take`
            return
        if type(chunk.batch) is PolledBatch:
            self._succeeded.extend((chunk.batch, chunk.start, chunk.end))
        else:
            self.finish_all(chunk)

    def _note_successes(self) -> None:
        """Apply the successes, with many small parts at the cost of a large one; the caller holds the lock."""
        noted = self._succeeded[:]
        if not noted:
            return
        del self._succeeded[: len(noted)]  # other threads append meanwhile
        batches = cast("list[PolledBatch]", noted[::3])
        starts, ends = cast("list[int]", noted[1::3]), cast("list[int]", noted[2::3])
        if sum(ends) - sum(starts) == self._progress.unfinished and not self._failures:
            self._progress.finish_everything()
            self._bytes = 0
            return
        distinct = dict.fromkeys(batches)
        for batch in distinct:
            if len(distinct) == 1:
                self._note_parts(batch, starts, ends)
            else:
                is_its = [one is batch for one in batches]
                self._note_parts(batch, list(compress(starts, is_its)), list(compress(ends, is_its)))

    def _note_parts(self, batch: PolledBatch, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Apply parts of a batch, which never overlap: without a gap between them they are one part."""
        first, behind = min(starts), max(ends)
        if sum(ends) - sum(starts) == behind - first:
            records = batch.polled[first:behind]
        else:
            parts = map(slice, sorted(starts), sorted(ends))
            records = list(chain.from_iterable(map(batch.polled.__getitem__, parts)))
        offsets = offsets_of(records)
        self._progress.finish_all(offsets)
        self._bytes -= bytes_of(records)
        if self._failures:
            for offset in offsets:
                self._failures.pop(offset, None)

    def failed(self, message: Message) -> None:
        """Note a local failure; the message is tried again here, and its count survives a restart."""
        with self._lock:
            self._failures[message.offset] = self._failures.get(message.offset, 0) + 1

    def finish(self, message: Message) -> None:
        """Finish a message whose listener succeeded or whose send-back is acknowledged."""
        self.finish_all((message,))

    def finish_all(self, messages: Iterable[Message]) -> None:
        """Finish several messages."""
        with self._lock:
            for message in messages:
                self._failures.pop(message.offset, None)
                if self._progress.finish(message.offset):
                    self._bytes -= message.size

    def expired(self, started_before: float) -> list[Chunk]:
        """Take the chunks whose listener was called before this time and has not returned (RocketMQ: EX-03)."""
        running = self.running.copy().items()
        return [chunk for chunk, started in running if started < started_before and self.take(chunk)]

    def drop(self) -> None:
        """Drop the partition: it is revoked, or the consumer stops."""
        with self._lock:
            self.dropped = True

    def commit_point(self, also_finished: Collection[int] = ()) -> Commit | None:
        """Return the commit (RocketMQ: CC-13, CC-14), as if these offsets were finished; None without a message.

        Before the first message it is the start, if that was chosen here.
        """
        with self._lock:
            self._note_successes()
            after = self._progress.after(also_finished)
            if after is None:
                return None if self.first is None else Commit(self.first, "")
            safe, done = after
            if not done and not self._failures:
                return Commit(safe, "")
            failures = {one: times for one, times in self._failures.items() if one not in also_finished}
            return Commit(safe, encode_progress(safe, done, failures))

    @property
    def to_commit(self) -> Commit | None:
        """Return the commit point if it is not committed yet, else None."""
        point = self.commit_point()
        return point if point != self.committed else None

    def in_reach(self, message: Message) -> bool:
        """Return whether a commit can record this message as done ahead of earlier ones."""
        with self._lock:
            self._note_successes()
            safe = self._progress.safe_offset
        return safe is None or message.offset - safe < LONGEST_SPAN

    @property
    def size(self) -> int:
        """Number of unfinished messages."""
        with self._lock:
            self._note_successes()
            return self._progress.unfinished

    @property
    def end(self) -> int:
        """Offset behind the last record that was read; 0 before the first. Only for the polling thread."""
        with self._lock:
            begun = self._progress.end
        return max([begun, *(messages[-1].offset + 1 for messages in self.held or ())])

    def is_full(self, threshold: int, threshold_bytes: int, max_span: int) -> bool:
        """Return whether reading must wait (RocketMQ: FC-02, FC-03), also for space in the commit's metadata."""
        return self.room(threshold, max_span) <= 0 or self._bytes >= threshold_bytes

    def room(self, threshold: int, max_span: int) -> int:
        """Return how many records may be read until `is_full`, whatever their size; 0 or less if none."""
        with self._lock:
            self._note_successes()
            longest = min(max_span, LONGEST_SPAN - _ONE_READ)
            return min(threshold - self._progress.unfinished, longest - self._progress.span)


def _has_copies(offsets: Sequence[int]) -> bool:
    return not isinstance(offsets, range) and len(set(offsets)) < len(offsets)


class Chunk(LazyMessages):
    """Messages of a partition for a single call of the listener (RocketMQ: CC-18).

    Attributes:
        queue: the queue of their partition.
        batch: the batch that contains them.
        start: index of the first message in the batch.
        end: index behind the last one.
        permit: the circuit breaker's permit for the call.
    """

    __slots__ = ("batch", "end", "permit", "queue", "start")

    def __init__(self, queue: ProcessQueue, batch: Sequence[Message], start: int = 0, end: int | None = None) -> None:
        self.queue = queue
        self.batch = batch
        self.start = start
        self.end = len(batch) if end is None else end
        self.permit: int | None = None
        self._made = None

    def _make(self) -> tuple[Message, ...]:
        if isinstance(self.batch, PolledBatch):
            return self.batch.made(self.start, self.end)
        return tuple(self.batch[self.start : self.end])

    def __len__(self) -> int:
        return self.end - self.start


def chunks_of(queue: ProcessQueue, messages: Sequence[Message], size: int) -> Iterator[Chunk]:
    """Split messages into chunks of `size`.

    Threads may share the iterator: it finds the ends of a chunk in C, which no other thread interrupts.
    Test: tests/unit/consumers/partitions/test_batch.py.
    """
    total = len(messages)
    ends = chain(range(size, total, size), (total,))
    return map(Chunk, repeat(queue), repeat(messages), range(0, total, size), ends)
