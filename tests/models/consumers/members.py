"""Members of a consumer group for the model: the real loop, service and sender, on what stands in for Kafka."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final, cast

from confluent_kafka import TopicPartition

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed, Offsets, OutcomeUnknown
from reconsume.bridge.writing.waiting_limit import OnDone
from reconsume.consumers.assigned_partitions import AssignedPartitions
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.consume_settings import Limits
from reconsume.consumers.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, NotNow
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.orderly import Lane, OrderlyService
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from reconsume.consumers.push_consumer import PushConsumer
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import PlainSender
from reconsume.consumers.sending.transactional_sender import TransactionalSender
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaNotReachable, PartitionLost, SendBackFailed
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest
from tests.models.consumers.kafka import Client, Kafka, Meanwhile, Where
from tests.unit.consumers.doubles import RunsNothing

__all__ = ["TIMEOUT_MS", "Member", "PlainWriter", "SteppedSender", "Transactions"]

TIMEOUT_MS: Final = 60_000
NOT_NOW_MS: Final = 500
_SUSPEND: Final = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class PlainWriter:
    """The writer of send-backs of their own.

    Attributes:
        waiting: on their way.
        flushes: whether they arrive in time when they are waited for.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.waiting: list[tuple[bytes, OnDone]] = []
        self.flushes = True

    def send_back(self, _request: SendBackRequest, _key: bytes | None, body: bytes | None, on_done: OnDone) -> None:
        self.waiting.append((body or b"", on_done))

    def flush(self, _seconds: float) -> int:
        while self.waiting and self.flushes:
            self.answer("is stored")
        return len(self.waiting)

    def answer(self, fate: str) -> None:
        body, on_done = self.waiting.pop(0)
        self._kafka.sent_back[body] += fate == "is stored"
        on_done(None if fate == "is stored" else SendBackFailed(fate))


class Transactions(ExactlyOnceWriter):
    """The writer of send-backs together with offsets; what it says of one without an answer is the real verdict.

    Attributes:
        fate: what becomes of the next ones, in turn; then all is well.
        away: how often nobody tells what became of one.
        before: happens before a transaction is judged.
        after: happens before its answer is there.
    """

    def __init__(self, kafka: Kafka, known: KnownOffsets) -> None:
        self._kafka = kafka
        self._group = "departures"
        self._admin = cast("Any", self)
        self._known = known
        self._was_shut_out = False
        self.fate: list[str] = []
        self.away = 0
        self.before: Meanwhile | None = None
        self.after: Meanwhile | None = None

    def send_back(self, failed: Sequence[Failed], offsets: Offsets, generation: int) -> None:
        fate = self.fate.pop(0) if self.fate else "is committed"
        before, self.before = self.before, None
        if before is not None:
            before()
        if fate == "is aborted":
            raise KafkaNotReachable(fate)
        if fate == "is refused":
            raise SendBackFailed(fate)
        if fate == "is undone without an answer":
            raise OutcomeUnknown(offsets, KafkaNotReachable(fate))
        if not self._kafka.commit(generation, [TopicPartition(*where, *one) for where, one in offsets.items()]):
            raise PartitionLost("the group has rebalanced")
        self._kafka.sent_back.update(one.value or b"" for one in failed)
        after, self.after = self.after, None
        if after is not None:
            after()
        if fate == "is committed without an answer":
            raise OutcomeUnknown(offsets, KafkaNotReachable(fate))

    def was_committed(self, offsets: Offsets) -> bool:
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        return super().was_committed(offsets)

    def _started(self, seconds: float = 0) -> None:
        """There is no producer."""

    def commits(self, _group: str, wheres: Iterable[Where], *, stable: bool) -> dict[Where, Commit]:
        assert stable
        return {where: Commit(*self._kafka.told[where]) for where in wheres if where in self._kafka.told}


