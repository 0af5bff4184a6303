"""A partition without an offset to go on from, and one whose topic was made again."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.kafka.partitioning import NO_ID
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST
from reconsume.consumers import PushConsumer, assembly
from reconsume.consumers.assembly import LoopBuilder
from reconsume.consumers.listener import ConsumeConcurrentlyStatus
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.partition_starts import OffsetReset, Start
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from tests.unit.consumers.doubles import RETRY_TOPIC, Begun, Clock, RecordingWriter, loop_of, message_at, service_of

FLIGHTS = ("flights", 0)
GONE = "flights-0: committed offset 1 is gone, the first kept record is 3"
LAST = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
FIRST = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
MOMENT = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 5_000)


@dataclass
class Asked:
    """Answers as a Kafka consumer does.

    Attributes:
        committed_offset: None if nobody answers.
        end: of the partition; None if nobody answers.
        at_the_moment: the offset that has this timestamp, or how the question failed; None for the timestamp itself.
        topic_id: of every topic; empty if it does not exist, None if nobody answers.
        ids_asked: the number of requests for ids; `offsets_asked`: for offsets.
    """

    committed_offset: int | None
    end: int | None = 100
    at_the_moment: int | None = None
    topic_id: str | None = "present"
    ids_asked: int = 0
    offsets_asked: int = 0

    def reset(self, consume_from: ConsumeFrom) -> OffsetReset:
        consumer = GroupConsumer({}, lambda _settings: cast("Any", self))
        return OffsetReset(consumer, RETRY_TOPIC, consume_from, self.told, self.topic_ids)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        self.ids_asked += 1
        if self.topic_id is None:
            raise KafkaNotReachable("away")
        return dict.fromkeys(topics, self.topic_id) if self.topic_id else {}

    def told(self, partitions: Collection[Partition], _seconds: float) -> dict[Partition, Commit | ReconsumeError]:
        if self.committed_offset is None:
            return dict.fromkeys(partitions, KafkaNotReachable("away"))
        return dict.fromkeys(partitions, Commit(self.committed_offset, ""))

    def offsets_for_times(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.offsets_asked += 1
        if partitions[0].offset in (EARLIEST, LATEST):
            if self.end is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            offset = 3 if partitions[0].offset == EARLIEST else self.end
            return [TopicPartition(one.topic, one.partition, offset) for one in partitions]
        if self.at_the_moment in (KafkaError._TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            raise KafkaException(KafkaError(self.at_the_moment))
        return [
            TopicPartition(one.topic, one.partition, one.offset if self.at_the_moment is None else self.at_the_moment)
            for one in partitions
        ]


def start_of(reset: OffsetReset, where: Partition, *, had_none: bool) -> Start:
    """The start of one partition."""
    return reset.starts_of({where: had_none})[where]


@pytest.mark.parametrize(
    ("consume_from", "requests"), [(LAST, 2), (ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 5_000), 3)]
)
def test_many_partitions_are_asked_for_at_once(consume_from: ConsumeFrom, requests: int) -> None:
    """Each request waits up to 0.5 s for a fetch; with one for each partition, 300 partitions never started."""
    asked = Asked(OFFSET_INVALID, at_the_moment=100)
    starts = asked.reset(consume_from).starts_of({("flights", number): True for number in range(300)})
    assert {start.offset for start in starts.values()} == {100}
    assert (len(starts), asked.offsets_asked) == (300, requests)


@pytest.mark.rule("TN-06")
@pytest.mark.parametrize(
    ("topic", "asked", "offset", "is_made_again"),
    [
        ("flights", Asked(OFFSET_INVALID), 100, False),
        (RETRY_TOPIC, Asked(OFFSET_INVALID), 3, False),
        ("flights", Asked(2), 3, False),
        ("flights", Asked(100), 3, False),
        ("flights", Asked(101), 3, True),
        (RETRY_TOPIC, Asked(101), 3, True),
        ("flights", Asked(101, end=None), OFFSET_BEGINNING, False),
        ("flights", Asked(OFFSET_INVALID, end=None), OFFSET_END, False),
        ("flights", Asked(None), OFFSET_STORED, False),
        (RETRY_TOPIC, Asked(None), OFFSET_STORED, False),
    ],
    ids=[
        "new",
        "retry",
        "behind",
        "at the end",
        "made again",
        "retry made again",
        "nobody tells",
        "new, nobody tells",
        "no answer",
        "retry, no answer",
    ],
)
def test_where_it_starts(topic: str, asked: Asked, offset: int, *, is_made_again: bool) -> None:
    start = start_of(asked.reset(LAST), (topic, 0), had_none=False)
    assert (start.offset, start.is_made_again) == (offset, is_made_again)


@pytest.mark.parametrize(("consume_from", "as_configured"), [(LAST, 100), (MOMENT, 5_000)], ids=["last", "moment"])
def test_a_partition_that_is_seen_later_starts_at_its_beginning(consume_from: ConsumeFrom, as_configured: int) -> None:
    asked = Asked(OFFSET_INVALID)
    since = replace(consume_from, known={"flights": 1})
    reset = asked.reset(since)
    assert start_of(reset, ("flights", 0), had_none=True).offset == as_configured
    assert start_of(reset, ("flights", 1), had_none=True).offset == 3
    assert start_of(reset, ("trains", 0), had_none=True).offset == 3


@pytest.mark.parametrize(("consume_from", "may_change"), [(LAST, True), (MOMENT, True), (FIRST, False)])
def test_a_start_that_a_later_owner_would_not_choose_is_committed(
    consume_from: ConsumeFrom, *, may_change: bool
) -> None:
    """For a later process, a partition that is new for this one is an old one."""
    since = replace(consume_from, known={"flights": 1})
    starts = Asked(OFFSET_INVALID).reset(since).starts_of(dict.fromkeys([FLIGHTS, ("flights", 1), ("trains", 0)], True))
    assert {start.must_commit for start in starts.values()} == {may_change}
    assert not start_of(Asked(2).reset(since), FLIGHTS, had_none=False).must_commit, "it has an offset"
    assert not start_of(Asked(OFFSET_INVALID).reset(since), (RETRY_TOPIC, 0), had_none=True).must_commit


@pytest.mark.parametrize(("consume_from", "as_configured"), [(LAST, 100), (MOMENT, 5_000)], ids=["last", "moment"])
@pytest.mark.parametrize(
    ("ids", "topic_id", "offset"),
    [
        ({"flights": "old"}, "new", 3),
        ({"flights": "old"}, "old", None),
        ({"flights": NO_ID}, "new", None),
        ({"flights": "old"}, NO_ID, None),
        ({}, "new", None),
        ({"flights": "old"}, "", OFFSET_STORED),
        ({"flights": "old"}, None, OFFSET_STORED),
    ],
    ids=[
        "made again",
        "the same",
        "now it has an id",
        "a broker without ids",
        "id was not told",
        "deleted",
        "nobody answers",
    ],
)
def test_a_topic_that_was_made_again_since_the_start_is_read_from_its_beginning(
    consume_from: ConsumeFrom, as_configured: int, ids: dict[str, str], topic_id: str | None, offset: int | None
) -> None:
    """The brokers have deleted the group's offset with the old topic. Without an answer, the question is repeated."""
    reset = Asked(OFFSET_INVALID, topic_id=topic_id).reset(replace(consume_from, known={"flights": 1}, ids=ids))
    start = start_of(reset, FLIGHTS, had_none=True)
    assert (start.offset, start.is_made_again) == (as_configured if offset is None else offset, False)


