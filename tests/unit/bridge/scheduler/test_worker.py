"""The worker's decisions: what it does after a batch is committed, refused, or not answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.delivery.refused_targets import RefusedTarget
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, BatchInDoubt
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.pace import TransactionPace
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.bridge.scheduler.stalls import ReadingStopped
from reconsume.bridge.scheduler.targets.look_ups import LookUpsSpent
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.scheduler.withdrawals.cancels import CancelsNotRead
from reconsume.bridge.scheduler.worker import Worker
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames
from tests.support.positions import PositionsInMemory, Transaction

NAMES = TopicNames()
TOPIC = NAMES.delay(1_000)


@dataclass
class FakeConsumer:
    """Gives what it is fed; our own logic is tested here, Kafka's behaviour in the integration tests."""

    fed: list[Message] = field(default_factory=list)
    at: int = OFFSET_INVALID
    asked: list[set[int]] = field(default_factory=list)
    refusal: KafkaError | None = None
    not_committed: KafkaError | None = None
    paused: set[tuple[str, int]] = field(default_factory=set)
    restored: list[TopicPartition] = field(default_factory=list)
    sought: list[TopicPartition] = field(default_factory=list)
    end: int = 1_000

    def subscribe(self, *_: Any, **_callbacks: Any) -> None: ...

    def offsets_for_times(self, asked: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, self.end) for one in asked]

    def poll(self, _timeout: float) -> Message | None:
        return self.fed.pop(0) if self.fed else None

    def consume(self, count: int, _timeout: float) -> list[Message]:
        fed, self.fed = self.fed[:count], self.fed[count:]
        return fed

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(one.topic, one.partition) for one in partitions}

    def incremental_assign(self, _partitions: list[TopicPartition]) -> None: ...

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.asked.append({one.partition for one in partitions})
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        return [TopicPartition(one.topic, one.partition, self.at) for one in partitions]

    def seek(self, position: TopicPartition) -> None:
        self.sought.append(position)

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> None:
        assert not asynchronous
        if self.not_committed is not None:
            raise KafkaException(self.not_committed)
        self.restored += offsets


@dataclass
class FakeWriter:
    """Keeps what is written; `refuse` says what happens to a batch instead."""

    refuse: Callable[[Sequence[Delivery]], Exception | None] = lambda _batch: None
    written: list[Delivery] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    recovered: int = 0
    away: int = 0
    asked_time: int = 0
    answers_time: bool = True

    def start(self) -> None: ...

    def close(self) -> None: ...

    def serve(self) -> None: ...

    def ask_time(self) -> None:
        self.asked_time += 1
        if not self.answers_time:
            raise KafkaNotReachable("away")

    def recover(self) -> None:
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        self.recovered += 1

    def write(self, batch: DueBatch, _consumer: Any) -> None:
        for _ in batch.parts():
            pass
        self.batches.append(len(batch.deliveries))
        error = self.refuse(batch.deliveries)
        if error is not None:
            raise error
        self.written.extend(batch.deliveries)
        self.committed.update({where: one.offset for where, one in batch.commits().items()})


class FakeRouter:
    """Delivers everything to one topic, and quarantines as the real one does."""

    forgotten = 0
    timers = SimpleNamespace(due_ms=lambda _message: 0.0)

    def __init__(self) -> None:
        self.met: list[bytes | None] = []

    def forget(self) -> None:
        self.forgotten += 1

    def committed(self, batch: Sequence[Delivery]) -> None:
        self.met += [one.key for one in batch if one.outcome == "cancelled"]

    def meet(self, _messages: object) -> None: ...

    def route(self, messages: Iterable[Message], batch: list[Delivery], topic: str) -> None:
        assert topic == TOPIC
        batch.extend(map(self.decide, messages))

    def route_plain(self, messages: Iterable[Message], topic: str) -> list[Delivery]:
        batch: list[Delivery] = []
        self.route(messages, batch, topic)
        return batch

    def decide(self, message: Message) -> Delivery:
        return Delivery("retry", 0, None, message.value(), [], "delivered", "g")

    def quarantine_bad(self, message: Message) -> Delivery:
        return self.quarantine(message, "bad") if message.value() == b"bad" else FakeRouter.decide(self, message)

    def quarantine(self, message: Message, reason: str) -> Delivery:
        return Router(NAMES, cast("Any", None), cast("Any", None), cast("Any", None)).quarantine(message, reason)


