"""Call the listener for a chunk and deal with its result: acknowledge, send back, or keep for a local try."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.consumers.listener import ALL, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Listener
from reconsume.consumers.listeners.circuit_gate import CircuitGate
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses
from reconsume.consumers.listeners.held_queues import HeldQueues
from reconsume.consumers.listeners.listener_call import Called, call_listener, call_listener_async, called_with, judged
from reconsume.consumers.listeners.listener_exceptions import NotNow
from reconsume.consumers.listeners.listener_pool import Chunk, PooledService
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.observing.hooks import ConsumeHooks
from reconsume.consumers.partitions.batch import PolledBatch
from reconsume.consumers.partitions.process_queue import BatchPart, ProcessQueue, parts_of
from reconsume.consumers.sending.senders import SendsBack, send_back_or_fail
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import Cause, SendBackRequest

__all__ = ["TIMEOUT_LEVEL", "ConcurrentlyService"]

logger = logging.getLogger(__name__)

TIMEOUT_LEVEL: Final = 3
"""A message that timed out waits on this level (RocketMQ: EX-04)."""
_SUCCESS: Final = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
_LOCAL_RETRY_MS: Final = 5_000
"""RocketMQ: CC-12."""


class ConcurrentlyService(PooledService[Any]):
    """RocketMQ's ConsumeMessageConcurrentlyService. Safe to use from several threads.

    Args:
        group: the consumer group.
        listener: the user's function.
        sender: sends failed messages back.
        names: the installation's topics.
        max_reconsume_times: the consumer's own maximum, None to take the group's.
        batch_size: messages in one call.
        dead_letter_on: exceptions that are not worth a retry.
        gate: of the circuit breaker; None without one.
        clock: gives milliseconds.
        hooks: are told of each call; None without any.
    """

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        sender: SendsBack,
        names: TopicNames,
        max_reconsume_times: int | None,
        batch_size: int = 1,
        dead_letter_on: ExceptionClasses = (),
        gate: CircuitGate | None = None,
        clock: Clock = now_ms,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        self._group = group
        self._listener = listener
        self._sender = sender
        self._names = names
        self._max_reconsume_times = max_reconsume_times
        self._batch_size = batch_size
        self._dead_letter_on = dead_letter_on
        self._gate = gate
        self._clock = clock
        self._hooks = hooks
        self._is_plain = gate is None and hooks is None
        self._held = HeldQueues(clock)
        self._lock = threading.Lock()
        self._local_retries: deque[tuple[float, Chunk]] = deque()

    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out chunks of one partition, in the order of its offsets (RocketMQ: CC-18)."""
        assert self._pool is not None
        size = self._batch_size
        if isinstance(messages, PolledBatch):
            if len(messages) > size:
                self._pool.submit_all(parts_of(messages, size, queue))
            else:
                self._pool.submit(BatchPart(messages, 0, len(messages), queue))
            return
        for start in range(0, len(messages), size):
            self._pool.submit(Chunk(queue, tuple(messages[start : start + size])))

    def tick(self) -> None:
        """Call the listener for messages whose send-back failed, and for those that were kept or held."""
        kept = [] if self._gate is None else self._gate.due()
        for chunk in (*self.take_local_retries(), *kept, *self._held.due()):
            assert self._pool is not None
            self._pool.submit(chunk)

    def next_due_ms(self) -> float | None:
        """When the first of them is due."""
        with self._lock:
            dues = [self._local_retries[0][0] if self._local_retries else None, self._held.next_due_ms()]
        if self._gate is not None:
            dues.append(self._gate.next_due_ms())
        return min((due for due in dues if due is not None), default=None)

    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Concurrent listeners hold up nobody, unless one said "not now"; an open circuit breaker holds up all."""
        return self._held.holds(queue) or (self._gate is not None and self._gate.is_shut())

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Results that come late are discarded, so there is nothing to wait for (RocketMQ: CC-15)."""
        del seconds
        gone = list(queues)
        self._held.forget(gone)
        if self._gate is not None:
            self._gate.forget(gone)
        return True

    def consume(self, work: Chunk | BatchPart) -> None:
        """Call a plain listener.

        With nobody watching, which is what happens to nearly all messages, in as few steps as it has.
        """
        if not (isinstance(work, BatchPart) and self._is_plain and not self._held.held):
            self._consume_watched(_as_chunk(work))
            return
        queue = work.queue
        if not queue.start_part(work, self._clock()):
            return
        context = ConsumeConcurrentlyContext(queue.message_queue or self._message_queue(queue))
        try:
            status = self._listener(work, context)
            # Not by `==`: a listener may put anything there, and may delete it.
            is_done = status is _SUCCESS and context.ack_index is ALL
        except BaseException as error:  # noqa: BLE001 - RocketMQ: CC-01
            called = called_with(error, work, None)
        else:
            if is_done:
                queue.succeed_part(work)
                return
            called = Called(status, None, None)
        self._settle(Chunk(queue, work), context, called)

    def _consume_watched(self, chunk: Chunk) -> None:
        context = self._begin(chunk)
        if context is not None:
            self._settle(chunk, context, call_listener(self._listener, chunk.messages, context, self._hooks))

    async def consume_async(self, work: Chunk | BatchPart) -> None:
        """Call an `async def` listener."""
        chunk = _as_chunk(work)
        context = self._begin(chunk)
        if context is not None:
            called = await call_listener_async(self._listener, chunk.messages, context, self._hooks)
            self._settle(chunk, context, called)

    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Send back what a listener has had for longer than the timeout; its late result is ignored.

        The listener is not interrupted (RocketMQ: EX-03, EX-04; better than EX-05).
        """
        for message in queue.expired(self._clock() - timeout_ms):
            if queue.claim(message):
                if self._gate is not None:
                    self._gate.timed_out(queue, message)
                logger.warning("%r: its listener has run for over %.0f s; it is sent back", message, timeout_ms / 1000)
                cause = Cause(f"consume timeout: the listener ran for over {timeout_ms / 1000:.0f} s")
                self._send_back(queue, message, TIMEOUT_LEVEL, cause)

    def take_local_retries(self) -> list[Chunk]:
        """Messages whose send-back failed 5 s ago (RocketMQ: CC-12, SB-11), and those to be given one by one."""
        now = self._clock()
        due: list[Chunk] = []
        with self._lock:
            while self._local_retries and self._local_retries[0][0] <= now:
                due.append(self._local_retries.popleft()[1])
        return due

    def _begin(self, chunk: Chunk) -> ConsumeConcurrentlyContext | None:
        if self._held.keeps(chunk) or (self._gate is not None and not self._gate.enter(chunk)):
            return None
        if not chunk.queue.start(chunk.messages, self._clock()):
            self._held.settled(chunk)
            if self._gate is not None:
                self._gate.cancel(chunk)
            return None
        return ConsumeConcurrentlyContext(self._message_queue(chunk.queue))

    def _message_queue(self, queue: ProcessQueue) -> MessageQueue:
        if queue.message_queue is None:
            queue.message_queue = MessageQueue(self._names.rocketmq_name(queue.topic), queue.partition)
        return queue.message_queue

    def _settle(self, chunk: Chunk, context: ConsumeConcurrentlyContext, called: Called) -> None:
        """Acknowledge the front of the batch, send the rest back (RocketMQ: CC-06 to CC-10).

        An error of ours sends it back too: its messages must not stay begun for ever.
        """
        try:
            self._settle_judged(chunk, context, called)
        except BaseException as error:
            logger.exception("an error after the listener of %r, which is sent back", chunk.messages)
            self._give_up(chunk, Cause.of(error))

    def _give_up(self, chunk: Chunk, cause: Cause) -> None:
        self._held.settled(chunk)
        chunk.queue.take_apart(chunk.messages)
        for message in chunk.messages:
            if chunk.queue.claim(message):
                self._send_back(chunk.queue, message, 0, cause)

    def _settle_judged(self, chunk: Chunk, context: ConsumeConcurrentlyContext, called: Called) -> None:
        queue, messages = chunk.queue, chunk.messages
        if isinstance(called.outcome, NotNow):
            self._hold(chunk, called, called.outcome)
            return
        succeeded, level, cause, one_by_one = judged(context, called, len(messages), self._dead_letter_on)
        _tell(called, succeeded, cause)
        self._held.settled(chunk)
        # Of the circuit breaker: a listener that has judged its messages works.
        is_judged = level < 0 or one_by_one
        keep, kept = self._is_kept(chunk, failed=succeeded == 0 and not is_judged) and not is_judged, []
        if succeeded == len(messages):
            queue.succeed(messages)
            return
        queue.take_apart(messages)
        for index, message in enumerate(messages):
            if not queue.claim(message):
                continue
            if index < succeeded:
                queue.finish(message)
            elif not keep and not one_by_one:
                self._send_back(queue, message, level, cause)
            elif queue.release(message):
                kept.append(message)
        if kept and one_by_one:
            self._give_one_by_one(queue, kept)
        elif kept and self._gate is not None:
            self._gate.keep(Chunk(queue, tuple(kept)))

    def _give_one_by_one(self, queue: ProcessQueue, messages: Iterable[Message]) -> None:
        """Nobody knows which of a batch is not worth a retry; the others must not be dead letters with it."""
        messages, now = list(messages), self._clock()
        logger.info("one of %r is not worth a retry: each is given again alone", messages)
        with self._lock:
            self._local_retries.extendleft([(now, Chunk(queue, (one,))) for one in messages][::-1])

    def _hold(self, chunk: Chunk, called: Called, outcome: NotNow) -> None:
        if called.call is not None:
            called.call.cut_off()
        if self._gate is not None:
            self._gate.cancel(chunk)
        queue, front = chunk.queue, chunk.messages[: outcome.acknowledged]
        queue.take_apart(chunk.messages)
        queue.succeed(front)
        left = tuple(one for one in chunk.messages[len(front) :] if queue.claim(one) and queue.release(one))
        if left:
            self._held.hold(chunk, left, outcome.until_ms)
        else:
            self._held.settled(chunk)

    def _is_kept(self, chunk: Chunk, *, failed: bool) -> bool:
        """Whether what failed stays here because of the circuit breaker."""
        return self._gate is not None and self._gate.settle(chunk, failed=failed)

    def _send_back(self, queue: ProcessQueue, message: Message, level: int, cause: Cause | None) -> None:
        request = SendBackRequest(
            group=self._group,
            headers=message.all_headers,
            stored=message.stored,
            delay_level=level,
            max_reconsume_times=self._max_reconsume_times,
            cause=cause,
        )
        send_back_or_fail(self._sender, queue, message, request, partial(self._sent_back, queue, message))

    def _sent_back(self, queue: ProcessQueue, message: Message, error: SendBackFailed | None) -> None:
        if error is None:
            queue.finish(message)
        elif queue.release(message):
            logger.warning("%r was not sent back, its listener is called again in 5 s: %s", message, error)
            again = Chunk(queue, (message.failed_again_locally(),))
            with self._lock:
                self._local_retries.append((self._clock() + _LOCAL_RETRY_MS, again))


def _as_chunk(work: Chunk | BatchPart) -> Chunk:
    return Chunk(work.queue, work) if isinstance(work, BatchPart) else work


def _tell(called: Called, succeeded: int, cause: Cause | None) -> None:
    if called.call is None:
        return
    later, raised = ConsumeConcurrentlyStatus.RECONSUME_LATER, called.cause is not None
    if called.outcome is None:
        called.call.end(called.status, later, succeeded, cause, raised=raised)
    else:
        called.call.end(later, later, succeeded, cause, raised=False)
