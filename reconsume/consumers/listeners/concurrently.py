"""Calls the listener for a chunk, then acknowledges it, sends it back, or keeps it for a local retry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.listener import ALL, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, NotNow
from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker
from reconsume.consumers.listeners.listener_call import Called, call_listener, call_listener_async, called_with, judged
from reconsume.consumers.listeners.listener_service import REFUSED_MS, ListenerService
from reconsume.consumers.listeners.waiting_room import WaitingRoom
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.batch import PolledBatch
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue, chunks_of
from reconsume.consumers.sending.senders import FailedMessage
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause

logger = SafeLogger(__name__)

TIMEOUT_LEVEL: Final = 3
"""The level of a message that timed out (RocketMQ: EX-04)."""
_SUCCESS: Final = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@dataclass(kw_only=True, eq=False)
class ConcurrentlyService(ListenerService[Chunk]):
    """RocketMQ's ConsumeMessageConcurrentlyService. Safe to use from several threads.

    Attributes:
        circuit_breaker: the user's settings; None without a circuit breaker.
    """

    circuit_breaker: CircuitBreaker | None = None

    def __post_init__(self) -> None:
        self._on_sent_back = self._sent_back  # one bound method for all chunks
        # Read before every call: a Python function would cost a tenth of the throughput of single messages.
        self._seconds = time.monotonic if self.clock is monotonic_ms else lambda: self.clock() / 1_000
        self._is_plain = self.circuit_breaker is None and self.sender.hooks is None
        self._room = WaitingRoom(self.clock, self.sender.log.group, self.circuit_breaker)

    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out chunks of a partition in the order of its offsets (RocketMQ: CC-18)."""
        if isinstance(messages, PolledBatch) and len(messages) <= self.batch_size:
            self.pool.submit(Chunk(queue, messages))
        else:
            self.pool.submit_all(chunks_of(queue, messages, self.batch_size))

    def tick(self) -> None:
        """Call the listener for messages that are due again: failed send-backs, and held ones."""
        for chunk in self._room.due():
            self.pool.submit(chunk)

    def idle(self) -> None:
        """Close the circuit, which has nothing to probe, after a while."""
        self._room.idle()

    def end(self) -> None:
        """Close the circuit."""
        self._room.end()

    def next_due_ms(self) -> float | None:
        """Return when the first message is due again."""
        return self._room.next_due_ms()

    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Return whether reading must wait: the circuit is open."""
        del queue
        return self._room.is_shut()

    def leave(self, queues: Iterable[ProcessQueue], seconds_left: Callable[[], float]) -> bool:
        """Return True at once: late results are discarded (RocketMQ: CC-15)."""
        del seconds_left
        self._room.forget(queues)
        return True

    def consume(self, chunk: Chunk) -> None:
        """Call a function listener for one chunk."""
        self.consume_all(iter((chunk,)))

    def consume_all(self, works: Iterator[Chunk]) -> None:
        """Call a function listener for each of these chunks.

        The usual case, without hooks and circuit breaker, is optimized.
        """
        listener, is_plain, held, seconds = self.listener, self._is_plain, self._room.held, self._seconds
        for chunk in works:
            queue = chunk.queue
            if not is_plain or held:
                if (context := self._begin(chunk)) is not None:
                    self._settle(chunk, context, call_listener(listener, chunk, context, self.sender.hooks))
                continue
            if queue.dropped:
                continue
            queue.running[chunk] = seconds()  # inlined `start`
            context = ConsumeConcurrentlyContext(queue.message_queue)
            try:
                status = listener(chunk, context)
                # Compared by identity: a listener may set anything here, and may delete it.
                is_done = status is _SUCCESS and context.ack_index is ALL
            except BaseException as error:  # noqa: BLE001 - RocketMQ: CC-01
                self._settle(chunk, context, called_with(error, None))
            else:
                if is_done:
                    queue.succeed(chunk)
                else:
                    self._settle(chunk, context, Called(status, None, None))

    async def consume_async(self, chunk: Chunk) -> None:
        """Call an `async def` listener."""
        if (context := self._begin(chunk)) is not None:
            called = await call_listener_async(self.listener, chunk, context, self.sender.hooks)
            self._settle(chunk, context, called)

    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Send back messages whose listener has exceeded the timeout; its late result is ignored.

        The listener keeps running (RocketMQ: EX-03, EX-04; better than EX-05).
        """
        for chunk in queue.expired(self._seconds() - timeout_ms / 1_000):
            self._room.settle(chunk, failed=True)
            cause = Cause(f"consume timeout: the listener ran for over {timeout_ms / 1000:.0f} s")
            for message in chunk:
                self.sender.log.timed_out(message, timeout_ms / 1000)
                self._send_back(queue, message, TIMEOUT_LEVEL, cause)

    def _begin(self, chunk: Chunk) -> ConsumeConcurrentlyContext | None:
        if not self._room.enter(chunk):
            return None
        if not chunk.queue.start(chunk, self._seconds()):
            self._room.cancel(chunk)
            return None
        return ConsumeConcurrentlyContext(chunk.queue.message_queue)

    def _settle(self, chunk: Chunk, context: ConsumeConcurrentlyContext, called: Called) -> None:
        """Acknowledge the front of the batch, send the rest back (RocketMQ: CC-06 to CC-10).

        An internal error sends the batch back too; otherwise its messages would stay in progress forever.
        """
        if called.error is not None:
            self.sender.log.listener_failed(chunk, called.error)
        try:
            self._settle_judged(chunk, context, called)
        except BaseException as error:
            logger.exception("error after the listener of %r, sending it back", chunk)
            self._room.cancel(chunk)
            cause = Cause.of(error)
            for message in chunk if chunk.queue.take(chunk) else ():
                self._send_back(chunk.queue, message, 0, cause)

    def _settle_judged(self, chunk: Chunk, context: ConsumeConcurrentlyContext, called: Called) -> None:
        queue, size = chunk.queue, len(chunk)
        if isinstance(called.outcome, NotNow):
            self._hold(chunk, called, called.outcome)
            return
        succeeded, level, cause, one_by_one, slips = judged(context, called, size, self.dead_letter_on)
        if slips:
            self.sender.log.listener_slipped(slips)
        _tell(called, succeeded, cause)
        # For the circuit breaker, a listener works if it has judged its messages.
        is_judged = level < 0 or one_by_one
        keeps = self._room.settle(chunk, failed=succeeded == 0 and not is_judged) and not is_judged
        if succeeded == size:
            queue.succeed(chunk)
            return
        if one_by_one:
            logger.info("one message of %r may have failed the others: delivering each alone", chunk)
        if not queue.take(chunk):
            return
        if succeeded:
            queue.finish_all(chunk[:succeeded])
        failed = chunk[succeeded:]
        if one_by_one:
            # One message of the batch is not worth a retry, but which one is unknown; the others must not die with it.
            self._room.wait(chunks_of(queue, failed, 1), 0)
        elif keeps:
            self._room.keep(Chunk(queue, failed))
        else:
            for message in failed:
                self._send_back(queue, message, level, cause)

    def _hold(self, chunk: Chunk, called: Called, outcome: NotNow) -> None:
        if called.call is not None:
            called.call.cut_off()
        left = chunk[outcome.acknowledged :]
        if not chunk.queue.take(chunk):
            self._room.cancel(chunk)
            return
        chunk.queue.finish_all(chunk[: outcome.acknowledged])
        if left:
            self._room.hold(chunk, left, outcome.until_ms)
        else:
            self._room.cancel(chunk)

    def _send_back(self, queue: ProcessQueue, message: Message, level: int, cause: Cause | None) -> None:
        failed = FailedMessage(queue, message, level, cause, self.max_reconsume_times, self._on_sent_back)
        self.sender.send_back(failed)

    def _sent_back(self, failed: FailedMessage, error: SendBackFailed | None) -> None:
        queue, message = failed.queue, failed.message
        if error is None:
            queue.finish(message)
        elif not queue.dropped:
            self._room.wait([Chunk(queue, (message.failed_again_locally(),))], REFUSED_MS)
            self.sender.log.not_sent_back(message, error)


def _tell(called: Called, succeeded: int, cause: Cause | None) -> None:
    if called.call is not None:
        later = ConsumeConcurrentlyStatus.RECONSUME_LATER
        status = called.status if called.outcome is None else later
        called.call.end(status, later, succeeded, cause, raised=called.error is not None)
