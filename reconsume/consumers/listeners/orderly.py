"""Calls the listener for messages in order, within a partition or a key."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus, NotNow, SendBack, suspend_ms
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL
from reconsume.consumers.listeners.listener_call import Called, call_listener, call_listener_async, judged_in_order
from reconsume.consumers.listeners.listener_service import REFUSED_MS, ListenerService
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeCall
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import UNLIMITED, given_again
from reconsume.consumers.sending.senders import FailedMessage
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause

logger = SafeLogger(__name__)

_LOOK_SECONDS: Final = 0.5
"""How often the limit of a wait is looked at: a stop of the consumer shortens it."""
_SUSPEND: Final = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


LaneKey = tuple[str, int, bytes | int | None]
"""Topic and partition, in key order also the key; a message without a key has a lane of its own, by its offset."""


@dataclass(eq=False, slots=True)
class Lane:
    """Messages to consume one after the other.

    Attributes:
        waiting: messages for the listener, new ones and repeated ones.
        consumed: successes with `auto_commit` off; COMMIT finishes them, ROLLBACK repeats them.
        leaving: messages whose send-back, mostly to the dead-letter topic, is not acknowledged yet.
        queued: whether the lane is in the pool's queue.
        working: whether a listener has its first messages.
        suspended_until: end of the suspension, in milliseconds.
        one_by_one_to: up to this offset, messages go one by one, because one of them is not worth a retry.
    """

    key: LaneKey
    queue: ProcessQueue
    waiting: deque[Message] = field(default_factory=deque)
    consumed: list[Message] = field(default_factory=list)
    leaving: int = 0
    queued: bool = False
    working: bool = False
    suspended_until: float = 0.0
    one_by_one_to: int = -1


@dataclass(kw_only=True, eq=False)
class OrderlyService(ListenerService[Lane]):
    """RocketMQ's ConsumeMessageOrderlyService, with a lane for each partition or for each key.

    Guarantees:
        1. At most one listener works on a lane, and none begins on a partition that was dropped (RocketMQ: OR-11). A
           revocation waits for it: tests/integration/consumers/test_push_consumer_orderly.py. So does a partition that
           was lost and comes back: tests/unit/consumers/listeners/test_orderly.py.
        2. A failed message is repeated before any message behind it on its lane.
        3. Counts of failures are committed with the offset, so a restart does not begin at 0 (better than OR-04).
        4. An exhausted message goes to the dead-letter topic; messages behind it wait for the acknowledgement.

    Attributes:
        per_key: keep the order within a key instead of a partition.
    """

    per_key: bool = False

    def __post_init__(self) -> None:
        self._max = UNLIMITED if self.max_reconsume_times is None else self.max_reconsume_times
        self._lanes: dict[LaneKey, Lane] = {}
        self._suspended: dict[LaneKey, Lane] = {}
        self._outlived: dict[LaneKey, Lane] = {}
        self._keeps_open = False
        self._changed = threading.Condition()

    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Append messages to their lanes."""
        with self._changed:
            for message in messages:
                key = self._key_of(queue, message)
                lane = self._lanes.get(key)
                if lane is None:
                    lane = self._lanes[key] = Lane(key, queue)
                lane.waiting.append(message)
                self._start(lane)

    def tick(self) -> None:
        """Resume the lanes whose suspension is over."""
        if not self._suspended:
            return
        now = self.clock()
        with self._changed:
            for lane in [one for one in self._suspended.values() if one.suspended_until <= now]:
                del self._suspended[lane.key]
                self._start(lane)

    def next_due_ms(self) -> float | None:
        """Return when the first suspension ends."""
        with self._changed:
            return min((lane.suspended_until for lane in self._suspended.values()), default=None)

    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Do nothing: messages in order have no consume timeout (RocketMQ: OR-13, EX-07)."""

    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Return whether the partition's one lane is suspended; in key order other lanes continue."""
        return not self.per_key and (queue.topic, queue.partition, None) in self._suspended

    def waits_for_commit(self, queue: ProcessQueue) -> bool:
        """Return whether all unfinished messages of the partition wait for COMMIT."""
        if not self._keeps_open:
            return False
        with self._changed:
            kept = sum(len(lane.consumed) for lane in self._lanes.values() if lane.queue is queue)
        return 0 < kept == queue.size

    def leave(self, queues: Iterable[ProcessQueue], seconds_left: Callable[[], float]) -> bool:
        """Wait until no listener works on these, so that the next owner is alone (RocketMQ: OR-14)."""
        gone = set(queues)
        places = {queue.where for queue in gone}
        with self._changed:
            while (is_worked_on := self._is_worked_on(places)) and (seconds := seconds_left()) > 0:
                self._changed.wait(min(seconds, _LOOK_SECONDS))
            for lane in [one for one in self._lanes.values() if one.queue in gone]:
                del self._lanes[lane.key]
                self._suspended.pop(lane.key, None)
                if lane.working:
                    self._outlived[lane.key] = lane
        return not is_worked_on

    def consume(self, lane: Lane) -> None:
        """Call a plain listener for the first messages of a lane."""
        batch, context = self._begin(lane)
        try:
            if batch:
                self._settle(lane, batch, context, call_listener(self.listener, batch, context, self.sender.hooks))
        finally:
            self._end(lane)

    async def consume_async(self, lane: Lane) -> None:
        """Call an `async def` listener for the first messages of a lane."""
        batch, context = self._begin(lane)
        try:
            if batch:
                called = await call_listener_async(self.listener, batch, context, self.sender.hooks)
                self._settle(lane, batch, context, called)
        finally:
            self._end(lane)

    def _key_of(self, queue: ProcessQueue, message: Message) -> LaneKey:
        if not self.per_key:
            return (queue.topic, queue.partition, None)
        return (queue.topic, queue.partition, message.offset if message.key is None else message.key)

    def _start(self, lane: Lane) -> None:
        """Queue a lane if it has something to do; the caller holds the lock.

        If the partition was lost and came back, the listener that still runs ends first.
        """
        is_held = lane.leaving or lane.key in self._suspended or lane.key in self._outlived
        if lane.waiting and not lane.queued and not is_held:
            lane.queued = True
            self.pool.submit(lane)

    def _begin(self, lane: Lane) -> tuple[tuple[Message, ...], ConsumeOrderlyContext]:
        queue = lane.queue
        context = ConsumeOrderlyContext(queue.message_queue)
        with self._changed:
            if queue.dropped:
                return (), context
            lane.working = True
            size = min(self.batch_size, len(lane.waiting))
            if size and lane.waiting[0].offset <= lane.one_by_one_to:
                size = 1
            # A tuple: if the listener changed a list, messages would be lost here.
            return tuple([lane.waiting.popleft() for _ in range(size)]), context

    def _end(self, lane: Lane) -> None:
        with self._changed:
            lane.queued = lane.working = False
            if self._outlived.get(lane.key) is lane:
                del self._outlived[lane.key]
                if (newer := self._lanes.get(lane.key)) is not None:
                    self._start(newer)
            if not lane.queue.dropped:
                self._start(lane)
                if not (lane.queued or lane.waiting or lane.consumed or lane.leaving):
                    self._lanes.pop(lane.key, None)
            self._changed.notify_all()

    def _is_worked_on(self, places: set[Partition]) -> bool:
        lanes = chain(self._lanes.values(), self._outlived.values())
        return any(lane.working for lane in lanes if lane.queue.where in places)

    def _settle(self, lane: Lane, batch: tuple[Message, ...], context: ConsumeOrderlyContext, called: Called) -> None:
        """Apply the listener's verdict on a batch (RocketMQ: OR-08, OR-09); an error of ours is a failure of the batch.

        A success counts after a drop too: the partition is kept until the listener has returned.
        """
        if called.error is not None:
            self.sender.log.listener_failed(batch, called.error)
        try:
            if called.outcome is not None:
                self._settle_outcome(lane, batch, called.outcome, called.call)
            else:
                self._settle_judged(lane, batch, context, called)
        except BaseException as error:
            logger.exception("error after the listener of %r, delivering it again", batch)
            self._failed(lane, batch, suspend_ms(), Cause.of(error), is_failure=True)

    def _settle_judged(
        self, lane: Lane, batch: tuple[Message, ...], context: ConsumeOrderlyContext, called: Called
    ) -> None:
        told = judged_in_order(context, called, self.dead_letter_on)
        if told.slips:
            self.sender.log.listener_slipped(told.slips)
        if called.call is not None:
            raised = called.error is not None
            called.call.end(called.status, _SUSPEND, told.acknowledged(len(batch)), told.cause, raised=raised)
        if told.is_dead:
            one_by_one = len(batch) > 1  # which message of the batch is not worth a retry is unknown
            self._leave(lane, batch, DEAD_LETTER_LEVEL, told.cause, one_by_one=one_by_one)
        elif told.status is _SUSPEND:
            self._failed(lane, batch, told.wait_ms, told.cause, is_failure=told.cause is not None)
        elif told.auto_commit:
            lane.queue.finish_all(batch)
        elif told.status is ConsumeOrderlyStatus.ROLLBACK:
            with self._changed:
                self._put_back(lane, [*lane.consumed, *batch], told.wait_ms)
                lane.consumed.clear()
        else:
            with self._changed:
                lane.consumed += batch
                self._keeps_open = True
                done = list(lane.consumed) if told.status is ConsumeOrderlyStatus.COMMIT else []
                if done:
                    lane.consumed.clear()
            lane.queue.finish_all(done)

    def _settle_outcome(
        self, lane: Lane, batch: tuple[Message, ...], outcome: NotNow | SendBack, call: ConsumeCall | None
    ) -> None:
        front, rest = batch[: outcome.acknowledged], batch[outcome.acknowledged :]
        if isinstance(outcome, NotNow):
            if call is not None:
                call.cut_off()
            lane.queue.finish_all(front)
            with self._changed:
                self._put_back(lane, rest, max(0, int(outcome.until_ms - self.clock())))
            return
        if call is not None:
            call.end(_SUSPEND, _SUSPEND, len(front), outcome.cause, raised=False)
        lane.queue.finish_all(front)
        if outcome.suspend_ms is None:
            self._leave(lane, rest, outcome.level, outcome.cause, one_by_one=outcome.one_by_one)
        else:
            self._failed(lane, rest, suspend_ms(outcome.suspend_ms), outcome.cause, is_failure=False)

    def _leave(
        self, lane: Lane, batch: Sequence[Message], level: int, cause: Cause | None, *, one_by_one: bool
    ) -> None:
        """Send the batch back, or first repeat each of its messages alone."""
        if not one_by_one:
            self._send_back(lane, batch, level, cause, self.max_reconsume_times)
            return
        logger.info("one message of %r may have failed the others: delivering each alone", batch)
        with self._changed:
            lane.one_by_one_to = batch[-1].offset
            self._put_back(lane, batch, 0)

    def _failed(
        self, lane: Lane, batch: Sequence[Message], wait_ms: int, cause: Cause | None, *, is_failure: bool
    ) -> None:
        """Send exhausted messages back and repeat the others, each once (better than RocketMQ: OR-05, OR-06).

        A suspension that was asked for is no failure, although it may have a cause, which dead letters show.
        """
        exhausted = [message for message in batch if message.reconsume_times >= self._max]
        with self._changed:
            again = [self._count(lane, message) for message in batch if message.reconsume_times < self._max]
            if again:
                self._put_back(lane, again, wait_ms)
        for message in again:
            self.sender.log.tell(message, given_again(message, self._max, wait_ms), is_failure=is_failure)
        self._send_back(lane, exhausted, DEAD_LETTER_LEVEL, cause, self._max)

    def _send_back(
        self, lane: Lane, messages: Sequence[Message], level: int, cause: Cause | None, maximum: int | None
    ) -> None:
        """Send messages back; those behind them wait for the acknowledgement. Dropped partitions have another owner."""
        if lane.queue.dropped:
            return
        with self._changed:
            lane.leaving += len(messages)
        left = partial(self._left, lane)
        for message in messages:
            self.sender.send_back(FailedMessage(lane.queue, message, level, cause, maximum, left, counts_here=True))

    def _left(self, lane: Lane, failed: FailedMessage, error: SendBackFailed | None) -> None:
        """Finish a message whose send-back is acknowledged, or schedule another try (RocketMQ: OR-07)."""
        message = failed.message
        if error is None:
            lane.queue.finish(message)
        with self._changed:
            lane.leaving -= 1
            if error is not None:
                self._put_back(lane, [self._count(lane, message)], REFUSED_MS)
            if not lane.queued:  # under the same lock, or new messages may start the lane first
                self._end(lane)
        if error is not None:
            self.sender.log.not_sent_back(message, error)

    def _count(self, lane: Lane, message: Message) -> Message:
        lane.queue.failed(message)
        return message.failed_again_locally()

    def _put_back(self, lane: Lane, messages: Sequence[Message], wait_ms: int) -> None:
        """Put messages in front of the waiting ones, by offset; the caller holds the lock."""
        if lane.queue.dropped:
            return
        lane.waiting = deque(sorted([*messages, *lane.waiting], key=lambda message: message.offset))
        lane.suspended_until = self.clock() + wait_ms
        self._suspended[lane.key] = lane
