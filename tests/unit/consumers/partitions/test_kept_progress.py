"""What is done above the committed offset is asked for until somebody knows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused
from reconsume.delay_levels.progress.metadata import encode_progress
from tests.unit.consumers.doubles import loop_on, message_at


@dataclass
class Coordinator:
    """Answers as a consumer does.

    Attributes:
        refusals: of the next questions; for a while nobody answers, or an offset is not stable yet.
        asked: the partitions of each question.
        paused: partitions that are not read on.
    """

    refusals: list[KafkaException | KafkaError]
    asked: list[list[int]] = field(default_factory=list)
    paused: set[int] = field(default_factory=set)

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.asked.append([one.partition for one in partitions])
        refusal = self.refusals.pop(0) if self.refusals else None
        if isinstance(refusal, KafkaException):
            raise refusal
        # An error of one partition says nothing of the others.
        return [Answer(one.topic, one.partition, refusal if one is partitions[0] else None) for one in partitions]

    def consumer_group_metadata(self) -> None: ...

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {one.partition for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {one.partition for one in partitions}


class Answer(TopicPartition):
    """Offset 5 is committed, and 7 is done; or an error, which cannot be set on a real one."""

    def __init__(self, topic: str, partition: int, refusal: KafkaError | None) -> None:
        super().__init__(topic, partition, 5, encode_progress(5, [7], {}))
        self.refusal = refusal

    @property
    def error(self) -> KafkaError | None:  # type: ignore[override]
        return self.refusal


class Bench:
    """A loop that was assigned two partitions; nothing of Kafka but the coordinator."""

    def __init__(self, *refusals: KafkaException | KafkaError) -> None:
        self.coordinator = Coordinator(list(refusals))
        self.now = 0.0
        self.loop, begun = loop_on(self.coordinator)
        self.begun = begun.messages
        self.loop.partitions.kept_progress._clock = lambda: self.now
        self.loop.partitions.assigned([("flights", one) for one in range(2)])

    def reads(self, partition: int, *offsets: int) -> None:
        messages = [message_at(offset, partition=partition) for offset in offsets]
        self.loop._hand_out(self.loop.partitions.queues["flights", partition], messages)

    def turns(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1_000
            self.loop._begin_fresh()
            self.loop.partitions.pause_and_resume()

    def loses(self, partition: int) -> None:
        self.loop.partitions.lost([("flights", partition)])


TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


def test_all_that_have_messages_are_asked_for_at_once_and_what_is_done_is_left_out() -> None:
    bench = Bench()
    bench.reads(0, 5, 6)
    bench.reads(1, 7, 8)
    assert (bench.begun, bench.coordinator.asked) == ([], [])
    bench.turns(1)
    assert (bench.begun, bench.coordinator.asked) == ([(0, 5), (0, 6), (1, 8)], [[0, 1]])
    bench.reads(0, 9)
    assert bench.begun[-1] == (0, 9)
    bench.turns(5)
    assert (bench.coordinator.asked, bench.coordinator.paused) == ([[0, 1]], set())


def test_a_partition_without_messages_is_not_asked_for_yet() -> None:
    bench = Bench()
    bench.reads(1, 5)
    bench.turns(1)
    assert bench.coordinator.asked == [[1]]


def test_it_is_asked_until_somebody_knows_and_the_loop_goes_on_meanwhile() -> None:
    """What was read waits in order; no more is read, so it cannot become much."""
    bench = Bench(TIMED_OUT, UNSTABLE, TIMED_OUT)
    bench.reads(0, 5, 6)
    bench.turns(1)
    assert (bench.begun, bench.coordinator.paused) == ([], {0})
    bench.reads(0, 7, 8)
    bench.turns(2)
    assert (bench.begun, bench.coordinator.asked) == ([], [[0]] * 3)
    bench.turns(1)
    assert (bench.begun, bench.coordinator.paused) == ([(0, 5), (0, 6), (0, 8)], set())


def test_a_partition_that_is_known_does_not_wait_for_another() -> None:
    bench = Bench(UNSTABLE, UNSTABLE)
    bench.reads(0, 5)
    bench.reads(1, 5)
    bench.turns(1)
    assert (bench.begun, bench.coordinator.paused) == ([(1, 5)], {0})
    bench.turns(2)
    assert (bench.begun, bench.coordinator.asked) == ([(1, 5), (0, 5)], [[0, 1], [0], [0]])


def test_a_cluster_that_does_not_tell_one_topic_from_another_is_asked_again() -> None:
    """The committed offset looks lost, and whether its topic was made again is not known."""

    def away(_topics: object) -> dict[str, str]:
        raise KafkaNotReachable("away")

    bench = Bench()
    known = bench.loop.partitions.known
    known._ids["flights"] = "1"
    known.note({("flights", 0): Commit(6, "")})
    known.topic_ids = away
    bench.reads(0, 5, 6)
    bench.turns(2)
    assert bench.begun == []
    known.topic_ids = lambda topics: dict.fromkeys(topics, "2")
    bench.turns(1)
    assert bench.begun == [(0, 5), (0, 6)]


def test_what_is_held_of_a_partition_that_goes_is_not_begun() -> None:
    bench = Bench(TIMED_OUT)
    bench.reads(0, 5)
    bench.turns(1)
    bench.loses(0)
    bench.turns(1)
    assert (bench.begun, bench.coordinator.asked, bench.coordinator.paused) == ([], [[0]], set())


def test_without_a_right_the_consumer_ends() -> None:
    bench = Bench(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    bench.reads(0, 5)
    with pytest.raises(KafkaRefused, match="no right to use the consumer group"):
        bench.turns(1)


def test_a_consumer_that_nobody_tells_for_two_minutes_is_given_up() -> None:
    bench = Bench(*[TIMED_OUT] * 200)
    bench.reads(0, 5)
    bench.turns(120)
    with pytest.raises(MembershipLost, match="Timed out"):
        bench.turns(2)


def test_two_minutes_begin_anew_when_nothing_waited_between() -> None:
    bench = Bench(*[TIMED_OUT] * 100, *[UNSTABLE] * 20)
    bench.reads(0, 5)
    bench.turns(90)
    bench.loses(0)
    bench.turns(1)
    bench.reads(1, 5)
    bench.turns(31)
    assert bench.begun == [(1, 5)]