class Bench:
    """A worker with two partitions and a clock that is set by hand."""

    def __init__(self, writer: FakeWriter, pace: TransactionPace | None = None, max_batch_records: int = 100) -> None:
        self.now = self.set_back = 0.0
        self.is_time_in_doubt = False
        self.consumer, self.writer, self.router = FakeConsumer(), writer, FakeRouter()
        self.positions = PositionsInMemory()
        self.worker = Worker(
            GroupConsumer({}, lambda _settings: cast("Any", self.consumer)),
            writer,
            router=cast("Any", self.router),
            names=NAMES,
            read_ahead=ReadAhead(1_000, 10**9),
            observer=WorkerObserver(NAMES, SchedulerMetrics(), lambda: self.now, elapsed=lambda: self.now),
            refused=lambda _topics: {},
            max_batch_records=max_batch_records,
            transaction_timeout_ms=10_000,
            pace=pace,
            clock=lambda: self.now - self.set_back,
            elapsed=lambda: self.now,
            is_time_in_doubt=lambda: self.is_time_in_doubt,
            positions=cast("Any", self.positions),
        )
        self.worker._assigned([(TOPIC, 0), (TOPIC, 1)])

    def feed(self, *values: bytes, partition: int = 0) -> None:
        self.feed_from(0, *values, partition=partition)

    def feed_from(self, first: int, *values: bytes, partition: int = 0) -> None:
        stored = (TIMESTAMP_LOG_APPEND_TIME, 0)
        self.consumer.fed += [
            Message(topic=TOPIC, partition=partition, offset=offset, value=value, timestamp=stored)
            for offset, value in enumerate(values, start=first)
        ]

    def feed_end(self, offset: int, partition: int = 0) -> None:
        end = KafkaError(KafkaError._PARTITION_EOF)
        self.consumer.fed.append(Message(topic=TOPIC, partition=partition, offset=offset, error=end))

    def turn(self, times: int = 1) -> int:
        return sum(self.worker.run_once(0) for _ in range(times))

    def values(self, outcome: str = "delivered") -> list[bytes | None]:
        return [one.value for one in self.writer.written if one.outcome == outcome]


def refusing(*poison: bytes) -> Callable[[Sequence[Delivery]], Exception | None]:
    """As a broker that takes no batch with one of these in it, but lets them into the quarantine."""

    def refuse(batch: Sequence[Delivery]) -> Exception | None:
        if any(one.value in poison and one.outcome == "delivered" for one in batch):
            return BatchAborted(KafkaRefused("too large"), passing=False)
        return None

    return refuse


@pytest.mark.rule("SC-03", "SC-14", "T-24")
def test_nothing_leaves_before_it_is_due_and_offsets_follow_what_was_written() -> None:
    bench = Bench(FakeWriter())
    bench.feed(b"a", b"b")
    bench.now = 999
    assert (bench.turn(2), bench.writer.committed) == (0, {})
    bench.now = 1_000
    assert bench.turn() == 2
    assert (bench.values(), bench.writer.committed) == ([b"a", b"b"], {(TOPIC, 0): 2})
    assert bench.turn() == 0


def test_a_large_backlog_that_waits_takes_little_more_memory_than_the_read_ahead() -> None:
    bench = Bench(FakeWriter(), max_batch_records=5_000)
    bench.feed(*(b"a" for _ in range(10_000)))
    while (TOPIC, 0) not in bench.consumer.paused:
        bench.worker.run_once(0.2)
    [head, _] = [queue.look(0) for queue in bench.worker._read_ahead]
    assert 1_000 <= head.in_memory <= 1_501


def test_a_large_backlog_that_is_due_is_delivered_in_full_batches() -> None:
    bench = Bench(FakeWriter(), max_batch_records=5_000)
    bench.feed(*(b"a" for _ in range(10_001)))
    bench.now = 1_000
    for _ in range(3):
        bench.worker.run_once(0.2)
    # `poll` returns one record, `consume` up to 5,000 more.
    assert bench.writer.batches == [5_000, 5_000, 1]


