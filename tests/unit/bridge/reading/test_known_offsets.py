"""A group's offsets never go back while a member lives; who says so is not believed."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import Answer
from reconsume.bridge.kafka.partitioning import NO_ID
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.delay_levels.errors import KafkaNotReachable

LANE = ("reconsume.DELAY.1s", 0)
OTHER = ("reconsume.DELAY.2s", 3)
NOTHING = -1


@dataclass
class Coordinator:
    """Gives one answer after the other, the last one for ever.

    Attributes:
        ids: of the topics.
        now: grows by a second with each answer.
    """

    answers: list[dict[tuple[str, int], int]]
    ids: dict[str, str] = field(default_factory=lambda: {LANE[0]: "1", OTHER[0]: "1"})
    now: float = 0.0
    asked: int = 0

    def committed(self, partitions: Collection[Partition]) -> dict[Partition, Commit]:
        self.now += 1_000
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {where: Commit(answer[where], "") for where in partitions if where in answer}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def known(self, **offsets: int) -> KnownOffsets:
        known = KnownOffsets(self.topic_ids, patience_ms=10_000, clock=lambda: self.now)
        known.note({{"lane": LANE, "other": OTHER}[name]: Commit(at, "m") for name, at in offsets.items()})
        return known


class NoWait(threading.Event):
    """Waits for nothing; the coordinator's clock goes on by itself."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        return self.is_set()


def offset_of(answer: Answer) -> int:
    assert isinstance(answer, Commit)
    return answer.offset


def asked(coordinator: Coordinator, known: KnownOffsets, stop: threading.Event | None = None) -> list[tuple[int, bool]]:
    """What is believed of both partitions, and whether it was restored."""
    found = known.ask(coordinator.committed, [LANE, OTHER], stop or NoWait())
    return [(offset_of(one), where in found.restored) for where, one in found.committed.items()]


def test_a_first_answer_is_believed_when_it_is_given_twice() -> None:
    """To who has just started a coordinator that is loading looks as any other."""
    coordinator = Coordinator([{LANE: 3}, {LANE: 5}, {LANE: 7}])
    known = coordinator.known()
    assert asked(coordinator, known) == [(7, False), (NOTHING, False)]
    assert coordinator.asked == 4
    coordinator.answers = [{LANE: 9}]
    assert asked(coordinator, known) == [(9, False), (NOTHING, False)]
    assert coordinator.asked == 5, "no first one any more"


def test_nothing_committed_is_believed_at_once() -> None:
    coordinator = Coordinator([{}])
    assert asked(coordinator, coordinator.known()) == [(NOTHING, False)] * 2
    assert coordinator.asked == 1


def test_what_was_read_before_counts_as_the_first_answer() -> None:
    coordinator = Coordinator([{LANE: 7}])
    known = coordinator.known()
    known.read({LANE: Commit(7, "")})
    assert asked(coordinator, known)[0] == (7, False)
    assert coordinator.asked == 1


def test_a_first_answer_that_never_stays_is_believed_in_the_end() -> None:
    """As where others commit too: then it is not the coordinator that is at work."""
    coordinator = Coordinator([{LANE: offset} for offset in range(50)])
    assert asked(coordinator, coordinator.known())[0] == (9, False)


def test_a_coordinator_that_is_still_loading_has_its_time_as_long_as_it_goes_on() -> None:
    coordinator = Coordinator([{LANE: offset} for offset in range(0, 111, 5)])
    assert asked(coordinator, coordinator.known(lane=110))[0] == (110, False)
    assert coordinator.asked == 23


@pytest.mark.parametrize("loading", [[{}], [{}, {LANE: 3}, {LANE: 100}]], ids=["nothing yet", "bit by bit"])
def test_a_coordinator_that_is_still_loading_is_waited_for(loading: list[dict[tuple[str, int], int]]) -> None:
    """What is not known here is right by then too."""
    coordinator = Coordinator([*loading, {LANE: 120, OTHER: 55}])
    assert asked(coordinator, coordinator.known(lane=110)) == [(120, False), (55, False)]
    assert coordinator.asked == len(loading) + 2


