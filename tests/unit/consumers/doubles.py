"""What stands in for Kafka where Kafka is not what is tested: polled records, a writer, a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.bridge.writing.waiting_limit import OnDone
from reconsume.consumers.assigned_partitions import AssignedPartitions
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.listener_service import ListenerService
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeHooks
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from reconsume.consumers.push_consumer import PushConsumer
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import FailedMessage, Sender
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

__all__ = [
    "RETRY_TOPIC",
    "Begun",
    "Clock",
    "RecordingWriter",
    "RunsNothing",
    "chunk_of",
    "given_again",
    "loop_of",
    "loop_on",
    "message_at",
    "parts_of",
    "safe_offset",
    "service_of",
]

RETRY_TOPIC = "reconsume.RETRY.departures"
APPENDED_MS = 1_700_000_000_000


def message_at(
    offset: int,
    *,
    topic: str = "flights",
    partition: int = 0,
    headers: list[Header] | None = None,
    key: bytes | None = b"key",
    body: bytes | None = b"body",
    timestamp: int = APPENDED_MS,
) -> Message:
    """A message as the poll loop makes one, for the group `departures`."""
    polled = KafkaMessage(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=body,
        headers=cast("Any", headers),
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, timestamp),
    )
    return Message(polled, RETRY_TOPIC)


def chunk_of(size: int, *, queue: ProcessQueue | None = None, start: int = 0) -> Chunk:
    """A batch of messages that were read from one partition."""
    queue = queue or ProcessQueue("flights", 0)
    messages = tuple(message_at(offset, topic=queue.topic) for offset in range(start, start + size))
    queue.begin(messages)
    return Chunk(queue, messages)


@dataclass
class Clock:
    """Stands still until it is told the time, in milliseconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class RecordingWriter(Sender):
    """Answers when told to.

    Attributes:
        answers: what the next send-backs get at once: None for acknowledged, or an error; without one they wait.
        waiting: the `done` of those that wait.
    """

    log: SendBackLog = field(default_factory=lambda: SendBackLog("departures"), kw_only=True)
    answers: list[SendBackFailed | None] = field(default_factory=list)
    requests: list[SendBackRequest] = field(default_factory=list)
    keys_and_values: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    waiting: list[OnDone] = field(default_factory=list)

    def write(self, failed: FailedMessage) -> None:
        self.requests.append(failed.request)
        self.keys_and_values.append((failed.message.key, failed.message.body))
        if self.answers:
            failed.done(self.answers.pop(0))
        else:
            self.waiting.append(failed.done)

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Nothing to commit to."""

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Whether nothing waits."""
        del queues, seconds
        return not self.waiting

    @property
    def origins(self) -> list[str]:
        """Which messages were sent back, in order."""
        return [request.stored.origin_message_id for request in self.requests]


class RunsNothing:
    """A pool but for `submit`, where nothing runs unless a test says so."""

    submit: Callable[[Any], None]

    def submit_all(self, chunks: Iterator[Any]) -> None:
        for chunk in chunks:
            self.submit(chunk)

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Nothing runs meanwhile."""

    def stop(self) -> None:
        """Nothing runs by itself."""

    def is_working(self) -> bool:
        return False

    def close(self, seconds: float) -> bool:
        del seconds
        return True


def parts_of(
    listener: Callable[..., Any],
    sender: Sender,
    clock: Clock,
    hooks: ConsumeHooks | None = None,
    groups: Callable[[], Groups] | None = None,
) -> dict[str, Any]:
    """What a service under test is made of; without groups the log says nothing of send-backs."""
    sender.log, sender.groups, sender.hooks = SendBackLog("departures", clock), groups, hooks
    return {"listener": listener, "sender": sender, "clock": clock}


def service_of(listener: Callable[..., Any], writer: Sender, clock: Clock, **more: Any) -> ConcurrentlyService:
    """The service under test, on doubles."""
    return ConcurrentlyService(**parts_of(listener, writer, clock), **more)


def given_again(service: ConcurrentlyService) -> list[Chunk]:
    """What the service gives to its listener again now."""
    given: list[Chunk] = []
    pool = RunsNothing()
    pool.submit = given.append
    service.pool = pool
    service.tick()
    return given


@dataclass
class Begun(RunsNothing):
    """A pool that calls no listener: partition and offset of what would be consumed."""

    messages: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.submit = self._take

    def _take(self, messages: Iterable[Message]) -> None:
        self.messages += [(message.kafka.partition, message.kafka.offset) for message in messages]


def loop_on(consumer: object) -> tuple[ConsumeLoop, Begun]:
    """The loop under test on a double of a consumer, and what it begins."""
    begun = Begun()
    service = service_of(lambda _messages, _context: None, RecordingWriter(), Clock())
    service.pool = cast("Any", begun)
    return loop_of(consumer, service, RecordingWriter()), begun


def loop_of(consumer: object, service: ListenerService[Any], sender: Sender, **more: Any) -> ConsumeLoop:
    """The loop under test on these parts."""
    given = PushConsumer("departures", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    partitions = AssignedPartitions(
        settings=replace(given._settings, **more),
        consumer=GroupConsumer({}, lambda _settings: cast("Any", consumer)),
        service=service,
        sender=sender,
        known=KnownOffsets(lambda _topics: {}),
    )
    return ConsumeLoop(partitions, Subscriptions(TopicNames()))


def safe_offset(queue: ProcessQueue) -> int | None:
    """The offset that would be committed now."""
    point = queue.commit_point()
    return None if point is None else point.offset