def test_nothing_is_delivered_while_the_brokers_do_not_tell_a_time_that_is_in_doubt() -> None:
    bench = Bench(FakeWriter(answers_time=False))
    bench.feed(b"a")
    bench.is_time_in_doubt, bench.now = True, 1_000
    assert bench.turn(5) == 0
    assert bench.writer.asked_time == 1, "it is asked again after a moment"
    bench.now += 500
    assert bench.turn(5) == 0
    assert bench.writer.asked_time == 2
    bench.writer.answers_time, bench.now = True, bench.now + 500
    assert (bench.turn(), bench.values()) == (1, [b"a"])


HOUR_MS = 3_600_000


def _raise(error: Exception) -> NoReturn:
    raise error


def test_a_clock_that_is_set_back_while_its_time_is_unknown_stops_no_worker() -> None:
    bench = Bench(FakeWriter(answers_time=False))
    bench.is_time_in_doubt, bench.now = True, HOUR_MS
    bench.turn()
    bench.feed(b"a")
    bench.set_back, bench.writer.answers_time, bench.now = HOUR_MS - 2_000, True, bench.now + 500
    assert (bench.turn(), bench.values()) == (1, [b"a"])


def test_a_clock_that_is_set_back_holds_an_aborted_batch_no_longer_than_another_one() -> None:
    answers: list[Exception | None] = [BatchAborted(KafkaNotReachable("away"), passing=True), None]
    bench = Bench(FakeWriter(refuse=lambda _batch: answers.pop(0)))
    bench.feed(b"a")
    bench.now = HOUR_MS
    assert bench.turn() == 0
    bench.set_back, bench.now = HOUR_MS - 2_000, bench.now + 500
    assert (bench.turn(), bench.values()) == (1, [b"a"])


def test_a_refusal_holds_for_five_seconds_also_when_the_clock_is_set_back() -> None:
    bench = Bench(FakeWriter())
    refusals = bench.worker._refusals
    bench.now = HOUR_MS
    refusals._remember("retry", RefusedTarget("no right", 0, bench.now + 5_000))
    bench.set_back, bench.now = HOUR_MS - 2_000, bench.now + 6_000
    bench.feed(b"a")
    bench.turn(5)
    assert (bench.values(), bench.values("quarantined")) == ([b"a"], [])


def test_a_clock_that_is_set_forward_ends_no_wait_for_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FakeWriter())
    monkeypatch.setattr(bench.positions, "uncommitted", lambda: _raise(KafkaNotReachable("positions unknown")))
    asked = bench.worker._owners
    assert asked.ask([(TOPIC, 0)])[1] == {(TOPIC, 0)}
    bench.set_back = -HOUR_MS
    assert asked.ask([(TOPIC, 0)])[1] == {(TOPIC, 0)}, "30 s have not passed"


@pytest.mark.rule("SC-11", "SC-12")
def test_a_batch_that_was_not_committed_is_delivered_again_after_a_moment() -> None:
    answers: list[Exception | None] = [BatchAborted(KafkaNotReachable("away"), passing=True), None]
    bench = Bench(FakeWriter(refuse=lambda _batch: answers.pop(0)))
    bench.feed(b"a", b"b")
    bench.now = 1_000
    assert (bench.turn(), bench.writer.committed) == (0, {})
    assert bench.turn() == 0, "it is held for half a second"
    bench.now = 1_500
    assert bench.turn() == 2
    assert bench.values() == [b"a", b"b"]
    assert bench.router.forgotten == 1, "a target that is gone looks like a broker that does not answer"


def test_a_record_alone_whose_target_is_gone_is_not_blamed_because_its_target_is_looked_up_again() -> None:
    answers: list[Exception | None] = [BatchAborted(TopicNotReady("the topic does not exist"), passing=False), None]
    bench = Bench(FakeWriter(refuse=lambda _batch: answers.pop(0)))
    bench.feed(b"a")
    bench.now = 1_000
    assert (bench.turn(2), bench.router.forgotten) == (0, 1)
    bench.now += 500
    assert (bench.turn(), bench.values(), bench.values("quarantined")) == (1, [b"a"], [])