class SteppedSender(TransactionalSender):
    """What its thread does is done in steps: it asks for the metadata, the loop gives it, it writes."""

    def _run(self) -> None:
        """The thread ends at once."""

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for nobody: what a transaction under way holds is written by this thread, or not at all."""
        del seconds
        return super().settle(queues, 0)

    def step(self) -> None:
        metadata, self._metadata = self._metadata, None
        if metadata is not None:
            self._settle(metadata, 0)
        elif self._pending or self._to_commit or self._unresolved:
            self._asks = True


class Calls(RunsNothing):
    """The pool and the listener: a call begins, goes on and comes back when the model says so."""

    def __init__(self, client: Client, *, orderly: bool) -> None:
        self._client = client
        self._orderly = orderly
        self.waiting: list[Any] = []
        self.running: list[Coroutine[None, str, None]] = []
        self._result: str | None = None

    def submit(self, chunk: Chunk | Lane) -> None:
        self.waiting.append(chunk)

    def call(self, service: Any, result: str | None) -> None:
        """The first that waits; None if it goes on for now."""
        work, self._result = self.waiting.pop(0), result
        if result is not None:
            service.consume(work)
            return
        running = service.consume_async(work)
        with suppress(StopIteration):
            running.send(None)
            self.running.append(running)

    def come_back(self, which: int, result: str) -> None:
        running = self.running.pop(which % len(self.running))
        with suppress(StopIteration):
            running.send(result)

    def abandon(self) -> None:
        """What still runs comes to nothing."""
        while self.running:
            self.come_back(0, "fails")

    def listen(self, messages: Sequence[Message], context: Any) -> Any:
        self._judge(messages)
        self._client.kafka.calls.update(message.body or b"" for message in messages)
        if self._result is None:
            return self._go_on(messages, context)
        return self._end(self._result, messages, context)

    def _judge(self, messages: Sequence[Message]) -> None:
        kafka, client, where = self._client.kafka, self._client, _place(messages)
        offsets = {message.offset for message in messages}
        if again := offsets & (kafka.covered(where) if client.owns(where) else client.first[where].done):
            kafka.broken.append(f"given again though done: {where} {again}")
        counted = client.first[where].failures
        if few := [one for one in messages if one.reconsume_times < counted.get(one.offset, 0)]:
            kafka.broken.append(f"failures forgotten: {few} of {counted}")
        before = [body for at, body in kafka.records(where).items() if at < min(offsets)]
        if self._orderly and (early := [one for one in before if not kafka.is_done(one)]):
            kafka.broken.append(f"given before {early}: {where} {offsets}")
        if self._orderly and client.owns(where) and any(one.is_member() for one in kafka.busy[where]):
            kafka.broken.append(f"two at once: {where} {offsets}")

    async def _go_on(self, messages: Sequence[Message], context: Any) -> Any:
        busy, where = self._client.kafka.busy, _place(messages)
        busy[where].append(self._client)
        result = await _Result()
        if self._client in busy[where]:
            busy[where].remove(self._client)
        return self._end(result, messages, context)

    def _end(self, result: str, messages: Sequence[Message], context: Any) -> Any:
        kafka = self._client.kafka
        if result == "raises":
            raise ValueError(result)
        if result == "says not now":
            raise NotNow(kafka.now + NOT_NOW_MS)
        if result == "fails":
            return _SUSPEND if self._orderly else ConsumeConcurrentlyStatus.RECONSUME_LATER
        done = messages
        if result == "does the first" and not self._orderly:
            context.ack_index, done = 0, messages[:1]
        if self._client.alive:
            kafka.succeeded.update(message.body or b"" for message in done)
        return ConsumeOrderlyStatus.SUCCESS if self._orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def stop(self) -> None:
        self.waiting.clear()

    def is_working(self) -> bool:
        return bool(self.running)


class _Result:
    def __await__(self) -> Generator[None, str, str]:
        return (yield)


class _ComeBack(threading.Condition):
    """Whoever waits for listeners has one come back."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def wait(self, timeout: float | None = None) -> bool:
        if timeout:
            self._calls.come_back(0, "succeeds")
        return bool(timeout)


def _place(messages: Sequence[Message]) -> Where:
    return messages[0].kafka.topic, messages[0].kafka.partition


class Member:
    """One life of a consumer: the real loop, service and sender on what stands in for Kafka."""

    def __init__(self, kafka: Kafka, *, exactly_once: bool, orderly: bool) -> None:
        self.client = client = Client(kafka)
        self.calls = Calls(client, orderly=orderly)
        self.known = KnownOffsets(lambda topics: dict.fromkeys(topics, "1"), patience_ms=0)
        consumer = GroupConsumer({}, lambda _settings: cast("Any", client))
        self.writer: PlainWriter | Transactions
        self.sender: PlainSender | SteppedSender
        if exactly_once:
            self.writer = together = Transactions(kafka, self.known)
            self.sender = SteppedSender(
                log=SendBackLog("departures"),
                writer=together,
                group_metadata=consumer.group_metadata,
                known=self.known,
            )
        else:
            self.writer = apart = PlainWriter(kafka)
            self.sender = PlainSender(log=SendBackLog("departures"), writer=cast("Any", apart), consumer=consumer)
        names, clock = TopicNames(), lambda: kafka.now
        service = OrderlyService if orderly else ConcurrentlyService
        self.service = service(
            listener=self.calls.listen,
            sender=self.sender,
            max_reconsume_times=1 if orderly else None,
            batch_size=2,
            clock=clock,
        )
        self.service.pool = self.calls
        if isinstance(self.service, OrderlyService):
            self.service._changed = _ComeBack(self.calls)
        limits = Limits(1_000, 1_000_000, 2_000, TIMEOUT_MS, 60, leave_seconds=60, settle_seconds=0)
        given = PushConsumer("departures", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        partitions = AssignedPartitions(
            settings=replace(given._settings, limits=limits),
            consumer=consumer,
            service=self.service,
            sender=self.sender,
            known=self.known,
        )
        self.loop = ConsumeLoop(partitions, Subscriptions(names))
        # A question is asked again in the next turn.
        self.loop.partitions.kept_progress._clock = count(0, 1_000).__next__
        client.on_commit = consumer._committed
        self.loop.begin()
