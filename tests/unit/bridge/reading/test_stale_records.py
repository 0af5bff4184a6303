"""What comes first after an assignment is held against what the group has committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.reading.stale_records import StaleRecords

FLIGHTS = TopicPartition("flights", 0)
NO_ANSWER = pytest.mark.parametrize(
    "refusal",
    [KafkaException(KafkaError(KafkaError._TIMED_OUT)), KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)],
    ids=["no answer", "an open transaction holds the offset back"],
)


class Unknown(NamedTuple):
    """What is said of one partition; an error cannot be set on a real `TopicPartition`."""

    topic: str
    partition: int
    offset: int
    error: KafkaError


@dataclass
class Group:
    """Answers as `Consumer.committed` and `Consumer.seek` do."""

    offset: int
    refusals: list[KafkaException | KafkaError] = field(default_factory=list)
    cannot_seek: bool = False
    assigned: list[TopicPartition] = field(default_factory=lambda: [FLIGHTS])
    asked: int = 0
    sought: list[int] = field(default_factory=list)
    returned: int = OFFSET_INVALID

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.asked += 1
        refusal = self.refusals.pop() if self.refusals else None
        if isinstance(refusal, KafkaException):
            raise refusal
        if refusal is not None:
            return [cast("Any", Unknown(one.topic, one.partition, OFFSET_INVALID, refusal)) for one in partitions]
        return [TopicPartition(one.topic, one.partition, self.offset) for one in partitions]

    def assignment(self) -> list[TopicPartition]:
        return self.assigned

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, self.returned) for one in partitions]

    def seek(self, to: TopicPartition) -> None:
        if self.cannot_seek:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append(to.offset)
        self.returned = OFFSET_INVALID

    def stale(self, *, from_end: bool = False) -> StaleRecords:
        stale = StaleRecords(self.seek, from_end=from_end)
        stale.assigned([FLIGHTS])
        return stale

    def is_stale(self, stale: StaleRecords, offset: int, error: KafkaError | None = None) -> bool:
        polled = KafkaMessage(topic="flights", partition=0, offset=offset, error=error)
        self.returned = offset + 1
        return stale.is_stale(cast("Any", self), polled)

    def committable(self, stale: StaleRecords) -> list[int] | None:
        offsets = stale.committable(cast("Any", self))
        return None if offsets is None else [one.offset for one in offsets]

    def left_out(self, stale: StaleRecords, *offsets: int) -> list[int]:
        return [offset for offset in offsets if self.is_stale(stale, offset)]


def test_what_is_below_the_committed_offset_is_left_out_until_something_is_not() -> None:
    group = Group(38)
    stale = group.stale()
    assert group.left_out(stale, 0, 1, 37, 38, 39, 40) == [0, 1, 37]
    assert group.asked == 1, "no more than it takes"
    assert not stale.unchecked


@pytest.mark.parametrize("committed", [38, OFFSET_INVALID])
def test_the_first_record_may_be_left_over_too_and_then_comes_again(committed: int) -> None:
    """It was not committed yet when it came, and when librdkafka asked where the new assignment begins."""
    group = Group(committed)
    stale = group.stale()
    assert not group.is_stale(stale, 38)
    group.offset = 39
    assert group.left_out(stale, 38, 39) == [38]
    assert not stale.unchecked


def test_what_stands_before_the_first_record_comes_after_all() -> None:
    """The record that was left over had been read ahead of what its old owner had finished."""
    group = Group(38)
    stale = group.stale()
    assert not group.is_stale(stale, 40)
    assert group.left_out(stale, 38, 39, 40, 41) == [40]


def test_with_a_new_assignment_it_begins_anew() -> None:
    group = Group(38)
    stale = group.stale()
    assert group.left_out(stale, 38) == []
    stale.assigned([FLIGHTS])
    assert group.left_out(stale, 37, 38) == [37]


def test_where_the_user_has_chosen_the_start_nothing_is_asked() -> None:
    group = Group(38)
    stale = group.stale()
    stale.trust([FLIGHTS])
    assert group.left_out(stale, 0) == []
    assert group.asked == 0


def test_a_refused_seek_keeps_the_state_of_a_newer_assignment() -> None:
    group = Group(38)
    stale = group.stale()
    assert group.left_out(stale, 40) == []

    def refused() -> None:
        stale.assigned([FLIGHTS])
        raise KafkaException(KafkaError(KafkaError._STATE))

    with pytest.raises(KafkaException), stale.trusted_if_sought(FLIGHTS):
        refused()
    assert group.left_out(stale, 37, 38, 39) == [37]


def test_a_group_that_has_committed_nothing_has_left_nothing() -> None:
    group = Group(OFFSET_INVALID)
    assert group.left_out(group.stale(from_end=True), 7) == []
    assert group.sought == []


def test_an_event_is_no_record() -> None:
    group = Group(38)
    assert not group.is_stale(group.stale(), 0, KafkaError(KafkaError._PARTITION_EOF))


def test_a_start_at_the_end_goes_back_once_to_what_is_committed() -> None:
    group = Group(38)
    stale = group.stale(from_end=True)
    assert group.left_out(stale, 50, 38, 39) == [50]
    assert group.sought == [38]


def test_a_batch_ends_where_reading_goes_back_and_what_others_read_stays() -> None:
    group, end = Group(38), KafkaError(KafkaError._PARTITION_EOF)
    stale = group.stale(from_end=True)
    flights = [KafkaMessage(topic="flights", partition=0, offset=offset) for offset in (39, 40, 41)]
    others = [KafkaMessage(topic="trains", partition=0), KafkaMessage(topic="flights", partition=0, error=end)]
    assert stale.without_stale(cast("Any", group), [*flights[:2], *others, flights[2]]) == others
    assert stale.without_stale(cast("Any", group), flights) == flights
    assert group.sought == [38]


def test_a_gap_that_is_none_is_passed_the_second_time() -> None:
    """The marks of transactions are no records."""
    group = Group(38)
    assert group.left_out(group.stale(from_end=True), 40, 40, 41) == [40]
    assert group.sought == [38]


def test_where_it_may_have_begun_at_the_end_and_nothing_comes_it_goes_back_once() -> None:
    group = Group(38)
    stale = group.stale(from_end=True)
    for _ in range(2):
        stale.nothing_comes(cast("Any", group))
    assert group.sought == [38]
    assert group.left_out(stale, 38, 39) == []


@pytest.mark.parametrize(("committed", "from_end"), [(OFFSET_INVALID, True), (38, False)])
def test_where_nothing_was_passed_over_it_does_not_go_back(committed: int, *, from_end: bool) -> None:
    group = Group(committed)
    group.stale(from_end=from_end).nothing_comes(cast("Any", group))
    assert group.sought == []


@pytest.mark.parametrize("from_end", [True, False])
def test_a_partition_that_was_revoked_before_its_first_record_is_forgotten(*, from_end: bool) -> None:
    group = Group(38, cannot_seek=True, assigned=[])
    stale = group.stale(from_end=from_end)
    stale.nothing_comes(cast("Any", group))
    assert group.asked == 0
    assert not stale.unchecked


def test_a_partition_may_be_trusted_while_its_committed_offset_is_asked_for() -> None:
    """`send_message_back` seeks in another thread."""
    group = Group(38)
    stale = group.stale(from_end=True)

    class Slow(Group):
        def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            stale.trust([FLIGHTS])
            return super().committed(partitions, timeout)

    stale.nothing_comes(cast("Any", Slow(38)))
    assert group.sought == []


def test_a_partition_may_be_trusted_while_the_silent_ones_are_counted() -> None:
    group = Group(38)
    stale = group.stale(from_end=True)
    trains = TopicPartition("trains", 0)

    class Counted:
        sought = False

        @property
        def first(self) -> None:
            stale.trust([trains])

    stale.assigned([trains])
    stale.unchecked["flights", 0] = cast("Any", Counted())
    group.assigned = [FLIGHTS, trains]
    stale.nothing_comes(cast("Any", group))
    assert group.sought == [38]


@NO_ANSWER
def test_while_nobody_answers_it_does_not_go_back(refusal: KafkaException | KafkaError) -> None:
    group = Group(38, [refusal])
    stale = group.stale(from_end=True)
    stale.nothing_comes(cast("Any", group))
    assert group.sought == []
    assert stale.unchecked


@NO_ANSWER
def test_where_nobody_answers_the_record_is_read_again(refusal: KafkaException | KafkaError) -> None:
    group = Group(38, [refusal])
    stale = group.stale()
    assert group.is_stale(stale, 38)
    assert group.sought == [38]
    assert not group.is_stale(stale, 38)


def test_a_record_that_cannot_be_read_again_is_taken() -> None:
    group = Group(38, [KafkaException(KafkaError(KafkaError._TIMED_OUT))], cannot_seek=True)
    assert not group.is_stale(group.stale(), 0)


def test_stored_offsets_count_unless_a_record_was_left_out() -> None:
    group = Group(38)
    stale = group.stale()
    assert group.committable(stale) is None, "nothing has arrived"
    assert not group.is_stale(stale, 38)
    assert group.committable(stale) is None


@NO_ANSWER
def test_a_record_that_is_read_again_is_not_committed_before(refusal: KafkaException | KafkaError) -> None:
    group = Group(38, [refusal])
    stale = group.stale()
    assert group.is_stale(stale, 38)
    assert group.committable(stale) == []
    assert not group.is_stale(stale, 38)
    assert group.committable(stale) is None


def test_a_record_below_the_committed_offset_takes_the_group_not_back() -> None:
    group = Group(38)
    stale = group.stale()
    assert group.is_stale(stale, 36)
    assert group.committable(stale) == []
    assert not group.is_stale(stale, 38)
    assert group.committable(stale) is None


def test_after_a_seek_other_partitions_are_committed_up_to_their_last_record() -> None:
    class Both(Group):
        def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
            return [*super().position(partitions), TopicPartition("trains", 0, 7)]

    group = Both(38)
    stale = group.stale()
    assert group.left_out(stale, 38, 39) == []
    with stale.trusted_if_sought(FLIGHTS):
        group.seek(FLIGHTS)
    assert group.committable(stale) == [7]
    assert not group.is_stale(stale, 38)
    assert group.committable(stale) is None
    with pytest.raises(KafkaException), stale.trusted_if_sought(FLIGHTS):
        raise KafkaException(KafkaError(KafkaError._STATE))
    assert group.committable(stale) is None


@pytest.mark.parametrize("start", [500, OFFSET_BEGINNING])
@pytest.mark.parametrize("comes", [True, False])
def test_a_partition_that_begins_at_its_first_record_is_not_read_again_from_a_deleted_one(
    comes: bool, start: int
) -> None:
    group = Group(100)
    stale = StaleRecords(group.seek, from_end=True)
    stale.begun([TopicPartition("flights", 0, start)])
    stale.assigned([FLIGHTS])
    if comes:
        assert group.left_out(stale, 500, 501) == []
    else:
        stale.nothing_comes(cast("Any", group))
    assert group.sought == []
