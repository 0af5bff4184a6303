"""The writer of send-backs while a topic is looked up; what Kafka does with them is in the integration tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.bridge.writing.send_back import SendBackWriter, _SendBack
from reconsume.delay_levels.errors import KafkaNotReachable, RecordTooLarge, SendBackFailed
from reconsume.delay_levels.rules import lane_budgets
from reconsume.delay_levels.rules.lane_budgets import BURST
from reconsume.delay_levels.wire.inbox import inbox_copy
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored
from tests.support.waiting import PATIENCE, wait_until

NAMES = TopicNames()
FIRST_BULK = 4
REQUEST = SendBackRequest("departures", [], Stored.first_copy(Position("flights", 3, 42), 0))


class Lookups:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = threading.Event()
        self.found: dict[str, int] | KafkaNotReachable = {}
        self.untold = ""

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        self.asked += topics
        assert self.answer.wait(PATIENCE)
        if self.untold in topics:
            raise KafkaNotReachable("no answer for this topic")
        if isinstance(self.found, KafkaNotReachable):
            raise self.found
        return self.found


class Full:
    """A producer whose queue has no room."""

    def __init__(self) -> None:
        self.room = False
        self.taken: list[Callable[[None, Message], None]] = []
        self.partitions: list[int] = []

    def __len__(self) -> int:
        return len(self.taken)

    def produce(
        self,
        _topic: str,
        _value: bytes | None,
        _key: bytes | None,
        partition: int,
        on_delivery: Callable[[None, Message], None],
        **_more: object,
    ) -> None:
        if not self.room:
            raise BufferError
        self.taken.append(on_delivery)
        self.partitions.append(partition)

    def poll(self, _seconds: float) -> None:
        while self.taken:
            self.taken.pop()(None, Message())

    def flush(self, _seconds: float) -> int:
        return len(self)

    def purge(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def lookups() -> Lookups:
    return Lookups()


def writer_with(lookups: Lookups) -> SendBackWriter:
    one = SendBackWriter({"bootstrap.servers": "127.0.0.1:9"}, NAMES, Groups, "writer-under-test")
    one._existing._admin = cast("Any", lookups)
    return one


@pytest.fixture
def writer(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> Iterator[SendBackWriter]:
    monkeypatch.setattr("reconsume.bridge.writing.send_back._AGAIN_SECONDS", 0.05)
    one = writer_with(lookups)
    yield one
    lookups.answer.set()
    one.close()


def send_back(writer: SendBackWriter, times: int = 1) -> list[SendBackFailed | None]:
    outcomes: list[SendBackFailed | None] = []
    for _ in range(times):
        writer.send_back(REQUEST, b"key", b"value", outcomes.append)
    return outcomes


def test_send_back_waits_for_no_lookup_and_what_waits_is_counted(writer: SendBackWriter, lookups: Lookups) -> None:
    outcomes = send_back(writer, 3)  # it would hang here: nothing is answered before the next line but one
    # librdkafka counts an event, such as that no broker answers, until it is told.
    wait_until(lambda: writer.flush(0) == 3, "only the three are counted")
    assert outcomes == []
    lookups.answer.set()
    wait_until(lambda: len(outcomes) == 3, "all failed, the inbox does not exist either")
    missing = "topic {} does not exist; create it: reconsume topics apply"
    both = "; then ".join(missing.format(topic) for topic in (NAMES.delay(10_000), NAMES.send_back))
    assert {str(one) for one in outcomes} == {both}
    assert lookups.asked == [NAMES.delay(10_000), NAMES.send_back], "one lookup serves all that wait for it"
    assert writer.flush(0) == 0


@pytest.mark.rule("SB-13")
def test_while_no_broker_answers_a_lookup_nothing_fails(
    writer: SendBackWriter, lookups: Lookups, caplog: pytest.LogCaptureFixture
) -> None:
    lookups.found = KafkaNotReachable("no answer from Kafka")
    lookups.answer.set()
    outcomes = send_back(writer, 2)
    wait_until(lambda: len(lookups.asked) >= 2, "it is asked again")
    assert "no answer from Kafka; trying again" in caplog.text
    assert (outcomes, len(writer._waiting[NAMES.delay(10_000)])) == ([], 2)
    lookups.found = {NAMES.delay(10_000): 1}
    wait_until(lambda: not writer._waiting, "both are in the producer")
    assert (outcomes, set(lookups.asked)) == ([], {NAMES.delay(10_000)})


def test_a_topic_that_nobody_tells_of_holds_up_no_other(writer: SendBackWriter, lookups: Lookups) -> None:
    hidden = NAMES.delay(10_000)
    lookups.untold = hidden
    lookups.found = {NAMES.delay(30_000): 1}
    outcomes = send_back(writer)
    later: list[SendBackFailed | None] = []
    writer.send_back(REQUEST._replace(delay_level=4), b"key", b"value", later.append)
    lookups.answer.set()
    wait_until(lambda: NAMES.delay(30_000) not in writer._waiting, "the other is in the producer")
    assert lookups.asked[:2] == [hidden, NAMES.delay(30_000)]
    assert (outcomes, list(writer._waiting)) == ([], [hidden])
    lookups.untold = ""


def test_what_was_found_is_produced_and_known_from_then_on(writer: SendBackWriter, lookups: Lookups) -> None:
    lookups.found = {NAMES.delay(10_000): 1}
    outcomes = send_back(writer, 2)
    lookups.answer.set()
    wait_until(lambda: not writer._waiting, "both are in the producer, which finds no broker")
    send_back(writer)
    assert not writer._waiting
    assert writer.flush(0) >= 3, "the producer counts its own errors too"
    assert (outcomes, lookups.asked) == ([], [NAMES.delay(10_000)])


def test_what_floods_goes_to_the_bulk_partitions(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Full()
    producer.room = True
    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", lambda _settings: producer)
    monkeypatch.setattr(lane_budgets, "PER_SECOND", 0)
    writer = writer_with(lookups)
    lookups.found = {NAMES.delay(10_000): 6}
    lookups.answer.set()
    outcomes = send_back(writer, 3 * BURST)
    wait_until(lambda: len(outcomes) == 3 * BURST, "all are acknowledged")
    writer.close()
    # Two threads write: those that waited for the look-up may come later than others.
    assert set(producer.partitions) <= set(range(6))
    assert sum(one >= FIRST_BULK for one in producer.partitions) == 2 * BURST


class OfOldMetadata(Full):
    """A producer with room that knows four partitions of each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.room, self.topics = True, set[str]()

    def produce(self, *record: Any, **more: Any) -> None:
        topic, _, _, partition = record
        if partition >= 4:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.topics.add(topic)
        super().produce(*record, **more)


