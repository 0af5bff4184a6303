"""A model of two workers, a delay log and Kafka's transactions; hypothesis explores what may happen between them.

The workers are the real ones. Kafka is modelled by what it promises: a transaction's records and offsets become visible
together or not at all, and one that carries an old generation of the group is refused.

In words, at every moment:

1. **Together.** What is delivered of a partition is exactly what its committed offset, and what is kept beside it as
   done ahead, say.
2. **Once.** No record is delivered twice.
3. **Not early.** No record is delivered before its append time plus the delay of its lane, nor before its own moment.
4. **In order.** Of a lane whose records all wait equally long, what was appended first of a group is delivered first.

And in the end, when nothing goes wrong any more: all is delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any, Final, cast

import hypothesis.strategies as st
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, TopicPartition
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.bridge.scheduler.delivery import batch_routing, due_batch
from reconsume.bridge.scheduler.delivery.aborted_batches import AbortedBatches
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.delivery.refusals import Refusals
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, BatchInDoubt, WriterBroken
from reconsume.bridge.scheduler.membership.earlier_owners import EarlierOwners
from reconsume.bridge.scheduler.membership.unknown_outcome import UnknownOutcome
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.bridge.scheduler.worker import Worker
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, RecordTooLarge
from reconsume.delay_levels.progress.done_ahead import decode_done, encode_done
from reconsume.delay_levels.wire.names import TopicNames
from tests.support.positions import PositionsInMemory, Transaction

NAMES: Final = TopicNames()
LANES: Final = {NAMES.delay(1_000): 1_000, NAMES.delay(2_000): 2_000, NAMES.delay(0): 0}
PARTITIONS: Final = [(topic, number) for topic in LANES for number in (0, 1)]
WORKERS: Final = ("a", "b")
READ_AT_ONCE: Final = 3
HOLD_MS: Final = 20_000
"""Longer than any worker holds a partition."""
FATES: Final = (
    "commits",
    "aborts",
    "is refused",
    "is refused by one target for a size",
    "breaks",
    "commits and breaks",
    "commits without an answer",
    "commits late, without an answer",
    "is undone without an answer",
)
"""Of a batch."""

Where = tuple[str, int]


@dataclass
class Kafka:
    """The delay log, the group's offsets, and what was delivered, each with its moment.

    Attributes:
        told: what the group's coordinator says is committed.
        open: transactions whose end is still on its way, by worker; to ask what is committed waits for them.
        stranger: a transaction in the POSITIONS topic of a worker that is dead, and since when; brokers end it.
    """

    now: float = 0.0
    logs: dict[Where, list[Message]] = field(default_factory=lambda: {where: [] for where in PARTITIONS})
    committed: dict[Where, tuple[int, str]] = field(default_factory=dict)
    told: dict[Where, tuple[int, str]] = field(default_factory=dict)
    delivered: dict[Where, list[tuple[int, float]]] = field(default_factory=lambda: {one: [] for one in PARTITIONS})
    owners: dict[Where, str] = field(default_factory=dict)
    open: dict[str, Callable[[], None]] = field(default_factory=dict)
    positions: PositionsInMemory = field(default_factory=PositionsInMemory)
    stranger: tuple[Transaction, float] | None = None

    def append(self, where: Where, wait: int, group: bytes = b"flood") -> None:
        """A record of `DELAY.0s` has its own moment, in its value."""
        stored = (TIMESTAMP_LOG_APPEND_TIME, int(self.now))
        due = int(self.now) + (wait if LANES[where[0]] == 0 else LANES[where[0]])
        topic, partition = where
        log = self.logs[where]
        log.append(
            Message(
                topic=topic,
                partition=partition,
                offset=len(log),
                value=b"%d" % due,
                timestamp=stored,
                headers=[("REAL_TOPIC", group)],
            )
        )

    def begin(self, worker: str, offsets: Mapping[Partition, Commit]) -> Transaction:
        """A transaction that is aborted unless its commit begins."""
        transaction = self.positions.write(offsets, Transaction())

        def abort() -> None:
            transaction.state = "aborted"

        self.open[worker] = abort
        return transaction

    def begin_commit(
        self, worker: str, batch: Sequence[Delivery], offsets: Mapping[Partition, Commit], transaction: Transaction
    ) -> None:
        """Once the group has taken the offsets only the end is missing."""
        if any(self.owners.get(where) != worker for where in offsets):
            self.decide()
            raise BatchAborted(KafkaNotReachable("ILLEGAL_GENERATION"), passing=True)

        def end() -> None:
            transaction.state = "committed"
            for one in batch:
                where = one.topic, one.partition
                self.delivered[where].append((int(one.key or b""), self.now))
            self.told.update(offsets)
            self.committed.update(offsets)

        self.open[worker] = end

    def decide(self) -> None:
        """Every end that is on its way arrives."""
        while self.open:
            self.open.popitem()[1]()

    def end_strangers(self, after_ms: float = 0.0) -> None:
        """Brokers abort what is open for too long."""
        if self.stranger is not None and self.now - self.stranger[1] >= after_ms:
            self.stranger[0].state, self.stranger = "aborted", None


@dataclass
class Member:
    """The consumer and the producer of one worker, as far as it uses them.

    Attributes:
        fate: what becomes of the next transactions, in turn; then all is well.
        believed: what it owns as far as it knows, with the next offset to read.
        away: how often the coordinator of its transactions does not answer.
    """

    kafka: Kafka
    name: str
    fate: list[str] = field(default_factory=list)
    believed: dict[Where, int] = field(default_factory=dict)
    paused: set[Where] = field(default_factory=set)
    away: int = 0

    def poll(self, _timeout: float) -> Message | None:
        read = self.consume(1, 0)
        return read[0] if read else None

    def consume(self, count: int, _timeout: float) -> list[Message]:
        found: list[Message] = []
        for where in self.believed:
            if where in self.paused:
                continue
            position = self.believed[where]
            part = self.kafka.logs[where][position : position + min(READ_AT_ONCE, count - len(found))]
            self.believed[where] += len(part)
            found += part
        return found

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.kafka.decide()
        found = {one: self.kafka.told.get((one.topic, one.partition), (-1001, "")) for one in partitions}
        return [TopicPartition(one.topic, one.partition, *at) for one, at in found.items()]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(one.topic, one.partition) for one in partitions}

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.kafka.decide()
        for one in partitions:
            where = one.topic, one.partition
            self.believed[where] = one.offset if one.offset >= 0 else self.kafka.told.get(where, (0, ""))[0]

    def seek(self, position: TopicPartition) -> None:
        self.believed[position.topic, position.partition] = position.offset

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> None:
        assert not asynchronous
        self.kafka.told.update({(one.topic, one.partition): (one.offset, one.metadata or "") for one in offsets})

    def start(self) -> None: ...

    def close(self) -> None: ...

    def serve(self) -> None: ...

    def ask_time(self) -> None: ...

    def recover(self) -> None:
        """The next producer with the same transactional id: what is not on its way yet never comes."""
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        self.kafka.decide()

    def write(self, batch: DueBatch, _consumer: Any) -> None:
        fate = self.fate.pop(0) if self.fate else "commits"
        # One that aborts does not get all of its records.
        deque(islice(batch.parts(), 1) if fate == "aborts" else batch.parts(), maxlen=0)
        self._write(fate, batch.deliveries, batch.commits)

    def _write(self, fate: str, batch: Sequence[Delivery], offsets: Callable[[], Mapping[Partition, Commit]]) -> None:
        self.kafka.decide()
        transaction = self.kafka.begin(self.name, offsets())
        if fate in ("aborts", "is refused"):
            self.kafka.decide()
        if fate == "aborts":
            raise BatchAborted(KafkaNotReachable("away"), passing=True)
        if fate == "is refused":
            raise BatchAborted(KafkaRefused("too large"), passing=False)
        if fate == "is refused by one target for a size":
            raise BatchAborted(RecordTooLarge("too large"), passing=False, topic=batch[-1].topic)
        if fate == "breaks":
            raise WriterBroken(KafkaNotReachable("fenced"))
        if fate == "is undone without an answer":
            raise BatchInDoubt(KafkaNotReachable("no answer"))
        self.kafka.begin_commit(self.name, batch, offsets(), transaction)
        if fate == "commits late, without an answer":
            raise BatchInDoubt(KafkaNotReachable("no answer"))
        self.kafka.decide()
        if fate == "commits without an answer":
            raise BatchInDoubt(KafkaNotReachable("no answer"))
        if fate == "commits and breaks":
            raise WriterBroken(KafkaNotReachable("fenced"))


class Trials:
    """Of the records that are tried alone every third is refused; the answer to every fifth trial is missing."""

    def __init__(self) -> None:
        self._tried = 0

    def limit_sets(self, topic: str, max_bytes: int | None) -> None: ...

    def try_alone(self, delivery: Delivery) -> ReconsumeError | None:
        self._tried += 1
        if self._tried % 5 == 0:
            raise KafkaNotReachable("away")
        return RecordTooLarge("too large") if int(delivery.key or b"") % 3 == 0 else None


class Routes:
    """Delivers everything; the key of a delivery tells where its record stood."""

    def __init__(self) -> None:
        self.timers = self

    @staticmethod
    def due_ms(message: Message) -> float:
        return float(message.value() or b"")

    def meet(self, _messages: object) -> None: ...

    def route(self, messages: Iterable[Message], batch: list[Delivery], topic: str) -> None:
        assert topic
        batch += [self._written(message, "delivered") for message in messages]

    def route_plain(self, messages: Iterable[Message], _topic: str) -> list[Delivery]:
        plain = takewhile(lambda message: (message.offset() or 0) % 7, messages)
        return [self._written(message, "delivered") for message in plain]

    def quarantine(self, message: Message, reason: str) -> Delivery:
        return self._written(message, "quarantined")._replace(headers=[("QUARANTINE_REASON", reason.encode())])

    @staticmethod
    def _written(message: Message, outcome: str) -> Delivery:
        key = b"%d" % (message.offset() or 0)
        return Delivery(message.topic() or "", message.partition() or 0, key, message.value(), [], outcome, "g")

    def forget(self) -> None: ...


@pytest.fixture(autouse=True, scope="module")
def _parts_of_two() -> Iterator[None]:
    """Most batches grow while they are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(due_batch, "PART", 2)
        patch.setattr(batch_routing, "_WHOLE_BATCHES", 1)
        yield


