"""How a failed message and the offsets of its partition reach Kafka: one after the other, or in one transaction."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeHooks, SendMessageBackContext
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog, Way, dropped_way, fate_of, way_of
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause, SendBackRequest

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class FailedMessage:
    """A message that a listener failed, and its way back.

    One object for all of it: thousands are on their way at a time, and Python's garbage collector looks at each.

    Attributes:
        queue: of the message's partition.
        message: what failed.
        level: the wish.
        cause: why it failed.
        maximum: how often it may be sent back; None takes the group's.
        on_done: called once when its send-back is acknowledged, or has failed; in another thread.
        counts_here: what failed in its place counts as sent back, as in order it does.
        request: what is asked for, once it was begun.
    """

    queue: ProcessQueue
    message: Message
    level: int
    cause: Cause | None
    maximum: int | None
    on_done: Callable[[FailedMessage, SendBackFailed | None], None]
    counts_here: bool = False
    _sender: Sender = field(init=False)
    request: SendBackRequest = field(init=False)
    _way: Way = field(init=False)
    _begun_ms: float = field(init=False, default=0.0)
    _has_ended: bool = field(init=False, default=False)

    def begin(self, sender: Sender) -> None:
        """Decide, and write."""
        message = self.message
        request = request_of(sender.log.group, message, self.level, self.maximum, self.cause)
        if self.counts_here:
            stored = request.stored._replace(reconsume_times=message.reconsume_times)  # noqa: SLF001 - public
            request = request._replace(stored=stored)  # noqa: SLF001 - public on named tuples
        self._sender, self.request = sender, request
        self._way = dropped_way(request) if sender.groups is None else way_of(request, sender.groups())
        if sender.hooks is not None:
            self._begun_ms = sender.hooks.clock()
        sender.write(self)

    def end(self, error: SendBackFailed | None) -> None:
        """Tell the listener's side, once."""
        if not self._has_ended:
            self._has_ended = True
            self.on_done(self, error)

    def done(self, error: SendBackFailed | None) -> None:
        """It is acknowledged or has failed: all who watch are told, once."""
        if self._has_ended:
            return
        self.end(error)
        sender, way, cause = self._sender, self._way, self.request.cause
        if error is None and sender.groups is not None:
            sender.log.tell(self.message, fate_of(way), is_failure=cause is not None)
        if (hooks := sender.hooks) is not None:
            elapsed_ms = hooks.clock() - self._begun_ms
            told = SendMessageBackContext(
                sender.log.group, self.message, *way[:3], elapsed_ms, cause, error, sender.waiting_share
            )
            hooks.tell("send_message_back_after", told)


def request_of(group: str, message: Message, level: int, maximum: int | None, cause: Cause | None) -> SendBackRequest:
    """Return the request to send a message back, with the count that its record has."""
    return SendBackRequest(
        group=group,
        headers=message.all_headers,
        stored=message.stored,
        delay_level=level,
        max_reconsume_times=maximum,
        cause=cause,
    )