def test_the_id_of_a_topic_is_asked_for_once_for_all_partitions_of_an_assignment() -> None:
    """Each request is a wait of the polling thread."""
    asked, clock = Asked(OFFSET_INVALID, topic_id="old"), Clock()
    reset = asked.reset(replace(LAST, known={"flights": 20, "trains": 1}, ids={"flights": "old", "trains": "old"}))
    reset._clock = clock
    assert {start_of(reset, ("flights", one), had_none=True).offset for one in range(20)} == {100}
    assert (start_of(reset, ("trains", 0), had_none=True).offset, asked.ids_asked) == (100, 2)
    asked.topic_id = "new"
    clock.now += 1_000
    assert (start_of(reset, FLIGHTS, had_none=True).offset, asked.ids_asked) == (3, 3)


def test_a_loop_has_one_client_for_ids_of_topics_and_a_stop_ends_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def make(*_: Any, **more: Any) -> SimpleNamespace:
        made.append(more)
        return SimpleNamespace(topic_ids=lambda topics: dict.fromkeys(topics, "1"))

    monkeypatch.setattr(assembly, "KafkaAdmin", make)
    monkeypatch.setattr(LoopBuilder, "_clustering", lambda *_: GroupConsumer({}, lambda _settings: cast("Any", None)))
    monkeypatch.setattr(LoopBuilder, "_sender", lambda *_: RecordingWriter())
    one, stop = PushConsumer("departures"), threading.Event()
    one.register_message_listener(lambda _messages, _context: None)
    with ExitStack() as closing:
        parts = one._settings, one._registration, one._subscriptions, cast("Any", None), stop, closing, one._dropped
        builder = LoopBuilder(*parts)
        known = builder.build().partitions.known
        assert builder.build().partitions.known is known, "a restart forgets no committed offset"
        assert made == []
        assert [dict(known.topic_ids([topic])) for topic in "ab"] == [{"a": "1"}, {"b": "1"}]
    assert made == [{"stop": stop}]