def test_without_a_quarantine_topic_a_record_for_it_holds_up_only_its_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(batch: Sequence[Delivery]) -> Exception | None:
        is_gone = any(one.outcome == "quarantined" for one in batch)
        return BatchAborted(TopicNotReady("the topic does not exist"), passing=False) if is_gone else None

    bench = Bench(FakeWriter(refuse=refuse))
    bench.router.decide = bench.router.quarantine_bad  # type: ignore[method-assign]
    bench.feed(b"bad", b"behind")
    bench.feed(b"a", b"b", b"c", partition=1)
    bench.now = 1_000
    bench.turn(30)
    assert (bench.values(), bench.writer.committed) == ([b"a", b"b", b"c"], {(TOPIC, 1): 3})
    assert "is stuck: the topic does not exist" in caplog.text


@pytest.mark.rule("SC-19", "T-26")
def test_one_refused_record_is_singled_out_and_quarantined_and_all_others_are_delivered_once() -> None:
    bench = Bench(FakeWriter(refuse=refusing(b"bad")))
    bench.feed(*(b"%d" % number for number in range(20)), b"bad", *(b"%d" % number for number in range(20, 40)))
    bench.now = 1_000
    bench.turn(60)
    assert bench.values() == [b"%d" % number for number in range(40)]
    assert bench.values("quarantined") == [b"bad"]
    assert bench.writer.committed == {(TOPIC, 0): 41}
    (kept,) = [one for one in bench.writer.written if one.outcome == "quarantined"]
    assert dict(kept.headers)["QUARANTINE_REASON"] == b"too large"


def test_a_record_that_not_even_the_quarantine_takes_holds_up_only_its_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(batch: Sequence[Delivery]) -> Exception | None:
        bad = any(one.value == b"bad" for one in batch)
        return BatchAborted(KafkaRefused("too large"), passing=False) if bad else None

    bench = Bench(FakeWriter(refuse=refuse))
    bench.feed(b"bad", b"behind")
    bench.feed(b"a", b"b", b"c", partition=1)
    bench.now = 1_000
    bench.turn(30)
    assert bench.values() == [b"a", b"b", b"c"]
    assert bench.writer.committed == {(TOPIC, 1): 3}
    assert "is stuck: too large" in caplog.text


@pytest.mark.rule("T-29")
def test_a_revoked_partition_is_left_to_its_new_owner() -> None:
    bench = Bench(FakeWriter())
    bench.feed(b"a")
    bench.turn()
    bench.worker._revoked([(TOPIC, 0)])
    bench.now = 5_000
    assert (bench.turn(), bench.writer.written) == (0, [])


def test_a_partition_that_nobody_may_commit_for_waits_and_none_of_its_records_is_to_blame() -> None:
    taken = True

    def refuse(_batch: Sequence[Delivery]) -> Exception | None:
        return BatchAborted(KafkaRefused("no right to use the topic"), passing=False) if taken else None

    bench = Bench(FakeWriter(refuse=refuse))
    bench.feed(b"a", b"b")
    for bench.now in range(1_000, 40_000, 1_000):
        bench.turn()
    taken = False
    bench.now += 10_000
    bench.turn(2)
    assert (bench.values(), bench.values("quarantined")) == ([b"a", b"b"], [])


def test_what_an_earlier_assignment_left_is_not_delivered_again() -> None:
    bench = Bench(FakeWriter())
    there = [(TOPIC, 0)]
    bench.worker._revoked(there)
    bench.worker._assigned(there)
    bench.consumer.at = 2
    bench.feed(b"delivered elsewhere", b"this too", b"next")
    bench.now = 2_000
    bench.turn(2)
    assert bench.values() == [b"next"]
    assert bench.consumer.restored == []


def test_where_a_partition_continued_is_known_to_the_watch_for_deleted_records() -> None:
    """Its first records may be committed before the first look."""
    bench = Bench(FakeWriter())
    bench.consumer.at = 2
    bench.feed_from(40, b"a")
    bench.now = 2_000
    bench.turn(2)
    heads = [queue.look(0) for queue in bench.worker._read_ahead]
    assert [(one.start, one.read_to) for one in heads] == [(2, 41), (None, None)]


def test_what_the_coordinator_has_lost_is_neither_delivered_again_nor_lost_to_the_next_owner() -> None:
    bench = Bench(FakeWriter())
    there = [(TOPIC, 0)]
    bench.worker._revoked(there)
    bench.worker._assigned(there)
    bench.positions.write({(TOPIC, 0): Commit(2, "")}, Transaction("committed"))
    bench.feed(b"a", b"b", b"c")
    bench.now = 4_000
    bench.turn(2)
    assert bench.values() == [b"c"]
    assert bench.consumer.restored == bench.consumer.sought == [TopicPartition(TOPIC, 0, 2)]


