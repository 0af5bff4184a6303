"""Members of a consumer group for the model: the real loop, service and sender, on what stands in for Kafka."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from confluent_kafka import TopicPartition

from reconsume.bridge.admin import Commit
from reconsume.bridge.exactly_once import ExactlyOnceWriter, Failed, OutcomeUnknown
from reconsume.bridge.known_offsets import KnownOffsets
from reconsume.bridge.send_back import OnDone
from reconsume.consumers.concurrently import ConcurrentlyService
from reconsume.consumers.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.consume_loop import ConsumeLoop, Limits
from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from reconsume.consumers.listener_pool import Chunk
from reconsume.consumers.message import Message
from reconsume.consumers.outcomes import NotNow
from reconsume.consumers.process_queue import Part
from reconsume.consumers.senders import PlainSender
from reconsume.consumers.subscription import Subscriptions
from reconsume.consumers.transactional_sender import TransactionalSender
from reconsume.delay_levels.errors import KafkaNotReachable, PartitionLost, SendBackFailed
from reconsume.delay_levels.names import TopicNames
from reconsume.delay_levels.send_back import SendBackRequest
from tests.unit.consumers.doubles import RETRY_TOPIC, RunsNothing
from tests.unit.consumers.model_kafka import Client, Kafka, Meanwhile, Where

__all__ = ["TIMEOUT_MS", "Member", "SendBacks", "SteppedSender", "Transactions"]

TIMEOUT_MS: Final = 60_000
NOT_NOW_MS: Final = 500


class SendBacks:
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
        self.fate: list[str] = []
        self.away = 0
        self.before: Meanwhile | None = None
        self.after: Meanwhile | None = None

    def write(self, failed: Sequence[Failed], offsets: Sequence[TopicPartition], generation: int) -> None:
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
        if not self._kafka.commit(generation, offsets):
            raise PartitionLost("the group has rebalanced")
        self._kafka.sent_back.update(one.value or b"" for one in failed)
        after, self.after = self.after, None
        if after is not None:
            after()
        if fate == "is committed without an answer":
            raise OutcomeUnknown(offsets, KafkaNotReachable(fate))

    def was_committed(self, positions: Sequence[TopicPartition]) -> bool:
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        return super().was_committed(positions)

    def _started(self) -> Any:
        """There is no producer."""

    def commits(self, _group: str, wheres: Iterable[Where], *, stable: bool) -> dict[Where, Commit]:
        assert stable
        return {where: Commit(*self._kafka.told[where]) for where in wheres if where in self._kafka.told}


class SteppedSender(TransactionalSender):
    """What its thread does is done in steps: it asks for the metadata, the loop gives it, it writes."""

    def _run(self) -> None:
        """The thread ends at once."""

    def step(self) -> None:
        metadata, self._metadata = self._metadata, None
        if metadata is not None:
            self._settle(metadata, 0)
        elif self._pending or self._to_commit or self._unresolved:
            self._asks = True


class Calls(RunsNothing):
    """The pool and the listener: a call begins, goes on and comes back when the model says so."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.waiting: list[Chunk | Part] = []
        self.running: list[Coroutine[None, str, None]] = []
        self._result: str | None = None
        self._stopped = False

    def submit(self, chunk: Chunk | Part) -> None:
        self.waiting.append(chunk)

    def call(self, service: ConcurrentlyService, result: str | None) -> None:
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

    def listen(self, messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> Any:
        kafka, client = self._client.kafka, self._client
        where = (messages[0].kafka.topic, messages[0].kafka.partition)
        offsets = {message.offset for message in messages}
        owned = client.generation == kafka.generation and where in client.believed
        if again := offsets & (kafka.covered(where) if owned else client.first[where]):
            kafka.broken.append(f"given again though done: {where} {again}")
        kafka.calls.update(message.body or b"" for message in messages)
        if self._result is None:
            return self._go_on(messages, context)
        return self._end(self._result, messages, context)

    async def _go_on(self, messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> Any:
        return self._end(await _Result(), messages, context)

    def _end(self, result: str, messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> Any:
        kafka = self._client.kafka
        if result == "raises":
            raise ValueError(result)
        if result == "says not now":
            raise NotNow(kafka.now + NOT_NOW_MS)
        if result == "fails":
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        if result == "does the first":
            context.ack_index = 0
        done = messages[:1] if result == "does the first" else messages
        if self._client.alive:
            kafka.succeeded.update(message.body or b"" for message in done)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def stop(self) -> None:
        self.waiting.clear()

    def is_working(self) -> bool:
        return bool(self.running)


class _Result:
    def __await__(self) -> Generator[None, str, str]:
        return (yield)


class Member:
    """One life of a consumer: the real loop, service and sender on what stands in for Kafka."""

    def __init__(self, kafka: Kafka, *, exactly_once: bool) -> None:
        self.client = client = Client(kafka)
        self.calls = Calls(client)
        self.known = KnownOffsets(lambda topics: dict.fromkeys(topics, "1"), patience_ms=0)
        self.writer: SendBacks | Transactions
        self.sender: PlainSender | SteppedSender
        if exactly_once:
            self.writer = together = Transactions(kafka, self.known)
            metadata = client.consumer_group_metadata
            self.sender = SteppedSender(together.write, together.was_committed, metadata, self.known.note)
        else:
            self.writer = apart = SendBacks(kafka)
            self.sender = PlainSender(apart.send_back, apart.flush, cast("Any", client))
        names, clock = TopicNames(), lambda: kafka.now
        self.service = ConcurrentlyService(
            "departures",
            self.calls.listen,
            sender=self.sender,
            names=names,
            max_reconsume_times=None,
            batch_size=2,
            clock=clock,
        )
        self.service.attach(self.calls)
        self.loop = ConsumeLoop(
            cast("Any", client),
            self.service,
            self.sender,
            retry_topic=RETRY_TOPIC,
            subscriptions=Subscriptions(names),
            consume_from=ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
            limits=Limits(1_000, 1_000_000, 2_000, TIMEOUT_MS, 60, leave_seconds=0, settle_seconds=0),
            known=self.known,
            clock=clock,
        )
        client.on_commit = self.loop.committed
        self.loop.begin()
