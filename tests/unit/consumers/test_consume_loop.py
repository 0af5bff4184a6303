"""What the poll loop does with what a rebalance leaves in its hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import KafkaRefused
from tests.unit.consumers.doubles import Begun, loop_on

FLIGHTS = ("flights", 0)


@dataclass
class Polled:
    """Has one message ready; a rebalance comes with the next ones.

    Attributes:
        reset: partitions whose start was set.
        rebalance: called before `consume` returns, as librdkafka calls back.
        asked: how many messages `consume` was called for.
        paused: partitions that were paused.
        generation: of the group, as librdkafka knows it.
    """

    first: KafkaMessage
    rest: list[KafkaMessage]
    rebalance: Any = lambda: None
    reset: list[TopicPartition] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    paused: list[TopicPartition] = field(default_factory=list)
    generation: bytes = b"1"

    def poll(self, _timeout: float) -> KafkaMessage:
        return self.first

    def consume(self, count: int, _timeout: float) -> list[KafkaMessage]:
        self.rebalance()
        self.asked.append(count)
        return self.rest

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused += partitions

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.reset += partitions

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.reset += partitions

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return partitions

    def offsets_for_times(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, 7) for one in partitions]

    def consumer_group_metadata(self) -> bytes:
        return self.generation


def assigned(polled: Polled) -> tuple[ConsumeLoop, Begun]:
    loop, begun = loop_on(polled)
    loop.partitions.assigned([FLIGHTS])
    return loop, begun


def record(offset: int) -> KafkaMessage:
    return KafkaMessage(topic="flights", partition=0, offset=offset, value=b"body")


def test_a_record_from_before_a_rebalance_is_not_taken_for_one_from_after_it() -> None:
    polled = Polled(record(9), [record(4), record(5)])
    loop, begun = assigned(polled)

    def away_and_back() -> None:
        loop.partitions.lost([FLIGHTS])
        loop.partitions.assigned([FLIGHTS])

    polled.rebalance = away_and_back
    loop._read(0, 0)
    loop._begin_fresh()
    assert begun.messages == [(0, 4), (0, 5)]


@pytest.mark.parametrize(
    ("code", "ends"),
    [(KafkaError.NOT_COORDINATOR, MembershipLost), (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaRefused)],
)
def test_partitions_that_never_start_end_the_loop(code: int, ends: type[Exception]) -> None:
    """A new consumer helps, but not against missing rights."""
    of_all = 'Failed to fetch committed offsets for 1 partition(s) in group "billing": Broker: it moved'
    of_one = 'Failed to fetch committed offset for group "billing" topic flights [0]: Broker: it moved'
    for error in (
        KafkaMessage(error=KafkaError(code, of_all)),
        KafkaMessage(topic="flights", partition=0, error=KafkaError(code, of_one)),
    ):
        loop, _ = assigned(Polled(error, []))
        with pytest.raises(ends, match="starting to read"):
            loop._read(0, 0)


def test_a_static_member_that_was_shut_out_joins_again_and_one_with_a_twin_ends() -> None:
    """After a session without an answer, the brokers take the member for its own twin."""
    fenced = KafkaError(KafkaError._FATAL, "Fatal error: Broker: Static consumer fenced by other consumer", fatal=True)
    loop, _ = assigned(Polled(KafkaMessage(error=fenced), []))
    loop.partitions.lost([FLIGHTS])
    with pytest.raises(MembershipLost, match="no answer from the group's coordinator"):
        loop._read(0, 0)
    loop.partitions.assigned([FLIGHTS])
    with pytest.raises(KafkaRefused, match="Static consumer fenced"):
        loop._read(0, 0)


def test_a_partition_that_is_gone_is_not_started_anew() -> None:
    no_offset = KafkaMessage(topic="flights", partition=0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    polled = Polled(no_offset, [no_offset])
    loop, _ = assigned(polled)
    polled.rebalance = lambda: loop.partitions.lost([FLIGHTS])
    loop._read(0, 0)
    loop._begin_fresh()
    assert polled.reset == []


NO_OFFSET = KafkaMessage(topic="flights", partition=0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))


def test_a_partition_starts_anew_after_a_rebalance_that_waits_for_a_poll() -> None:
    """An unassignment before that is the end of the rebalance for librdkafka."""
    polled = Polled(NO_OFFSET, [])
    loop, _ = assigned(polled)
    polled.generation = b"2"
    loop.run_once()
    assert polled.reset == []
    polled.first, polled.rest = record(7), []
    polled.rebalance = lambda: loop.partitions.assigned([])
    loop.run_once()
    assert [one.offset for one in polled.reset] == [OFFSET_INVALID, 7]


def test_a_partition_that_the_rebalance_takes_is_not_started_anew() -> None:
    polled = Polled(NO_OFFSET, [])
    loop, _ = assigned(polled)
    polled.generation = b"2"
    loop.run_once()
    polled.first = record(7)
    polled.rebalance = lambda: loop.partitions.revoked([FLIGHTS])
    loop.run_once()
    assert polled.reset == []


def test_a_generation_that_comes_without_a_rebalance_delays_a_start_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the new group protocol."""
    monkeypatch.setattr("reconsume.consumers.assigned_partitions._REBALANCE_SECONDS", 0)
    polled = Polled(NO_OFFSET, [])
    loop, _ = assigned(polled)
    polled.generation = b"2"
    loop.run_once()
    polled.first = record(7)
    assert polled.reset == []
    loop.run_once()
    assert [one.offset for one in polled.reset] == [OFFSET_INVALID, 7]


def test_the_end_of_a_partition_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The conf of a program may ask for these events."""
    end = KafkaMessage(topic="flights", partition=0, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))
    loop, begun = assigned(Polled(record(8), [end]))
    loop._read(0, 0)
    loop._begin_fresh()
    assert begun.messages == [(0, 8)]
    assert caplog.messages == []


@pytest.mark.rule("FC-02")
def test_an_empty_partition_is_filled_in_one_turn_and_a_fuller_one_in_smaller_steps() -> None:
    polled = Polled(record(0), [record(offset) for offset in range(1, 701)])
    loop, begun = assigned(polled)
    loop.partitions.kept_progress.learn(loop.partitions.queues.values())
    loop.run_once()
    assert len(begun.messages) == 701
    polled.first, polled.rest = record(701), []
    loop.run_once()
    assert polled.asked == [999, 499]


@pytest.mark.rule("FC-02")
@pytest.mark.parametrize(("every_ms", "paused"), [(40, []), (60, ["flights"])])
def test_a_full_partition_is_not_paused_while_its_send_backs_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch, every_ms: int, paused: list[str]
) -> None:
    """A pause discards what was fetched, and the next fetch takes up to half a second."""
    polled = Polled(record(0), [record(offset) for offset in range(1, 1_002)])
    loop, begun = assigned(polled)
    loop.partitions.kept_progress.learn(loop.partitions.queues.values())
    queue = loop.partitions.queues[FLIGHTS]
    now = [0.0]
    monkeypatch.setattr("reconsume.consumers.assigned_partitions.time.monotonic", lambda: now[0])

    def acknowledged(is_full: Callable[[], bool], seconds: float) -> None:
        for offset in range(3):
            if is_full() and now[0] < seconds:
                now[0] += every_ms / 1_000
                if is_full():
                    queue.finish(Message(record(offset), "%RETRY%departures"))

    monkeypatch.setattr(begun, "wait_while", acknowledged)
    loop.run_once()
    assert [one.topic for one in polled.paused] == paused