def test_what_is_lost_for_good_is_restored_with_its_metadata(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator([{OTHER: 60}])
    known = coordinator.known(lane=110, other=55)
    found = known.ask(coordinator.committed, [LANE, OTHER], NoWait())
    assert found.restored == {LANE: (110, "m")}
    assert found.committed == {LANE: (110, "m"), OTHER: (60, "")}
    assert coordinator.now == pytest.approx(11_000, abs=1_000), "not before the coordinator had its time"
    assert [one.levelname for one in caplog.records] == ["WARNING", "ERROR"]
    assert "reconsume.DELAY.1s-0 was committed at 110 and is said to be at 0" in caplog.text


def test_a_stop_does_not_wait_for_the_coordinator() -> None:
    coordinator, stop = Coordinator([{}]), NoWait()
    stop.set()
    assert asked(coordinator, coordinator.known(lane=110), stop) == [(110, False), (NOTHING, False)]
    assert coordinator.asked == 1, "and writes nothing: it may be about to find it"


def test_a_topic_that_was_made_again_begins_anew() -> None:
    coordinator = Coordinator([{OTHER: 55}])
    known = coordinator.known(lane=110, other=55)
    coordinator.ids[LANE[0]] = "2"
    assert asked(coordinator, known) == [(NOTHING, False), (55, False)]
    assert coordinator.asked == 1, "nothing to wait for"
    known.note({LANE: Commit(4, "")})
    assert asked(coordinator, known)[0] == (4, True)


def test_of_a_topic_without_an_id_no_offset_is_restored_into_one_that_has_an_id() -> None:
    """In an upgrade of the brokers it is the same topic, and its messages come again; later it may be another one."""
    coordinator = Coordinator([{OTHER: 55}], ids={LANE[0]: NO_ID, OTHER[0]: "1"})
    known = coordinator.known(lane=110, other=55)
    coordinator.ids[LANE[0]] = "2"
    assert asked(coordinator, known)[0] == (NOTHING, False)


def test_offsets_only_grow_and_say_nothing_where_there_are_none() -> None:
    coordinator = Coordinator([{LANE: 110}])
    known = coordinator.known(lane=110)
    known.note({LANE: Commit(90, ""), OTHER: Commit(NOTHING, "")})
    assert asked(coordinator, known) == [(110, False), (NOTHING, False)]
    known.note({LANE: Commit(130, "")})
    assert asked(coordinator, known)[0] == (130, True)


def test_of_a_topic_that_cannot_be_told_from_a_later_one_nothing_is_kept_in_mind() -> None:
    def away(_topics: Collection[str]) -> dict[str, str]:
        raise KafkaNotReachable("away")

    known = KnownOffsets(away)
    known.note({LANE: Commit(110, "")})
    assert asked(Coordinator([{LANE: 3}]), known)[0] == (3, False)


def test_no_answer_is_no_lower_answer() -> None:
    def away(_partitions: Collection[Partition]) -> dict[Partition, Commit]:
        raise KafkaNotReachable("away")

    with pytest.raises(KafkaNotReachable):
        Coordinator([{}]).known(lane=110).ask(away, [LANE], NoWait())


def test_a_partition_of_which_the_coordinator_tells_nothing_holds_up_no_other() -> None:
    """Its answer is another error each time, and the other partition's time goes on."""
    coordinator = Coordinator([{}])

    def committed(partitions: Collection[Partition]) -> dict[Partition, Answer]:
        return {**coordinator.committed(partitions), OTHER: KafkaNotReachable("unstable")}

    found = coordinator.known(lane=110, other=55).ask(committed, [LANE, OTHER], NoWait())
    assert found.restored == {LANE: (110, "m")}
    assert isinstance(found.committed[OTHER], KafkaNotReachable)


def asked_once(coordinator: Coordinator, known: KnownOffsets) -> list[int]:
    return [offset_of(one) for one in known.ask_once(coordinator.committed, [LANE, OTHER]).values()]


def test_who_does_not_wait_is_told_that_the_coordinator_may_find_them_again() -> None:
    coordinator = Coordinator([{}, {LANE: 3}, {LANE: 120, OTHER: 55}])
    known = coordinator.known(lane=110)
    for said in (0, 3):
        with pytest.raises(
            KafkaNotReachable, match=f"lost offsets.*-0 was committed at 110 and is said to be at {said}"
        ):
            asked_once(coordinator, known)
    assert asked_once(coordinator, known) == [120, 55]


def test_who_does_not_wait_goes_by_what_is_known_in_the_end() -> None:
    coordinator = Coordinator([{OTHER: 60}])
    known = coordinator.known(lane=110, other=55)
    for _ in range(10):
        with pytest.raises(KafkaNotReachable):
            asked_once(coordinator, known)
    assert asked_once(coordinator, known) == [110, 60]
    assert asked_once(coordinator, known) == [110, 60], "it had its time"


def test_a_coordinator_that_loses_offsets_again_has_its_time_again() -> None:
    coordinator = Coordinator([{}, {LANE: 110}, {}])
    known = coordinator.known(lane=110)
    with pytest.raises(KafkaNotReachable):
        asked_once(coordinator, known)
    assert asked_once(coordinator, known) == [110, NOTHING]
    coordinator.now += 60_000
    with pytest.raises(KafkaNotReachable):
        asked_once(coordinator, known)


def test_who_does_not_wait_does_not_for_a_topic_that_was_made_again() -> None:
    coordinator = Coordinator([{OTHER: 55}])
    known = coordinator.known(lane=110, other=55)
    coordinator.ids[LANE[0]] = "2"
    assert asked_once(coordinator, known) == [NOTHING, 55]