@dataclass(eq=False, kw_only=True)
class Sender(ABC):
    """Sends back and commits for one consumer.

    Any thread may call `send_back`, the thread that polls alone the other methods. Listeners' threads only hand over
    what failed; after `start` one thread makes the copies and writes them. Twenty threads that did would wait for each
    other at every step: benchmarks/send_backs.py.

    Guarantees: `on_done` is called once, also where `write` raises, so no message is left between listener and sender.
    The log and the hooks are told after it, so a slow hook does not hold up the message. What was given up because its
    partition is gone is not told: its next owner has it.
    Tests: tests/unit/consumers/test_slips.py, tests/unit/consumers/observing/test_hooks.py.

    Attributes:
        log: of the consumer group.
        groups: the groups as known now; None for a consumer that broadcasts, which drops what fails.
        hooks: are told; None without any.
    """

    log: SendBackLog
    groups: Callable[[], Groups] | None = None
    hooks: ConsumeHooks | None = None
    _handed_over: SimpleQueue[FailedMessage | threading.Event | None] = field(init=False, default_factory=SimpleQueue)
    _writing_thread: threading.Thread | None = field(init=False, default=None)

    def start(self) -> None:
        """Write in a thread from now on; without one, `send_back` writes in its caller's."""
        self._writing_thread = threading.Thread(target=self._write_all, name="reconsume-failed-messages", daemon=True)
        self._writing_thread.start()

    def send_back(self, failed: FailedMessage) -> None:
        """Send a message back, soon."""
        if self._writing_thread is None:
            self._begin(failed)
        else:
            self._handed_over.put(failed)

    def waiting_share(self) -> float:
        """Return what waits for the group as a share of its `maxWaiting`; 0 without one."""
        return 0.0

    @abstractmethod
    def write(self, failed: FailedMessage) -> None:
        """Write the send-back; its `done` is called, maybe in another thread."""

    @abstractmethod
    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit what is finished, without waiting for it."""

    @abstractmethod
    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for what is on its way, commit what is finished; False if something is still on its way."""

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> None:
        """These were dropped and are given away: settle what is on its way, then commit."""
        if not self.settle(queues, seconds):
            logger.warning("send-backs unacknowledged before a rebalance; they may be stored twice")

    def serve(self) -> None:  # noqa: B027 - nothing to do for most
        """Called at every turn of the thread that polls."""

    def forget(self, queues: Iterable[ProcessQueue]) -> None:  # noqa: B027 - nothing to do for most
        """These belong to someone else already: nothing may be sent or committed for them."""

    def close(self) -> None:
        """The consumer is about to be closed: messages handed over from now on stay uncommitted and are read again."""
        self._handed_over.put(None)
        if self._writing_thread is not None:
            self._writing_thread.join()

    def _wait_until_written(self, seconds: float) -> bool:
        """Whether all that was handed over until now, or until it was closed, has been given to `write`."""
        if self._writing_thread is None or not self._writing_thread.is_alive():
            return True
        passed = threading.Event()
        self._handed_over.put(passed)
        return passed.wait(seconds)

    def _write_all(self) -> None:
        while (one := self._handed_over.get()) is not None:
            if isinstance(one, FailedMessage):
                self._begin(one)
            else:
                one.set()

    def _begin(self, failed: FailedMessage) -> None:
        try:
            failed.begin(self)
        except BaseException as error:
            with suppress(BaseException):  # the log shows the error, which may raise another one
                logger.exception("error while sending back %r", failed.message)
                failed.end(SendBackFailed(Cause.of(error).message))


def uncommitted(queues: Iterable[ProcessQueue]) -> dict[ProcessQueue, Commit]:
    """Return the offsets of these to commit."""
    return {queue: point for queue in queues if (point := queue.to_commit) is not None}


def points_of(points: Mapping[ProcessQueue, Commit]) -> dict[Partition, Commit]:
    """The same by partition."""
    return {queue.where: point for queue, point in points.items()}


@dataclass(eq=False, kw_only=True)
class PlainSender(Sender):
    """The send-back first; when it is acknowledged its offset may be committed. A crash between repeats it.

    Attributes:
        writer: writes send-backs.
        consumer: commits.
    """

    writer: SendBackWriter
    consumer: GroupConsumer

    def waiting_share(self) -> float:
        """Return it as the writer knows it."""
        return self.writer.limit.share(self.log.group)

    def write(self, failed: FailedMessage) -> None:
        """Write the send-back."""
        self.writer.send_back(failed.request, failed.message.key, failed.message.body, failed.done)

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit pending offsets; the answer comes with a later poll."""
        self._commit(uncommitted(queues), wait=False)

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for send-backs on their way, then commit."""
        end = time.monotonic() + seconds
        settled = self._wait_until_written(seconds) and not self.writer.flush(max(0.0, end - time.monotonic()))
        # Also what was committed before: the answer to that may not have come yet.
        self._commit({queue: point for queue in queues if (point := queue.commit_point()) is not None}, wait=True)
        return settled

    def _commit(self, points: Mapping[ProcessQueue, Commit], *, wait: bool) -> None:
        refused = self.consumer.commit(points_of(points), wait=wait)
        for queue, point in points.items():
            queue.committed = None if queue.where in refused else point
