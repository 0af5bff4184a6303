"""Delivery without transactions: a record that was acknowledged is not written again while its batch is tried anew."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.librdkafka import connections
from reconsume.bridge.process.brokers_clock import BrokersClock
from reconsume.bridge.scheduler.delivery import at_least_once_writer
from reconsume.bridge.scheduler.delivery.at_least_once_writer import AtLeastOnceWriter
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, WriterBroken
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.queues.read_ahead import LONGEST_HOLD_MS, DueRun
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.delay_levels.errors import KafkaNotReachable, TopicNotReady
from tests.unit.bridge.scheduler.test_worker import TOPIC, Bench

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
AWAY = KafkaError(KafkaError._MSG_TIMED_OUT)
REASONS = {"no answer": AWAY, "a refusal": TOO_LARGE, "an unknown error": KafkaError(KafkaError.UNKNOWN)}


class Producer:
    """Acknowledges records at the next flush or poll, but those that it refuses, and none while Kafka is away.

    What is purged while it has no answer was stored all the same.

    Attributes:
        away: values that get no answer.
        unknown: values whose partition it does not know yet.
        made: the settings that it was made with, each time; it stands for all producers.
        told: statistics that its next poll reports.
        waited: the seconds of flushes that left records without an answer.
    """

    def __init__(self) -> None:
        self.is_away = False
        self.away: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.made: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.room = 1_000
        self.waited = 0.0
        self.refused: dict[bytes, KafkaError] = {}
        self.stored: list[bytes] = []
        self.timestamps: list[int] = []
        self._sent: list[tuple[bytes, str, Callable[[KafkaError | None, Message], None]]] = []

    def produce(
        self,
        topic: str,
        value: bytes,
        _key: object,
        _partition: int,
        on_delivery: Callable[..., None],
        *,
        timestamp: int = 0,
        **_: Any,
    ) -> None:
        if len(self._sent) >= self.room:
            raise BufferError
        if value in self.unknown:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self._sent.append((value, topic, on_delivery))
        self.timestamps.append(timestamp)

    def __len__(self) -> int:
        return len(self._sent)

    def poll(self, _seconds: float) -> None:
        self._answer()
        told, self.told = self.told, []
        for statistics in told:
            self.made[-1]["stats_cb"](statistics)

    def flush(self, seconds: float) -> None:
        assert seconds <= 5, "a worker that waits for longer is put out of its group"
        self._answer()
        self.waited += seconds if self._sent else 0

    def _answer(self) -> None:
        if self.is_away:
            return
        sent = self._sent
        self._sent = [one for one in sent if one[0] in self.away]
        for value, topic, on_delivery in sent:
            if value in self.away:
                continue
            error = self.refused.get(value) if topic == "retry" else None
            if error is None:
                self.stored.append(value)
            on_delivery(error, Message(topic=topic))

    def purge(self) -> None:
        purged, self._sent = self._sent, []
        for value, topic, on_delivery in purged:
            self.stored.append(value)
            on_delivery(KafkaError(KafkaError._PURGE_INFLIGHT), Message(topic=topic))

    def close(self) -> None: ...


class Member:
    """Commits, or does not."""

    def __init__(self) -> None:
        self.refuses = False
        self.committed: dict[Partition, Commit] = {}

    def commit(self, points: dict[Partition, Commit], *, wait: bool) -> Sequence[Partition]:
        assert wait
        if self.refuses:
            return list(points)
        self.committed |= points
        return ()


class OneByOne:
    """Delivers all."""

    @staticmethod
    def route_plain(messages: Any, _topic: str) -> list[Delivery]:
        return [Delivery("retry", 0, None, message.value(), [], "delivered", "g") for message in messages]


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    one = Producer()

    def make(settings: dict[str, Any]) -> Producer:
        one.made.append(settings)
        return one

    monkeypatch.setattr(at_least_once_writer, "make_producer", make)
    return one


def queue_of(*values: bytes, partition: int = 0) -> PartitionQueue:
    queue, stored = PartitionQueue(TOPIC, partition, 1_000), (TIMESTAMP_LOG_APPEND_TIME, 0)
    queue.extend(
        [
            Message(topic=TOPIC, partition=partition, offset=offset, value=value, timestamp=stored)
            for offset, value in enumerate(values)
        ]
    )
    return queue


def batch_of(*queues: PartitionQueue) -> DueBatch:
    return DueBatch([DueRun(one, one.due(1_000, 100)) for one in queues], [], cast("Any", OneByOne()))


def write(writer: AtLeastOnceWriter, batch: DueBatch, member: Member) -> BatchAborted | None:
    try:
        writer.write(batch, cast("Any", member))
    except BatchAborted as aborted:
        return aborted
    return None


@pytest.mark.parametrize("reason", [*REASONS, "no commit"])
def test_what_is_stored_is_not_written_again_while_the_worker_has_its_partition(
    producer: Producer, reason: str
) -> None:
    writer, member, queue = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"a", b"b", b"c")
    if reason == "no commit":
        member.refuses = True
    else:
        producer.refused[b"b"] = REASONS[reason]
    aborted = write(writer, batch_of(queue), member)
    assert aborted is not None
    assert aborted.passing == (reason != "a refusal")
    producer.refused.clear()
    member.refuses = False
    assert write(writer, batch_of(queue), member) is None
    assert Counter(producer.stored) == Counter([b"a", b"b", b"c"])
    assert member.committed == {(TOPIC, 0): Commit(3, "")}


def test_its_records_are_created_by_the_brokers_clock(producer: Producer) -> None:
    """Brokers refuse what is created an hour ahead of their clock."""
    brokers = BrokersClock(lambda: 7_200_000.0, lambda: 500.0)
    brokers.heard(1_000, 500.0)
    assert write(AtLeastOnceWriter({}, "w", brokers), batch_of(queue_of(b"a")), Member()) is None
    assert producer.timestamps == [1_000]


@pytest.mark.parametrize("room", [1_000, 2])
def test_a_batch_without_an_answer_is_given_up_in_time_and_written_once(producer: Producer, room: int) -> None:
    writer, member, queue = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"a", b"b", b"c")
    producer.is_away, producer.room = True, room
    for _ in range(3):
        aborted = write(writer, batch_of(queue), member)
        assert aborted is not None
        assert aborted.passing
        assert isinstance(aborted.error, KafkaNotReachable)
    assert member.committed == {}
    producer.is_away = False
    assert write(writer, batch_of(queue), member) is None
    assert Counter(producer.stored) == Counter([b"a", b"b", b"c"])
    assert member.committed == {(TOPIC, 0): Commit(3, "")}


@pytest.mark.parametrize("room", [1_000, 1])
def test_a_partition_that_the_producer_does_not_know_yet_concerns_one_record(producer: Producer, room: int) -> None:
    writer, member, queue = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"a", b"b", b"c")
    producer.unknown, producer.room = {b"b"}, room
    aborted = write(writer, batch_of(queue), member)
    assert aborted is not None
    assert isinstance(aborted.error, TopicNotReady)
    assert (producer.stored, member.committed) == ([b"a", b"c"], {})
    producer.unknown = set()
    assert write(writer, batch_of(queue), member) is None
    assert Counter(producer.stored) == Counter([b"a", b"b", b"c"])
    assert member.committed == {(TOPIC, 0): Commit(3, "")}


def test_a_record_without_an_answer_costs_later_batches_no_wait(producer: Producer) -> None:
    """It stays in the producer, and its partition is held."""
    writer, member = AtLeastOnceWriter({}, "w"), Member()
    producer.away = {b"away"}
    assert write(writer, batch_of(queue_of(b"a", b"away")), member) is not None
    assert producer.waited == pytest.approx(5)
    for partition in range(1, 11):
        assert write(writer, batch_of(queue_of(b"b", partition=partition)), member) is None
    assert producer.waited <= 6


def test_a_record_without_an_answer_is_waited_for_once(producer: Producer) -> None:
    writer, member, stuck = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"away")
    producer.away = {b"away"}
    assert write(writer, batch_of(stuck), member) is not None
    aborted = write(writer, batch_of(stuck, queue_of(b"b", partition=1)), member)
    assert aborted is not None
    assert aborted.unanswered == {stuck}
    assert producer.waited <= 6


@pytest.mark.usefixtures("producer")
def test_an_acknowledgement_ends_no_hold_that_has_another_reason() -> None:
    writer, queue = AtLeastOnceWriter({}, "w"), queue_of(b"a")
    batch = batch_of(queue)
    queue.held_until_ms = 5_000
    assert write(writer, batch, Member()) is None
    assert queue.held_until_ms == 5_000


def test_the_worker_holds_only_partitions_with_records_without_an_answer_and_until_the_answer(
    producer: Producer,
) -> None:
    bench = Bench(cast("Any", AtLeastOnceWriter({}, "w")))
    producer.away = {b"away"}
    bench.feed(b"away", b"behind")
    bench.now = 1_000
    assert bench.turn() == 0
    bench.feed(b"b", partition=1)
    assert bench.turn() == 1
    bench.now += LONGEST_HOLD_MS
    bench.feed_from(1, b"c", partition=1)
    assert bench.turn(2) == 1, "the batch with both is aborted at once, and the next one is without the first"
    assert producer.waited <= 6
    producer.away = set()
    assert bench.turn() == 2
    assert producer.stored == [b"behind", b"b", b"c", b"away"]


def test_a_late_refusal_blames_no_record_of_the_next_batch(producer: Producer) -> None:
    writer, member, queue = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"a", b"bad")
    producer.is_away = True
    assert write(writer, batch_of(queue), member) is not None
    producer.is_away, producer.refused[b"bad"] = False, TOO_LARGE
    assert write(writer, DueBatch([DueRun(queue, queue.due(1_000, 1))], [], cast("Any", OneByOne())), member) is None
    assert member.committed == {(TOPIC, 0): Commit(1, "")}
    aborted = write(writer, batch_of(queue), member)
    assert aborted is not None
    assert not aborted.passing


def test_a_refusal_that_came_before_a_record_is_written_again_does_not_count(producer: Producer) -> None:
    writer, member, queue = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"a", b"b")
    producer.is_away = True
    assert write(writer, batch_of(queue), member) is not None
    producer.is_away, producer.refused[b"b"] = False, TOO_LARGE
    producer.flush(0)
    producer.refused.clear()
    assert write(writer, batch_of(queue), member) is None
    assert producer.stored == [b"a", b"b"]


def test_a_partition_that_comes_back_begins_anew(producer: Producer) -> None:
    """Another worker may have had it, or it is of another topic with the same name."""
    writer, member, queue = AtLeastOnceWriter({}, "w"), Member(), queue_of(b"a", b"b")
    producer.refused[b"b"] = AWAY
    assert write(writer, batch_of(queue), member) is not None
    del queue
    assert len(writer._stored) == 0
    producer.refused.clear()
    assert write(writer, batch_of(queue_of(b"new")), member) is None
    assert producer.stored == [b"a", b"new"]


def test_a_producer_that_has_seen_many_topics_is_replaced_when_no_record_waits_for_an_answer(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, member = AtLeastOnceWriter({}, "w"), Member()
    first, second, third = queue_of(b"a"), queue_of(b"b", partition=1), queue_of(b"c", partition=2)
    producer.away = {b"a"}
    assert write(writer, batch_of(first), member) is not None
    monkeypatch.setattr(writer._topics, "are_too_many", lambda _deliveries: True)
    assert write(writer, batch_of(second), member) is None
    monkeypatch.setattr(writer._topics, "are_too_many", lambda _deliveries: False)
    assert len(producer.made) == 1
    assert write(writer, batch_of(first), member) is not None
    producer.away = set()
    assert write(writer, batch_of(first), member) is None
    assert write(writer, batch_of(third), member) is None
    assert producer.stored == [b"b", b"a", b"c"], "each once"
    assert len(producer.made) == 2


def test_a_producer_that_librdkafka_has_left_alone_ends_the_worker(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker makes a new one; otherwise this one would wait for answers for ever."""
    monkeypatch.setattr(connections, "_PATIENCE_MS", 0)
    bench = Bench(cast("Any", AtLeastOnceWriter({}, "w")))
    bench.turn()
    producer.told = [json.dumps({"brokers": {}})] * 2
    with pytest.raises(WriterBroken) as broken:
        bench.turn()
    assert isinstance(broken.value.error, KafkaNotReachable)


