"""How failed messages and offsets reach Kafka: one after the other, or in one transaction."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeHooks, SendMessageBackContext
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog, Way, dropped_way, fate_of, way_of
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause, SendBackRequest

logger = SafeLogger(__name__)

_Attempt = tuple[str, int, int, int, int]
"""A record's topic, partition, offset and timestamp, and how often it was sent back before."""
_COMMIT_SECONDS: Final = 1.0
"""The coordinator has at least this time to answer, also if send-backs took all of theirs."""


@dataclass(slots=True, eq=False)
class FailedMessage:
    """A failed message on its way back.

    One object holds everything: thousands are in flight at a time, and Python's garbage collector visits each.

    Attributes:
        queue: the queue of the message's partition.
        message: the failed message.
        level: the requested level.
        cause: why it failed.
        maximum: how often it may be sent back; None takes the group's.
        on_done: called once, in another thread, after the send-back was acknowledged or has failed.
        counts_here: whether failures in place count as send-backs, as for orderly listeners.
        request: the send-back request, set by `begin`.
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
        """Decide the destination and write the copy."""
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
        """Call `on_done`, once."""
        if not self._has_ended:
            self._has_ended = True
            self.on_done(self, error)

    def done(self, error: SendBackFailed | None) -> None:
        """Tell the listener's side, the log and the hooks, once, that it was acknowledged or has failed."""
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

    Any thread may call `send_back`; only the polling thread may call the other methods. Listeners' threads only hand
    over failed messages; after `start` one thread makes and writes the copies. Twenty writing threads would wait for
    each other at every step: benchmarks/send_backs.py.

    Guarantees: `on_done` is called once, even if `write` raises, so no message gets stuck between listener and sender.
    The log and the hooks come after it, so a slow hook does not delay the message. They are not told of messages whose
    partition was lost: the next owner has them.
    Tests: tests/unit/consumers/test_slips.py, tests/unit/consumers/observing/test_hooks.py.

    Attributes:
        log: of the consumer group.
        groups: the groups as known now; None for a broadcasting consumer, which drops failed messages.
        hooks: the hooks; None without any.
    """

    log: SendBackLog
    groups: Callable[[], Groups] | None = None
    hooks: ConsumeHooks | None = None
    _handed_over: SimpleQueue[FailedMessage | threading.Event | None] = field(init=False, default_factory=SimpleQueue)
    _writing_thread: threading.Thread | None = field(init=False, default=None)

    def start(self) -> None:
        """Write in a background thread from now on; before that, `send_back` writes in the caller's thread."""
        self._writing_thread = threading.Thread(target=self._write_all, name="reconsume-failed-messages", daemon=True)
        self._writing_thread.start()

    def send_back(self, failed: FailedMessage) -> None:
        """Send a message back, soon."""
        if self._writing_thread is None:
            self._begin(failed)
        else:
            self._handed_over.put(failed)

    def waiting_share(self) -> float:
        """Return the group's waiting messages as a fraction of its `maxWaiting`; 0 without a limit."""
        return 0.0

    @abstractmethod
    def write(self, failed: FailedMessage) -> None:
        """Write the send-back; its `done` is called later, possibly in another thread."""

    @abstractmethod
    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit finished messages without waiting for the answer."""

    @abstractmethod
    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for send-backs in flight, then commit finished messages; False if some are still in flight."""

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> None:
        """Settle send-backs of revoked partitions, then commit."""
        if not self.settle(queues, seconds):
            logger.warning("send-backs unacknowledged before a rebalance; they may be stored twice")

    def serve(self) -> None:  # noqa: B027 - nothing to do for most
        """Do periodic work; called at every turn of the polling thread."""

    def forget(self, queues: Iterable[ProcessQueue]) -> None:  # noqa: B027 - nothing to do for most
        """Forget lost partitions: nothing may be sent or committed for them."""

    def close(self) -> None:
        """Prepare for the end: messages handed over from now on stay uncommitted and are read again."""
        self._handed_over.put(None)
        if self._writing_thread is not None:
            self._writing_thread.join()

    def _wait_until_written(self, seconds: float) -> bool:
        """Wait until `write` has got everything that was handed over so far; False after `seconds`."""
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
            logger.exception("error while sending back %r", failed.message)
            with suppress(BaseException):  # the thread has other messages
                failed.end(SendBackFailed(Cause.of(error).message))


def _is_same(one: Message, other: Message) -> bool:
    return (one.key, one.body) == (other.key, other.body)


def uncommitted(queues: Iterable[ProcessQueue]) -> dict[ProcessQueue, Commit]:
    """Return the offsets of these queues that are not committed yet."""
    return {queue: point for queue in queues if (point := queue.to_commit) is not None}


def points_of(points: Mapping[ProcessQueue, Commit]) -> dict[Partition, Commit]:
    """Return the commits by partition."""
    return {queue.where: point for queue, point in points.items()}


@dataclass(eq=False, kw_only=True)
class PlainSender(Sender):
    """Commits an offset after the acknowledgement of its send-back. A crash in between sends back twice.

    Guarantees: a message that is read again and fails again before its send-back has ended, because its partition left
    and returned, waits for that send-back. So a delay topic that is away for long gets one copy of each, and memory
    does not grow with each rebalance. Test: tests/unit/consumers/sending/test_senders.py.

    Attributes:
        writer: writes send-backs.
        consumer: commits.
    """

    writer: SendBackWriter
    consumer: GroupConsumer
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _begun: dict[_Attempt, list[FailedMessage]] = field(init=False, default_factory=dict)

    def waiting_share(self) -> float:
        """Return the writer's fraction of `maxWaiting`."""
        return self.writer.limit.share(self.log.group)

    def write(self, failed: FailedMessage) -> None:
        """Write the send-back, or wait for the one of the same message."""
        message = failed.message
        attempt = *message.kafka, failed.request.stored.reconsume_times
        with self._lock:
            same = self._begun.setdefault(attempt, [failed])
            is_first = same[0] is failed
            if not is_first and _is_same(same[0].message, message):
                same.append(failed)
                return
        # A topic that was created again has other records at its old places.
        done = partial(self._ended, attempt) if is_first else failed.done
        try:
            self.writer.send_back(failed.request, message.key, message.body, done)
        except BaseException:
            if is_first:
                self._begun.pop(attempt, None)
            raise

    def _ended(self, attempt: _Attempt, error: SendBackFailed | None) -> None:
        with self._lock:
            same = self._begun.pop(attempt, ())
        if len(same) == 1:  # the usual case; an exit stack takes 3 µs
            same[0].done(error)
            return
        with ExitStack() as each:
            for failed in same:
                each.callback(failed.done, error)

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit pending offsets; the answer comes with a later poll."""
        points = uncommitted(queues)
        self._note(points, self.consumer.commit(points_of(points), wait=False))

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for send-backs on their way, then commit."""
        end = time.monotonic() + seconds
        settled = self._wait_until_written(seconds) and not self.writer.flush(max(0.0, end - time.monotonic()))
        # Repeat earlier commits: their answers may not have arrived yet.
        points = {queue: point for queue in queues if (point := queue.commit_point()) is not None}
        within = max(_COMMIT_SECONDS, end - time.monotonic())
        self._note(points, self.consumer.commit(points_of(points), wait=True, within=within))
        return settled

    def _note(self, points: Mapping[ProcessQueue, Commit], refused: Collection[Partition]) -> None:
        for queue, point in points.items():
            queue.committed = None if queue.where in refused else point
