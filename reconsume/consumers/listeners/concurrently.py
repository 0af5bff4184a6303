"""Call the listener for a chunk and deal with its result: acknowledge, send back, or keep for a local try."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from reconsume.consumers.listener import ALL, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, NotNow
from reconsume.consumers.listeners.circuit_gate import CircuitGate
from reconsume.consumers.listeners.listener_call import Called, call_listener, call_listener_async, called_with, judged
from reconsume.consumers.listeners.listener_pool import Chunk
from reconsume.consumers.listeners.listener_service import ListenerService
from reconsume.consumers.listeners.waiting_room import WaitingRoom
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.batch import PolledBatch
from reconsume.consumers.partitions.process_queue import BatchPart, ProcessQueue, parts_of
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause

__all__ = ["TIMEOUT_LEVEL", "ConcurrentlyService"]

logger = logging.getLogger(__name__)

TIMEOUT_LEVEL: Final = 3
"""A message that timed out waits on this level (RocketMQ: EX-04)."""
_SUCCESS: Final = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
_LOCAL_RETRY_MS: Final = 5_000
"""After a send-back that failed (RocketMQ: CC-12, SB-11)."""


@dataclass(kw_only=True, eq=False)
class ConcurrentlyService(ListenerService[Any]):
    """RocketMQ's ConsumeMessageConcurrentlyService. Safe to use from several threads.

    Attributes:
        gate: of the circuit breaker; None without one.
    """

    gate: CircuitGate | None = None

    def __post_init__(self) -> None:
        self._is_plain = self.gate is None and self.hooks is None
        self._room = self.gate or WaitingRoom(self.clock)

    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out chunks of one partition, in the order of its offsets (RocketMQ: CC-18)."""
        size = self.batch_size
        if isinstance(messages, PolledBatch):
            if len(messages) > size:
                self.pool.submit_all(parts_of(messages, size, queue))
            else:
                self.pool.submit(BatchPart(messages, 0, len(messages), queue))
            return
        for start in range(0, len(messages), size):
            self.pool.submit(Chunk(queue, tuple(messages[start : start + size])))

    def tick(self) -> None:
        """Call the listener for messages whose send-back failed, and for those that were kept or held."""
        for chunk in self._room.due():
            self.pool.submit(chunk)

    def next_due_ms(self) -> float | None:
        """When the first of them is due."""
        return self._room.next_due_ms()

    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Concurrent listeners hold up nobody, unless one said "not now"; an open circuit breaker holds up all."""
        return self._room.is_shut(queue)

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Results that come late are discarded, so there is nothing to wait for (RocketMQ: CC-15)."""
        del seconds
        self._room.forget(queues)
        return True

    def consume(self, work: Chunk | BatchPart) -> None:
        """Call a plain listener.

        With nobody watching, which is what happens to nearly all messages, in as few steps as it has.
        """
        if not (isinstance(work, BatchPart) and self._is_plain and not self._room.held):
            self._consume_watched(_as_chunk(work))
            return
        queue = work.queue
        if not queue.start_part(work, self.clock()):
            return
        context = ConsumeConcurrentlyContext(queue.message_queue or self.message_queue(queue))
        try:
            status = self.listener(work, context)
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
            self._settle(chunk, context, call_listener(self.listener, chunk.messages, context, self.hooks))

    async def consume_async(self, work: Chunk | BatchPart) -> None:
        """Call an `async def` listener."""
        chunk = _as_chunk(work)
        context = self._begin(chunk)
        if context is not None:
            called = await call_listener_async(self.listener, chunk.messages, context, self.hooks)
            self._settle(chunk, context, called)

    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Send back what a listener has had for longer than the timeout; its late result is ignored.

        The listener is not interrupted (RocketMQ: EX-03, EX-04; better than EX-05).
        """
        for message in queue.expired(self.clock() - timeout_ms):
            if queue.claim(message):
                self._room.timed_out(queue, message)
                logger.warning("%r: its listener has run for over %.0f s; it is sent back", message, timeout_ms / 1000)
                cause = Cause(f"consume timeout: the listener ran for over {timeout_ms / 1000:.0f} s")
                self._send_back(queue, message, TIMEOUT_LEVEL, cause)

    def _begin(self, chunk: Chunk) -> ConsumeConcurrentlyContext | None:
        if not self._room.enter(chunk):
            return None
        if not chunk.queue.start(chunk.messages, self.clock()):
            self._room.cancel(chunk)
            return None
        return ConsumeConcurrentlyContext(self.message_queue(chunk.queue))

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
        self._room.cancel(chunk)
        chunk.queue.take_apart(chunk.messages)
        for message in chunk.messages:
            if chunk.queue.claim(message):
                self._send_back(chunk.queue, message, 0, cause)

    def _settle_judged(self, chunk: Chunk, context: ConsumeConcurrentlyContext, called: Called) -> None:
        queue, messages = chunk.queue, chunk.messages
        if isinstance(called.outcome, NotNow):
            self._hold(chunk, called, called.outcome)
            return
        succeeded, level, cause, one_by_one = judged(context, called, len(messages), self.dead_letter_on)
        _tell(called, succeeded, cause)
        # Of the circuit breaker: a listener that has judged its messages works.
        is_judged = level < 0 or one_by_one
        keep, kept = self._room.settle(chunk, failed=succeeded == 0 and not is_judged) and not is_judged, []
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
            # Nobody knows which of a batch is not worth a retry; the others must not be dead letters with it.
            logger.info("one of %r is not worth a retry: each is given again alone", kept)
            self._room.wait([Chunk(queue, (one,)) for one in kept], 0)
        elif kept:
            self._room.keep(Chunk(queue, tuple(kept)))

    def _hold(self, chunk: Chunk, called: Called, outcome: NotNow) -> None:
        if called.call is not None:
            called.call.cut_off()
        queue, front = chunk.queue, chunk.messages[: outcome.acknowledged]
        queue.take_apart(chunk.messages)
        queue.succeed(front)
        left = tuple(one for one in chunk.messages[len(front) :] if queue.claim(one) and queue.release(one))
        if left:
            self._room.hold(chunk, left, outcome.until_ms)
        else:
            self._room.cancel(chunk)

    def _send_back(self, queue: ProcessQueue, message: Message, level: int, cause: Cause | None) -> None:
        sent_back = partial(self._sent_back, queue, message)
        self.send_backs.send(queue, message, level, cause, self.max_reconsume_times, sent_back)

    def _sent_back(self, queue: ProcessQueue, message: Message, error: SendBackFailed | None) -> None:
        if error is None:
            queue.finish(message)
        elif queue.release(message):
            logger.warning("%r was not sent back, its listener is called again in 5 s: %s", message, error)
            self._room.wait([Chunk(queue, (message.failed_again_locally(),))], _LOCAL_RETRY_MS)


def _as_chunk(work: Chunk | BatchPart) -> Chunk:
    return Chunk(work.queue, work) if isinstance(work, BatchPart) else work


def _tell(called: Called, succeeded: int, cause: Cause | None) -> None:
    if called.call is not None:
        later = ConsumeConcurrentlyStatus.RECONSUME_LATER
        status = called.status if called.outcome is None else later
        called.call.end(status, later, succeeded, cause, raised=called.error is not None)