@pytest.mark.parametrize("topic", ["flights", RETRY_TOPIC])
def test_an_offset_that_the_coordinator_has_found_again_is_the_start(topic: str) -> None:
    asked = Asked(42)
    start = start_of(asked.reset(LAST), (topic, 0), had_none=True)
    assert (start.offset, start.is_made_again) == (42, False)


@pytest.mark.parametrize(
    ("where", "answer", "offset"),
    [
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 5_000, 3),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 5_000, 100),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 7, 7),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, OFFSET_END, 100),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, KafkaError._TIMED_OUT, OFFSET_STORED),
    ],
)
def test_a_new_group_starts_as_configured_and_asks_again_when_nobody_tells_of_a_moment(
    where: ConsumeFromWhere, answer: int, offset: int
) -> None:
    asked = Asked(OFFSET_INVALID, at_the_moment=answer)
    assert start_of(asked.reset(ConsumeFrom(where, 5_000)), ("flights", 1), had_none=True).offset == offset


def test_a_refusal_is_not_asked_for_again() -> None:
    asked = Asked(OFFSET_INVALID, at_the_moment=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaRefused, match="looking where flights-1 was at the moment to start from: no right"):
        start_of(asked.reset(MOMENT), ("flights", 1), had_none=True)


class Appending(Asked):
    """A partition to which a record of the moment is appended after the first answer."""

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = super().offsets_for_times(partitions, timeout)
        self.end, self.at_the_moment = 101, 100
        return found


def test_a_record_that_comes_while_a_moment_is_looked_up_is_read() -> None:
    asked = Appending(OFFSET_INVALID, at_the_moment=OFFSET_END)
    assert start_of(asked.reset(MOMENT), ("flights", 1), had_none=True).offset == 100


def test_a_moment_after_all_records_is_asked_for_again_when_nobody_tells_the_end() -> None:
    """At librdkafka's own end, records of the meantime would be skipped."""
    asked = Asked(OFFSET_INVALID, end=None, at_the_moment=OFFSET_END)
    assert start_of(asked.reset(MOMENT), ("flights", 1), had_none=True).offset == OFFSET_STORED


