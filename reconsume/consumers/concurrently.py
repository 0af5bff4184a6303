"""Call the listener for a chunk and deal with its result: acknowledge, send back, or keep for a local try."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Final, cast

from reconsume.bridge.clock import Clock, now_ms
from reconsume.consumers.hooks import ConsumeCall, ConsumeHooks
from reconsume.consumers.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Listener,
    acknowledged_count,
)
from reconsume.consumers.listener_pool import Chunk, ListenerPool
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.process_queue import ProcessQueue
from reconsume.consumers.senders import SendsBack
from reconsume.delay_levels.errors import IllegalSetting, SendBackFailed
from reconsume.delay_levels.names import TopicNames
from reconsume.delay_levels.send_back import Cause, SendBackRequest

__all__ = ["TIMEOUT_LEVEL", "ConcurrentlyService"]

logger = logging.getLogger(__name__)

TIMEOUT_LEVEL: Final = 3
"""A message that timed out waits on this level (RocketMQ: EX-04)."""
_LOCAL_RETRY_MS: Final = 5_000
"""RocketMQ: CC-12."""


class ConcurrentlyService:
    """RocketMQ's ConsumeMessageConcurrentlyService. Safe to use from several threads.

    Args:
        group: the consumer group.
        listener: the user's function.
        sender: sends failed messages back.
        names: the installation's topics.
        max_reconsume_times: the consumer's own maximum, None to take the group's.
        batch_size: messages in one call.
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
        clock: Clock = now_ms,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        self._group = group
        self._listener = listener
        self._sender = sender
        self._names = names
        self._max_reconsume_times = max_reconsume_times
        self._batch_size = batch_size
        self._clock = clock
        self._hooks = hooks
        self._lock = threading.Lock()
        self._local_retries: deque[tuple[float, Chunk]] = deque()
        self._pool: ListenerPool[Chunk] | None = None

    def attach(self, pool: ListenerPool[Chunk]) -> None:
        """Use this pool to call listeners."""
        self._pool = pool

    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out chunks of one partition, in the order of its offsets (RocketMQ: CC-18)."""
        assert self._pool is not None
        size = self._batch_size
        for start in range(0, len(messages), size):
            self._pool.submit(Chunk(queue, tuple(messages[start : start + size])))

    def tick(self) -> None:
        """Call the listener again for messages whose send-back failed."""
        for chunk in self.take_local_retries():
            assert self._pool is not None
            self._pool.submit(chunk)

    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Concurrent listeners hold up nobody."""
        del queue
        return False

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Results that come late are discarded, so there is nothing to wait for (RocketMQ: CC-15)."""
        del queues, seconds
        return True

    def close(self, seconds: float) -> bool:
        """Start no more listeners and wait for the running ones."""
        return self._pool is None or self._pool.close(seconds)

    def consume(self, chunk: Chunk) -> None:
        """Call a plain listener."""
        context = self._begin(chunk)
        if context is None:
            return
        call = None if self._hooks is None else self._hooks.before(context.message_queue, chunk.messages)
        status, cause = None, None
        try:
            status = self._listener(chunk.messages, context)
        except BaseException as error:  # noqa: BLE001 - RocketMQ: CC-01, any Throwable means RECONSUME_LATER
            cause = self._report(chunk, error)
        self._settle(chunk, context, status, cause, call)

    async def consume_async(self, chunk: Chunk) -> None:
        """Call an `async def` listener."""
        context = self._begin(chunk)
        if context is None:
            return
        call = None if self._hooks is None else self._hooks.before(context.message_queue, chunk.messages)
        status, cause = None, None
        try:
            status = await cast("Awaitable[ConsumeConcurrentlyStatus | None]", self._listener(chunk.messages, context))
        except BaseException as error:  # RocketMQ: CC-01, and SystemExit would end the event loop
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                if call is not None:
                    call.cut_off()
                raise  # the consumer is shut down, which is no outcome; anything else that was cancelled is a failure
            cause = self._report(chunk, error)
        self._settle(chunk, context, status, cause, call)

    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Send back what a listener has had for longer than the timeout; its late result is ignored.

        The listener is not interrupted (RocketMQ: EX-03, EX-04; better than EX-05).
        """
        for message in queue.expired(self._clock() - timeout_ms):
            if queue.claim(message):
                logger.warning("%r: its listener has run for over %.0f s; it is sent back", message, timeout_ms / 1000)
                cause = Cause(f"consume timeout: the listener ran for over {timeout_ms / 1000:.0f} s")
                self._send_back(queue, message, TIMEOUT_LEVEL, cause)

    def take_local_retries(self) -> list[Chunk]:
        """Messages whose send-back failed 5 s ago; their listener is called again (RocketMQ: CC-12, SB-11)."""
        now = self._clock()
        due: list[Chunk] = []
        with self._lock:
            while self._local_retries and self._local_retries[0][0] <= now:
                due.append(self._local_retries.popleft()[1])
        return due

    def _begin(self, chunk: Chunk) -> ConsumeConcurrentlyContext | None:
        if not chunk.queue.start(chunk.messages, self._clock()):
            return None
        queue = chunk.queue
        return ConsumeConcurrentlyContext(MessageQueue(self._names.rocketmq_name(queue.topic), queue.partition))

    def _report(self, chunk: Chunk, error: BaseException) -> Cause:
        logger.warning("the listener failed for %r", chunk.messages, exc_info=error)
        return Cause.of(error)

    def _settle(
        self,
        chunk: Chunk,
        context: ConsumeConcurrentlyContext,
        status: object,
        cause: Cause | None,
        call: ConsumeCall | None,
    ) -> None:
        """Acknowledge the front of the batch, send the rest back (RocketMQ: CC-06 to CC-10)."""
        queue, messages, raised = chunk.queue, chunk.messages, cause is not None
        try:
            succeeded = acknowledged_count(status, context.ack_index, len(messages))
        except IllegalSetting as error:
            logger.error("%s; the whole batch is sent back", error)  # noqa: TRY400 - the listener is wrong, not we
            succeeded, cause = 0, Cause(str(error))
        if call is not None:
            call.end(status, ConsumeConcurrentlyStatus.RECONSUME_LATER, succeeded, cause, raised=raised)
        for index, message in enumerate(messages):
            if not queue.claim(message):
                continue
            if index < succeeded:
                queue.finish(message)
            else:
                self._send_back(queue, message, context.delay_level_when_next_consume, cause)

    def _send_back(self, queue: ProcessQueue, message: Message, level: int, cause: Cause | None) -> None:
        request = SendBackRequest(
            group=self._group,
            headers=message.all_headers,
            stored=message.stored,
            delay_level=level,
            max_reconsume_times=self._max_reconsume_times,
            cause=cause,
        )
        self._sender.send_back(queue, message, request, partial(self._sent_back, queue, message))

    def _sent_back(self, queue: ProcessQueue, message: Message, error: SendBackFailed | None) -> None:
        if error is None:
            queue.finish(message)
        elif queue.release(message):
            logger.warning("%r was not sent back, its listener is called again in 5 s: %s", message, error)
            again = Chunk(queue, (message.failed_again_locally(),))
            with self._lock:
                self._local_retries.append((self._clock() + _LOCAL_RETRY_MS, again))