BOTH = [(TOPIC, 0), (TOPIC, 1)]
FROM_THE_BEGINNING = [TopicPartition(*where, 0) for where in BOTH]


def test_a_topic_that_was_created_again_under_a_worker_is_read_from_its_beginning() -> None:
    """To its queues the new records would be copies of those with the same offsets, which were read before."""
    bench = Bench(FakeWriter())
    bench.worker.saw_ids({TOPIC: "1", NAMES.delay(9_000): "9"})
    bench.consumer.fed.append(Message(error=KafkaError(KafkaError._FATAL, "it went on")))
    with pytest.raises(KafkaNotReachable, match="it went on"):
        bench.worker.run(threading.Event())
    bench.worker.saw_ids({TOPIC: "2"})
    with pytest.raises(ReadingStopped, match=f"deleted and created again, beginning anew: {TOPIC}-0, {TOPIC}-1"):
        bench.worker.run(threading.Event())
    assert bench.consumer.restored == FROM_THE_BEGINNING


def test_a_topic_that_was_created_again_is_noticed_at_the_assignment_of_its_other_partition() -> None:
    """The id of the new topic must not get beside an offset of the old one."""
    bench = Bench(FakeWriter())
    bench.worker._revoked([(TOPIC, 1)])
    bench.positions.ids[TOPIC] = "2"
    with pytest.raises(ReadingStopped):
        bench.worker._assigned([(TOPIC, 1)])
    assert bench.consumer.restored == FROM_THE_BEGINNING[:1]


def test_offsets_of_a_deleted_topic_that_are_not_replaced_are_replaced_at_the_next_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new consumer would begin at the old offset and skip the new topic's records below it without a word."""
    bench = Bench(FakeWriter())
    bench.consumer.not_committed = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)
    bench.consumer.fed.append(Message(error=KafkaError(KafkaError._FATAL, "it went on")))
    bench.worker.saw_ids({TOPIC: "2"})
    with pytest.raises(KafkaNotReachable, match="it went on"):
        bench.worker.run(threading.Event())
    assert f"offsets not replaced, trying again: {TOPIC}-0, {TOPIC}-1" in caplog.text
    bench.consumer.not_committed = None
    bench.worker.saw_ids({TOPIC: "2"})
    with pytest.raises(ReadingStopped):
        bench.worker.run(threading.Event())
    assert bench.consumer.restored == FROM_THE_BEGINNING


def test_no_position_gets_the_new_id_while_an_offset_of_the_deleted_topic_is_not_replaced() -> None:
    bench = Bench(FakeWriter())
    bench.worker._revoked([(TOPIC, 1)])
    bench.positions.ids[TOPIC] = "2"
    bench.consumer.not_committed = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)
    bench.worker._assigned([(TOPIC, 1)])
    assert bench.positions.id_of(TOPIC) is None
    bench.consumer.not_committed = None
    bench.worker.saw_ids({TOPIC: "2"})
    with pytest.raises(ReadingStopped):
        bench.worker.run(threading.Event())
    assert bench.consumer.restored == FROM_THE_BEGINNING[:1]


def test_a_topic_that_was_created_again_while_its_partitions_were_away_ends_nothing() -> None:
    bench = Bench(FakeWriter())
    bench.worker._revoked(BOTH)
    bench.positions.ids[TOPIC] = "2"
    bench.worker._assigned(BOTH)
    bench.worker._assignment.check_ids({TOPIC: "2"})
    assert bench.consumer.restored == []