@pytest.mark.parametrize(
    ("committed", "told"),
    [
        (OFFSET_INVALID, ["flights-0 has no committed offset: starting at offset 100"]),
        (1, [f"{GONE}: up to 2 offsets are skipped; raise the retention of topic flights"]),
        (100, ["flights-0 has no record at the offset to read, committed is 100: starting at offset 3"]),
        (
            101,
            ["flights-0 ends at 100, before the committed offset 101: the topic was recreated; starting at offset 3"],
        ),
    ],
)
def test_the_log_tells_why_a_start_was_chosen(
    committed: int, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    start_of(Asked(committed).reset(LAST), ("flights", 0), had_none=False)
    assert caplog.messages == told
    assert {one.levelname for one in caplog.records} == {"INFO" if committed < 0 else "WARNING"}


@dataclass
class Kept:
    """A partition of which records below `first` are gone, and what a consumer holds of it: one listener runs.

    Attributes:
        committed_offset: of the group; 2 before the listener runs.
        first: the first kept offset; None if nobody answers.
        restarts: where it is read from anew.
    """

    consume_from: ClassVar = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    committed_offset: int = 2
    first: int | None = 100
    end: int = 200
    restarts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun = Begun()
        self.sender = RecordingWriter(answers=[None, None])
        service = service_of(self._listen, self.sender, Clock(), batch_size=1)
        service.pool = cast("Any", self.begun)
        self.begun.submit = self._consume
        self.loop = loop_of(self, service, self.sender, consume_from=self.consume_from)
        self.loop.partitions.assigned([FLIGHTS])

    def read(self, *offsets: int) -> None:
        """Read these; the listener of the first one runs while the position is reset."""
        self.loop._hand_out(self.queue, [message_at(offset) for offset in offsets])
        self.loop._begin_fresh()

    @property
    def queue(self) -> ProcessQueue:
        return self.loop.partitions.queues[FLIGHTS]

    def _consume(self, chunk: Any) -> None:
        self.loop.partitions.service.consume(chunk)

    def _listen(self, chunk: Any, _context: Any) -> ConsumeConcurrentlyStatus:
        if not self.begun.messages:
            self.loop.partitions.reset_offsets({FLIGHTS: False})
        self.begun.messages += [(0, one.offset) for one in chunk]
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    def committed(self, partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        committed = self.committed_offset if self.queue.running else 2
        return [TopicPartition(one.topic, one.partition, committed) for one in partitions]

    def offsets_for_times(self, partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        if self.first is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        [asked] = partitions
        return [TopicPartition(asked.topic, asked.partition, self.first if asked.offset == EARLIEST else self.end)]

    def consumer_group_metadata(self) -> None: ...

    def incremental_unassign(self, _partitions: list[TopicPartition]) -> None: ...

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.restarts += [one.offset for one in partitions]

    def resume(self, _partitions: list[TopicPartition]) -> None: ...


@pytest.mark.parametrize(("first", "start"), [(100, 100), (7, 7), (None, 7)], ids=["gap", "no gap", "nobody tells"])
def test_messages_in_memory_are_not_lost_with_their_records(
    first: int | None, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention passed a paused partition: the records behind the unfinished messages are gone."""
    kept = Kept(first=first)
    kept.queue.paused = True
    kept.read(5, 6)
    assert kept.begun.messages == [(0, 5), (0, 6)]
    assert len(kept.sender.requests) == 2
    assert kept.restarts == [start]
    assert not kept.queue.paused
    assert kept.queue.commit_point() == Commit(7, "")
    assert any(one.levelname == "WARNING" for one in caplog.records)
    kept.queue.begin([message_at(100)])
    assert kept.queue.commit_point() == Commit(100, "")


class New(Kept):
    """The group has no offset in the partition, and begins at its end."""

    consume_from = LAST

    def committed(self, partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, OFFSET_INVALID) for one in partitions]


def test_the_commit_of_a_start_that_was_refused_is_repeated() -> None:
    """Else an owner after the next rebalance chooses a later one."""
    kept = New()
    kept.loop.partitions.reset_offsets({FLIGHTS: True})
    assert kept.queue.to_commit == Commit(200, "")
    kept.queue.committed = Commit(200, "")
    assert kept.queue.to_commit is None
    kept.loop.partitions.committed({FLIGHTS: KafkaRefused("a rebalance")})
    assert kept.queue.to_commit == Commit(200, "")
    kept.queue.begin([message_at(300)])
    assert kept.queue.to_commit == Commit(300, "")


def test_messages_that_wait_for_the_progress_of_an_earlier_owner_are_kept_too() -> None:
    kept = Kept()
    kept.loop._hand_out(kept.queue, [message_at(5)])
    kept.loop.partitions.reset_offsets({FLIGHTS: False})
    kept.loop._begin_fresh()
    assert kept.begun.messages == [(0, 5)]
    assert len(kept.sender.requests) == 1


@pytest.mark.parametrize(
    "kept",
    [Kept(committed_offset=250), Kept(committed_offset=2, first=3, end=6)],
    ids=["made again", "truncated"],
)
def test_messages_whose_offsets_now_have_other_records_are_dropped(kept: Kept) -> None:
    kept.read(5, 6)
    assert kept.sender.requests == []
    assert kept.restarts == [kept.first]