def test_the_worker_singles_out_a_refused_record_and_writes_all_others_once(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.refused[b"bad"] = TOO_LARGE
    values = [b"%d" % number for number in range(200)]
    bench = Bench(cast("Any", AtLeastOnceWriter({}, "w")))
    bench.feed(*values[:70], b"bad", *values[70:])
    bench.now = 1_000
    for _ in range(40):
        bench.turn()
    assert Counter(producer.stored) == Counter([*values, b"bad"])
    assert [point.offset for point in bench.consumer.restored][-1] == 201
    assert "dropped" not in caplog.text


class SpoiltByOne(Producer):
    """As librdkafka when a compacted topic gets a record without a key: the others of its partition are refused too."""

    def poll(self, _seconds: float) -> None:
        """Report nothing: `linger.ms` keeps the records together until the flush."""

    def _answer(self) -> None:
        sent, self._sent = self._sent, []
        spoilt = {topic for value, topic, _ in sent if value == b"no key"} & {"orders"}
        for value, topic, on_delivery in sent:
            code = None
            if topic in spoilt:
                code = KafkaError.INVALID_RECORD if value == b"no key" else KafkaError._INVALID_DIFFERENT_RECORD
            else:
                self.stored.append(value)
            on_delivery(None if code is None else KafkaError(code), Message(topic=topic))


def test_the_worker_singles_out_a_record_that_spoils_others(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = SpoiltByOne()
    monkeypatch.setattr(at_least_once_writer, "make_producer", lambda _settings: spoilt)
    bench = Bench(cast("Any", AtLeastOnceWriter({}, "w")))

    def decide(message: Message) -> Delivery:
        topic = "orders" if message.partition() == 0 else "retry"
        return Delivery(topic, 0, None, message.value(), [], "delivered", "g")

    monkeypatch.setattr(bench.router, "decide", decide)
    bench.feed(b"good", b"no key", b"good too")
    bench.feed(*[b"%d" % number for number in range(50)], partition=1)
    bench.now = 1_000
    delivered = 0
    for _ in range(60):
        delivered += bench.turn()
        bench.now += 500
    assert delivered == 53
    # The record without a key is in the quarantine.
    assert Counter(spoilt.stored) == Counter([b"good", b"no key", b"good too", *[b"%d" % one for one in range(50)]])


def test_a_partition_whose_offset_is_refused_holds_up_no_other(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the right to read its delay topic was revoked."""
    bench, taken = Bench(cast("Any", AtLeastOnceWriter({}, "w"))), dict[int, int]()

    def commit(offsets: Sequence[Any], *, asynchronous: bool) -> Sequence[Any]:
        assert not asynchronous
        taken.update({one.partition: one.offset for one in offsets if one.partition == 1})
        if any(one.partition == 0 for one in offsets):
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return offsets

    monkeypatch.setattr(bench.consumer, "commit", commit)
    bench.feed(*[b"a%d" % number for number in range(60)])
    bench.feed(*[b"b%d" % number for number in range(500)], partition=1)
    bench.now = 1_000
    for _ in range(100):
        bench.turn()
        bench.now += 20
    assert taken == {1: 500}
    assert max(Counter(producer.stored).values()) == 1, "what is stored is not written again"