def test_the_offset_of_a_deleted_topic_hides_no_record_of_its_successor() -> None:
    bench = Bench(FakeWriter())
    bench.worker._revoked(BOTH)
    bench.positions.write({where: Commit(5, "") for where in BOTH}, Transaction("committed"))
    bench.positions.ids[TOPIC] = "2"
    bench.worker._assigned(BOTH)
    bench.consumer.at, bench.consumer.end = 5, 3
    bench.feed(b"a", b"b", b"c")
    bench.now = 2_000
    with pytest.raises(ReadingStopped, match=f"{TOPIC}-0, {TOPIC}-1"):
        bench.turn()
    assert bench.consumer.restored == FROM_THE_BEGINNING, "one restart for all"
    after = Bench(FakeWriter())
    after.worker._revoked(BOTH)
    after.positions.log, after.positions.ids, after.consumer.at = bench.positions.log, bench.positions.ids, 0
    after.worker._assigned(BOTH)
    after.feed(b"a", b"b", b"c")
    after.now = 2_000
    after.turn(2)
    assert (after.values(), after.writer.committed) == ([b"a", b"b", b"c"], {(TOPIC, 0): 3})


def test_a_partition_whose_position_is_hidden_waits_and_the_others_go_on() -> None:
    bench = Bench(FakeWriter())
    dead = bench.positions.write({(TOPIC, 0): Commit(1, "")}, Transaction())
    bench.feed(b"a", b"b")
    bench.feed(b"x", partition=1)
    bench.now = 2_000
    bench.turn(2)
    assert (bench.values(), bench.consumer.paused) == ([b"x"], {(TOPIC, 0)})
    bench.feed_from(2, b"c")
    bench.now = 2_400
    bench.turn(2)
    dead.state = "committed"
    reads = dict(bench.positions.reads)
    bench.turn(2)
    assert bench.positions.reads == reads, "it is asked twice a second"
    bench.now = 2_500
    bench.turn(2)
    assert (bench.values(), bench.consumer.paused) == ([b"x", b"b", b"c"], set())


def test_a_partition_whose_position_is_hidden_may_go_to_another_worker() -> None:
    bench = Bench(FakeWriter())
    bench.positions.write({(TOPIC, 0): Commit(1, "")}, Transaction())
    bench.feed(b"a", b"b")
    bench.turn(2)
    bench.worker._revoked([(TOPIC, 0)])
    bench.now = 60_000
    bench.turn(2)
    assert bench.values() == []


def test_the_end_of_an_empty_partition_is_enough_to_ask_where_it_goes_on() -> None:
    """So the first record for days does not wait for the answer."""
    bench = Bench(FakeWriter())
    bench.feed_end(3)
    bench.consumer.fed.append(
        Message(topic=TOPIC, partition=1, offset=0, error=KafkaError(KafkaError._TRANSPORT)),
    )
    bench.turn(2)
    bench.feed_from(3, b"a")
    bench.turn(2)
    assert bench.consumer.asked == [{0}]


@pytest.mark.parametrize("is_first_held", [True, False], ids=["its first record is held", "it comes meanwhile"])
def test_a_record_of_a_partition_that_waited_for_its_position_does_not_count_as_stored_now(
    *, is_first_held: bool
) -> None:
    """Else the clock would be set back by its age, and all groups' records would be late."""
    bench, saw = Bench(FakeWriter()), list[tuple[int, bool]]()
    bench.worker._read_ahead._saw = lambda append_ms, is_new: saw.append((append_ms, is_new))
    bench.positions.refusal = KafkaNotReachable("away")
    bench.feed(b"x", partition=1)
    if is_first_held:
        bench.feed(b"a")
    bench.feed_end(int(is_first_held))
    bench.turn()
    bench.positions.refusal, bench.now = None, 20_000
    if not is_first_held:
        bench.turn()
        bench.feed(b"a")
    bench.turn(2)
    assert (sorted(filter(None, bench.values())), saw) == ([b"a", b"x"], [(0, False)] * 2)
    bench.feed_end(1)
    bench.feed_from(1, b"b")
    bench.turn()
    assert saw[2:] == [(0, True)]


def test_records_that_come_again_from_a_restored_position_do_not_count_as_stored_now() -> None:
    bench, saw = Bench(FakeWriter()), list[bool]()
    bench.worker._read_ahead._saw = lambda _append_ms, is_new: saw.append(is_new)
    bench.positions.write({(TOPIC, 0): Commit(1, "")}, Transaction("committed"))
    bench.feed(b"x", partition=1)
    bench.feed(b"a", b"b")
    bench.feed_end(2)
    bench.turn()
    assert bench.consumer.sought == [TopicPartition(TOPIC, 0, 1)]
    bench.feed_from(1, b"b")
    bench.feed_end(2)
    bench.turn()
    bench.feed_from(2, b"c")
    bench.turn()
    assert saw == [False, False, False, True]