def test_bulk_partitions_that_the_producer_does_not_know_yet_send_nothing_to_the_inbox(
    lookups: Lookups, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = OfOldMetadata()
    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", lambda _settings: producer)
    monkeypatch.setattr(lane_budgets, "PER_SECOND", 0)
    writer = writer_with(lookups)
    lookups.found = {NAMES.delay(10_000): 6, NAMES.send_back: 1}
    lookups.answer.set()
    outcomes = send_back(writer, BURST + 100)
    wait_until(lambda: len(outcomes) == BURST + 100, "all are acknowledged")
    writer.close()
    assert set(outcomes) == {None}
    assert producer.topics == {NAMES.delay(10_000)}
    assert producer.partitions.count(ANY_PARTITION) == 100, "by key, as without bulk partitions"
    assert lookups.asked == [NAMES.delay(10_000)]
    assert not caplog.records


def test_a_producer_without_room_makes_nobody_wait(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full()
    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", lambda _settings: full)
    writer = writer_with(lookups)
    lookups.found = {NAMES.delay(10_000): 1}
    lookups.answer.set()
    outcomes = send_back(writer, 2)
    wait_until(lambda: writer._existing.known(NAMES.delay(10_000)) is not None, "the topic is known")
    send_back(writer)  # it would hang here
    assert (outcomes, writer.flush(0)) == ([], 3)
    full.room = True
    wait_until(lambda: outcomes == [None] * 2 and writer.flush(0) == 0, "all are acknowledged")
    writer.close()


@pytest.mark.parametrize("found", [True, False])
def test_what_still_waits_when_it_is_closed_is_told_so_once(lookups: Lookups, found: bool) -> None:
    writer = writer_with(lookups)
    outcomes = send_back(writer, 3)
    wait_until(lambda: lookups.asked, "the lookup is under way")
    writer.close()
    assert [str(one) for one in outcomes] == ["shut down before it was sent back"] * 3
    if found:
        lookups.found = {NAMES.delay(10_000): 1}
    lookups.answer.set()
    writer._lookups.join(PATIENCE)
    assert len(outcomes) == 3
    assert [str(one) for one in send_back(writer)] == ["shut down before it was sent back"]


class FailingOnce(Full):
    """A producer that always has room, and an unexpected error the first time that it is polled for a report."""

    def __init__(self) -> None:
        super().__init__()
        self.room = self.fails = True

    def poll(self, seconds: float) -> None:
        if not self.taken:
            return
        if self.fails:
            self.fails = False
            raise RuntimeError("a defect")
        super().poll(seconds)


def test_an_error_that_nobody_expects_ends_neither_acknowledgements_nor_lookups(
    lookups: Lookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, errors = FailingOnce(), [RuntimeError("a defect")]
    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", lambda _settings: producer)
    monkeypatch.setattr("reconsume.bridge.writing.send_back._AGAIN_SECONDS", 0.05)
    writer = writer_with(lookups)
    require = writer._existing.require

    def fails_once(topic: str) -> int:
        if errors:
            raise errors.pop()
        return require(topic)

    monkeypatch.setattr(writer._existing, "require", fails_once)
    lookups.found = {NAMES.delay(10_000): 1}
    lookups.answer.set()
    outcomes = send_back(writer, 2)
    wait_until(lambda: outcomes == [None] * 2, "both are acknowledged")
    assert (errors, producer.fails) == ([], False)
    writer.close()


class Choosy(FailingOnce):
    """A producer that refuses the first record with an error that is not Kafka's."""

    refuses = True

    def produce(self, *record: Any, **more: Any) -> None:
        if self.refuses:
            self.refuses = False
            raise TypeError("expected header value to be None, binary, or unicode string, not int")
        super().produce(*record, **more)


def test_a_record_that_confluent_kafka_does_not_take_fails_alone(
    lookups: Lookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", lambda _settings: Choosy())
    writer = writer_with(lookups)
    lookups.found = {NAMES.delay(10_000): 1}
    outcomes = send_back(writer, 2)
    lookups.answer.set()
    wait_until(lambda: len(outcomes) == 2, "both have an outcome")
    topic = NAMES.delay(10_000)
    refused = (
        f"sending back to {topic}: TypeError: expected header value to be None, binary, or unicode string, not int"
    )
    assert [str(one) for one in outcomes] == [refused, "None"]
    assert writer._lookups.is_alive()
    writer.close()


def test_while_a_delay_topic_refuses_everything_the_log_says_so_ten_times_a_second(
    writer: SendBackWriter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(writer.inbox_logger, "_clock", lambda: now[0])
    outcomes: list[SendBackFailed | None] = []

    def refused_then_written() -> None:
        one = _SendBack(writer, REQUEST, b"key", b"value", outcomes.append, lambda *_: None)
        one.copy, one.first = inbox_copy(REQUEST, NAMES, 0), RecordTooLarge("no room")
        one.written(0, 0, 0)

    for _ in range(100):
        refused_then_written()
    now[0] += 1_000
    refused_then_written()
    # The client may tell meanwhile that nobody listens at its address.
    said = [one for one in caplog.messages if not one.startswith("writer-under-test: ")]
    assert said[:10] == [f"no room; sent through {NAMES.send_back} instead"] * 10
    assert said[10:] == [f"no room; sent through {NAMES.send_back} instead; 90 more such lines were left out"]
    assert outcomes == [None] * 101