class Workers(RuleBasedStateMachine):
    """Two workers of a group share the partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka = Kafka()
        self.members: dict[str, Member] = {}
        self.workers: dict[str, Worker] = {}
        for name in WORKERS:
            self._start(name)
        self._give(PARTITIONS[:3], "a")
        self._give(PARTITIONS[3:], "b")

    def _start(self, name: str) -> None:
        member = self.members[name] = Member(self.kafka, name)
        router = cast("Any", Routes())
        self.workers[name] = Worker(
            GroupConsumer({}, lambda _settings: cast("Any", member)),
            member,
            router=router,
            refusals=Refusals(router, cast("Any", Trials())),
            names=NAMES,
            read_ahead=ReadAhead(4, 10**9),
            observer=WorkerObserver(NAMES, SchedulerMetrics(), lambda: self.kafka.now, elapsed=lambda: self.kafka.now),
            refused=lambda _topics: {},
            max_batch_records=5,
            transaction_timeout_ms=10_000,
            clock=lambda: self.kafka.now,
            elapsed=lambda: self.kafka.now,
            positions=cast("Any", self.kafka.positions),
        )

    def _give(self, wheres: Sequence[Where], name: str) -> None:
        for where in wheres:
            self.kafka.owners[where] = name
        self.workers[name]._assigned(wheres)

    def _take(self, wheres: Sequence[Where], name: str) -> None:
        """It is told."""
        for where in wheres:
            self.members[name].believed.pop(where, None)
        self.workers[name]._revoked(wheres)

    @rule(where=st.sampled_from(PARTITIONS), wait=st.integers(0, 5_000))
    def a_record_is_appended(self, where: Where, wait: int) -> None:
        self.kafka.append(where, wait)

    @rule(
        where=st.sampled_from(PARTITIONS),
        count=st.integers(10, 40),
        few=st.lists(st.sampled_from([b"few", b"other"]), max_size=3),
    )
    def a_group_floods_and_others_are_behind_it(self, where: Where, count: int, few: list[bytes]) -> None:
        for _ in range(count):
            self.kafka.append(where, 0)
        for group in few:
            self.kafka.append(where, 0, group)

    @rule(passes=st.integers(1, 3_000))
    def time_passes(self, passes: int) -> None:
        self.kafka.now += passes
        self.kafka.end_strangers(HOLD_MS)

    @rule(
        name=st.sampled_from(WORKERS),
        fate=st.sampled_from(FATES),
        away=st.integers(0, 1),
    )
    def a_worker_turns(self, name: str, fate: str, away: int = 0) -> None:
        self.members[name].fate, self.members[name].away = [fate], away
        try:
            self.workers[name].run_once(0)
        except WriterBroken:
            self._dies(name)

    @rule(name=st.sampled_from(WORKERS))
    def a_worker_dies(self, name: str) -> None:
        self._dies(name)

    def _dies(self, name: str) -> None:
        """The next one of that name is given what it had."""
        self._start(name)
        self._give([where for where, owner in self.kafka.owners.items() if owner == name], name)

    @rule(where=st.sampled_from(PARTITIONS), told=st.booleans())
    def a_partition_moves(self, where: Where, told: bool) -> None:
        """One that is not told goes on with it, as a process that was stopped does."""
        old = self.kafka.owners[where]
        if told:
            self._take([where], old)
        self._give([where], "b" if old == "a" else "a")

    @precondition(lambda self: self.kafka.stranger is None)
    @rule()
    def another_worker_dies_in_a_transaction(self) -> None:
        """Nobody ends it; positions behind it are hidden until the brokers do."""
        strangers = self.kafka.positions.write({("reconsume.DELAY.9s", 0): Commit(1, "")}, Transaction())
        self.kafka.stranger = strangers, self.kafka.now

    @rule(where=st.sampled_from(PARTITIONS), anew=st.booleans())
    def the_coordinator_loses_all_offsets(self, where: Where, anew: bool) -> None:
        """The group is gone too, and its partitions move; all workers may have started anew."""
        self._tell()
        self.kafka.decide()
        self.kafka.told.clear()
        if anew:
            for name in WORKERS:
                self._start(name)
        owners = dict(self.kafka.owners)
        for one, name in owners.items():
            self._take([one], name)
        for one, name in owners.items():
            self._give([one], "b" if (name == "a") == (one >= where) else "a")

    @precondition(lambda self: any(set(self.members[name].believed) - self._owned(name) for name in WORKERS))
    @rule()
    def who_was_put_out_learns_it(self) -> None:
        self._tell()

    def _owned(self, name: str) -> set[Where]:
        return {where for where, owner in self.kafka.owners.items() if owner == name}

    def _tell(self) -> None:
        for name in WORKERS:
            if gone := sorted(set(self.members[name].believed) - self._owned(name)):
                self._take(gone, name)

    @invariant()
    def what_is_delivered_is_what_is_committed(self) -> None:
        for where in PARTITIONS:
            offset, metadata = self.kafka.committed.get(where, (0, ""))
            done = {*range(offset), *decode_done(offset, metadata)}
            assert sorted(one for one, _ in self.kafka.delivered[where]) == sorted(done)

    @invariant()
    def nothing_is_early(self) -> None:
        for where in PARTITIONS:
            for offset, moment in self.kafka.delivered[where]:
                assert moment >= Routes.due_ms(self.kafka.logs[where][offset])

    @invariant()
    def lanes_keep_their_order(self) -> None:
        for where in PARTITIONS:
            log, by_group = self.kafka.logs[where], dict[Any, list[int]]()
            for offset, _ in self.kafka.delivered[where]:
                by_group.setdefault(dict(headers_of(log[offset]))["REAL_TOPIC"], []).append(offset)
            assert LANES[where[0]] == 0 or all(offsets == sorted(offsets) for offsets in by_group.values())

    def teardown(self) -> None:
        """Nothing goes wrong any more."""
        self._tell()
        self.kafka.end_strangers()
        longest = max(map(len, self.kafka.logs.values()))
        for _ in range(200 + longest):
            self.kafka.now += HOLD_MS
            for name in WORKERS:
                self.members[name].fate, self.members[name].away = [], 0
                self.workers[name].run_once(0)
        for where in PARTITIONS:
            assert len(self.kafka.delivered[where]) == len(self.kafka.logs[where]), where


Workers.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWorkers = Workers.TestCase


def test_the_model_finds_a_worker_that_forgets_a_batch_after_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: AbortedBatches, runs: list[Any], *_: object) -> None:
        del self
        for one in runs:
            one.drop()

    monkeypatch.setattr(AbortedBatches, "learn", forgets)
    machine = Workers()
    where = PARTITIONS[0]
    machine.a_record_is_appended(where, 0)
    machine.a_record_is_appended(where, 0)
    machine.time_passes(3_000)
    machine.workers["a"]._size.halve(1)
    machine.a_worker_turns("a", "aborts")
    machine.a_worker_turns("a", "commits")
    with pytest.raises(AssertionError):
        machine.what_is_delivered_is_what_is_committed()


def test_the_model_finds_a_worker_that_takes_a_batch_without_an_answer_for_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UnknownOutcome, "committed_runs", lambda *_: ())
    machine = Workers()
    machine.a_record_is_appended(PARTITIONS[0], 0)
    machine.time_passes(3_000)
    machine.a_worker_turns("a", "commits without an answer")
    machine.what_is_delivered_is_what_is_committed()
    for _ in range(2):
        machine.a_worker_turns("a", "commits")
    with pytest.raises(AssertionError):
        machine.what_is_delivered_is_what_is_committed()


@pytest.mark.parametrize("positions", ["none", "uncommitted"])
def test_the_model_finds_workers_that_go_by_the_coordinator_or_by_what_is_not_committed(
    positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if positions == "none":
        monkeypatch.setattr(EarlierOwners, "_look_ahead", lambda *_: set())
    else:
        monkeypatch.setattr(PositionsInMemory, "committed", PositionsInMemory.uncommitted)
    machine, where = Workers(), PARTITIONS[0]
    machine.a_record_is_appended(where, 0)
    machine.time_passes(3_000)
    machine.a_worker_turns("a", "commits" if positions == "none" else "breaks")
    machine.the_coordinator_loses_all_offsets(PARTITIONS[-1], anew=True)
    machine.a_record_is_appended(where, 0)
    machine.time_passes(3_000)
    for _ in range(2):
        for name in WORKERS:
            machine.a_worker_turns(name, "commits")
    with pytest.raises(AssertionError):
        machine.what_is_delivered_is_what_is_committed()


def test_the_model_gives_a_partition_twice_to_a_worker_that_still_asks_where_it_goes_on() -> None:
    """An open transaction may hide its position, so its first records wait."""
    machine = Workers()
    where, other = (NAMES.delay(2_000), 0), (NAMES.delay(1_000), 1)
    machine.another_worker_dies_in_a_transaction()
    for _ in range(10):
        machine.a_record_is_appended(where, 0)
    machine.time_passes(2_500)
    machine.the_coordinator_loses_all_offsets(other, anew=False)
    machine.a_worker_turns("b", "breaks")
    machine.a_worker_turns("b", "commits")
    machine.a_partition_moves(where, told=False)
    machine.a_partition_moves(where, told=False)
    machine.a_worker_turns("b", "commits")
    machine.teardown()
    assert [offset for offset, _ in machine.kafka.delivered[where]] == list(range(10))


def _after_an_earlier_owner(machine: Workers, where: Where, metadata: str) -> None:
    """Six due records, of which the fourth and the last were delivered before those in front of them."""
    for _ in range(6):
        machine.a_record_is_appended(where, 0)
    machine.time_passes(3_000)
    machine.kafka.committed[where] = machine.kafka.told[where] = 0, metadata
    machine.kafka.delivered[where] = [(3, machine.kafka.now), (5, machine.kafka.now)]


@pytest.mark.parametrize("fate", FATES)
def test_the_model_repeats_nothing_that_was_delivered_out_of_turn(fate: str) -> None:
    machine, where = Workers(), PARTITIONS[-1]
    _after_an_earlier_owner(machine, where, encode_done(0, [3, 5]))
    machine.workers["b"]._size.halve(4)
    machine.a_worker_turns("b", fate)
    machine.a_worker_turns("b", "commits")
    machine.what_is_delivered_is_what_is_committed()
    machine.a_partition_moves(where, told=True)
    while len(machine.kafka.delivered[where]) < 6:
        machine.time_passes(HOLD_MS)
        machine.a_worker_turns("a", "commits")
        machine.what_is_delivered_is_what_is_committed()
    assert [offset for offset, _ in machine.kafka.delivered[where]] == [3, 5, 0, 1, 2, 4]


@pytest.mark.parametrize("fate", FATES)
def test_what_formats_3_to_5_say_of_other_lanes_is_logged_and_costs_no_record(
    fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine, where = Workers(), PARTITIONS[0]
    _after_an_earlier_owner(machine, where, "apart1:AwE=")  # 3 and 5 are done
    machine.a_worker_turns("a", fate)
    machine.a_partition_moves(where, told=True)
    for _ in range(10):
        machine.time_passes(HOLD_MS)
        machine.a_worker_turns("b", "commits")
    assert [offset for offset, _ in machine.kafka.delivered[where]] == [3, 5, 0, 1, 2, 3, 4, 5]
    assert machine.kafka.committed[where] == (6, "")
    assert "metadata ignored topic=reconsume.DELAY.1s partition=0" in caplog.text


def test_the_model_finds_an_owner_that_does_not_ask_what_was_delivered_out_of_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReadAhead, "learn", lambda *_: None)
    machine, where = Workers(), PARTITIONS[-1]
    _after_an_earlier_owner(machine, where, encode_done(0, [3, 5]))
    for _ in range(10):
        machine.a_worker_turns("b", "commits")
    with pytest.raises(AssertionError):
        machine.what_is_delivered_is_what_is_committed()