@pytest.mark.rule("TM-13")
@pytest.mark.parametrize(
    ("error", "held_ms"),
    [
        (CancelsNotRead("not read lately"), 50),
        (LookUpsSpent("no time left"), 50),
        (KafkaNotReachable("looking for topic retry"), 500),
    ],
)
def test_a_record_that_nobody_can_decide_on_yet_waits_and_the_other_partitions_go_on(
    error: Exception, held_ms: int
) -> None:
    bench = Bench(FakeWriter())
    unknown, decide = {b"b"}, FakeRouter().decide

    def asking(message: Message) -> Delivery:
        if message.value() in unknown:
            raise error
        return decide(message)

    bench.router.decide = asking  # type: ignore[method-assign]
    bench.feed(b"a", b"b", b"c")
    bench.feed(b"x", b"y", partition=1)
    bench.now = 1_000
    assert bench.turn() == 3, "all in one turn"
    assert (bench.values(), bench.writer.committed) == ([b"a", b"x", b"y"], {(TOPIC, 0): 1, (TOPIC, 1): 2})
    unknown.clear()
    bench.now += held_ms - 1
    assert bench.turn() == 0
    bench.now += 1
    bench.turn(2)
    assert (bench.values(), bench.writer.committed[TOPIC, 0]) == ([b"a", b"x", b"y", b"b", b"c"], 3)


@pytest.mark.rule("TM-13")
def test_a_withdrawal_is_done_when_the_drop_of_its_message_is_committed() -> None:
    refusals = [BatchAborted(KafkaNotReachable("away"), passing=True), BatchInDoubt(KafkaNotReachable("no answer"))]
    bench = Bench(FakeWriter(lambda _batch: refusals.pop() if refusals else None))
    decide = FakeRouter().decide

    def withdrawn(message: Message) -> Delivery:
        if message.value() == b"a":
            return Delivery("", -1, b"id of a", None, [], "cancelled", "")
        return decide(message)

    bench.router.decide = withdrawn  # type: ignore[method-assign]
    bench.feed(b"a", b"b")
    bench.now = 1_000
    for _ in range(10):
        assert bench.writer.committed or bench.router.met == []
        bench.turn()
        bench.now += 3_000
    assert (refusals, bench.router.met) == ([], [b"id of a"])


def test_records_that_fall_due_within_a_moment_share_a_transaction() -> None:
    bench = Bench(FakeWriter(), TransactionPace(50))
    bench.now = 1_000
    bench.feed(b"a")
    assert bench.turn() == 1, "the first one waits for no other"
    bench.feed_from(1, b"b")
    bench.now = 1_010
    assert bench.turn() == 0
    assert bench.worker._seconds_to_wait(1.0) == pytest.approx(0.04, abs=0.001)
    bench.feed_from(2, b"c")
    bench.now = 1_050
    assert (bench.turn(), bench.values()) == (2, [b"a", b"b", b"c"])


def test_nothing_is_gathered_while_a_refused_record_is_looked_for() -> None:
    bench = Bench(FakeWriter(refuse=refusing(b"bad")), TransactionPace(50))
    bench.now = 1_000
    bench.feed(b"a", b"bad", b"b")
    for _ in range(10):
        bench.turn()
        if bench.worker._refusals:
            assert bench.worker._gather_ms == 0
    assert (bench.values("quarantined"), set(bench.values())) == ([b"bad"], {b"a", b"b"})


def test_batches_that_take_too_long_shrink_until_they_are_committed() -> None:
    """Whether a transaction fails, or nobody knows what became of it."""
    fates = [
        BatchAborted(KafkaNotReachable("timed out"), passing=True),
        BatchInDoubt(KafkaNotReachable("no answer")),
    ]

    def refuse(batch: Sequence[Delivery]) -> Exception | None:
        bench.now += 100 * len(batch)
        return fates[len(bench.writer.batches) % 2] if len(batch) > 40 else None

    bench = Bench(FakeWriter(refuse=refuse))
    bench.feed(*(b"%d" % number for number in range(200)))
    bench.now = 1_000
    while len(bench.writer.written) < 200:
        bench.now += 1_000
        bench.turn()
        assert len(bench.writer.batches) < 30
    assert bench.writer.batches[:3] == [100, 50, 25]
    assert all(batch <= 40 for batch in bench.writer.batches[2:])
    assert bench.values() == [b"%d" % number for number in range(200)]


def test_a_consumer_that_kafka_has_done_with_ends_this_life_of_the_worker() -> None:
    bench = Bench(FakeWriter())
    bench.consumer.fed.append(Message(error=KafkaError(KafkaError._FATAL, "fenced")))
    with pytest.raises(KafkaNotReachable, match="fenced"):
        bench.turn()


@pytest.mark.parametrize(
    ("code", "ends"),
    [(KafkaError.NOT_COORDINATOR, MembershipLost), (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaRefused)],
)
def test_partitions_that_never_start_end_this_life_of_the_worker(code: int, ends: type[Exception]) -> None:
    bench = Bench(FakeWriter())
    why = 'Failed to fetch committed offsets for 3 partition(s) in group "reconsume.scheduler": Broker: it moved'
    bench.consumer.fed.append(Message(error=KafkaError(code, why)))
    with pytest.raises(ends, match="starting to read"):
        bench.turn()


def in_doubt(*fates: str) -> Callable[[Sequence[Delivery]], Exception | None]:
    """Batches without an answer, in turn; then all is well."""
    left = list(fates)

    def refuse(_batch: Sequence[Delivery]) -> Exception | None:
        return BatchInDoubt(KafkaNotReachable(left.pop(0))) if left else None

    return refuse


@pytest.mark.parametrize("told_by", ["the coordinator", "the position"])
def test_a_batch_in_doubt_is_looked_up_and_not_delivered_again_if_it_counts(told_by: str) -> None:
    bench = Bench(FakeWriter(in_doubt("no answer")))
    bench.feed(b"a", b"b")
    bench.now = 1_000
    assert bench.turn() == 0
    if told_by == "the coordinator":
        bench.consumer.at = 2
    else:
        bench.positions.write({(TOPIC, 0): Commit(2, "")}, Transaction("committed"))
    bench.feed_from(2, b"c")
    assert bench.turn() == 3
    assert bench.writer.recovered == 1
    assert bench.values() == [b"c"]


def test_a_batch_in_doubt_that_is_undone_is_delivered_when_nothing_hides_its_position() -> None:
    bench = Bench(FakeWriter(in_doubt("no answer")))
    bench.feed(b"a")
    bench.now = 1_000
    assert bench.turn() == 0
    dead = bench.positions.write({("reconsume.DELAY.9s", 0): Commit(1, "")}, Transaction())
    bench.positions.write({(TOPIC, 0): Commit(1, "")}, Transaction("aborted"))
    for bench.now in (1_000, 1_600, 2_400):
        assert bench.turn() == 0
    assert bench.values() == []
    dead.state = "aborted"
    bench.now = 3_100
    bench.turn()
    assert bench.values() == [b"a"]
    assert bench.writer.committed == {(TOPIC, 0): 1}


def test_while_a_batch_is_in_doubt_nothing_is_delivered_and_reading_has_a_limit() -> None:
    bench = Bench(FakeWriter(in_doubt("no answer")), max_batch_records=1_200)
    bench.writer.away = 3
    bench.feed(b"a")
    bench.now = 1_000
    bench.turn()
    bench.feed_from(1, *[b"%d" % number for number in range(1_200)])
    for _ in range(3):
        bench.turn()
        bench.now += 600
    assert (bench.values(), bench.consumer.paused) == ([], {(TOPIC, 0)})
    for _ in range(30):
        bench.now += 1_000
        bench.turn()
    assert len(bench.values()) == 1_201
    assert bench.consumer.paused == set()


def test_of_a_batch_in_doubt_what_went_to_another_worker_is_left_to_it() -> None:
    bench = Bench(FakeWriter(in_doubt("no answer")))
    bench.feed(b"a")
    bench.feed(b"b", partition=1)
    bench.now = 1_000
    bench.turn()
    bench.worker._revoked([(TOPIC, 0)])
    bench.consumer.asked.clear()
    for _ in range(4):
        bench.now += 1_000
        bench.turn()
    assert (bench.consumer.asked, bench.values()) == ([{1}], [b"b"])
