"""Where a partition goes on: at the committed offset, or at a position that is ahead of it and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.kafka.partitioning import NO_ID
from reconsume.bridge.scheduler.delivery.positions import PositionLog
from reconsume.bridge.scheduler.membership.earlier_owners import EarlierOwners, EarlierProgress
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.progress.done_ahead import encode_done
from tests.support.positions import PositionsInMemory, Transaction

LANE = ("reconsume.DELAY.1s", 0)
OTHER = ("reconsume.DELAY.2s", 3)


@dataclass
class Owners:
    """A group whose coordinator says what it is told to, and a clock that is set by hand."""

    told: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    positions: PositionsInMemory = field(default_factory=PositionsInMemory)
    now: float = 0.0
    end: int | None = 1_000

    def __post_init__(self) -> None:
        self.owners = EarlierOwners(
            GroupConsumer({}, lambda _settings: cast("Any", self)), cast("Any", self.positions), clock=lambda: self.now
        )

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        found = []
        for one in partitions:
            offset, metadata = self.told.get((one.topic, one.partition), (OFFSET_INVALID, ""))
            found.append(TopicPartition(one.topic, one.partition, offset, metadata))
        return found

    def offsets_for_times(self, asked: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition(one.topic, one.partition, self.end) for one in asked]

    def wrote(
        self, offset: int, metadata: str = "", *, state: Any = "committed", where: Partition = LANE
    ) -> Transaction:
        return self.positions.write({where: Commit(offset, metadata)}, Transaction(state))

    def ask(self, *wheres: tuple[str, int]) -> tuple[dict[tuple[str, int], EarlierProgress], set[tuple[str, int]]]:
        self.owners.meet(wheres or (LANE,))
        return self.owners.ask(wheres or (LANE,))


def test_a_position_behind_the_committed_offset_is_not_looked_at_twice() -> None:
    """The usual case; also after workers of an earlier version, or after somebody moved the group on."""
    group = Owners({LANE: (7, "")})
    for offset in (5, 7):
        group.wrote(offset)
    assert group.ask(LANE, OTHER) == ({LANE: EarlierProgress(7)}, set())
    assert group.positions.reads == {"uncommitted": 1, "committed": 0}


@pytest.mark.parametrize("told", [{}, {LANE: (3, "")}], ids=["all offsets lost", "old offsets"])
def test_a_position_ahead_of_what_the_coordinator_says_holds(told: dict[Any, Any]) -> None:
    group, metadata = Owners(told), encode_done(7, [9, 12])
    group.wrote(5)
    group.wrote(7, metadata)
    assert group.ask() == ({LANE: EarlierProgress(7, metadata, frozenset({9, 12}), is_restored=True)}, set())


def test_at_the_same_offset_more_records_may_be_done() -> None:
    group = Owners({LANE: (7, encode_done(7, [9]))})
    group.wrote(7, encode_done(7, [9]))
    assert not group.ask()[0][LANE].is_restored
    group.wrote(7, encode_done(7, [9, 10]))
    assert group.ask()[0][LANE].done == {9, 10}


def test_a_position_of_a_transaction_that_was_aborted_does_not_count() -> None:
    group = Owners({LANE: (3, "")})
    group.wrote(5)
    group.wrote(8, state="aborted")
    assert group.ask()[0][LANE] == EarlierProgress(5, is_restored=True)
    group.told[LANE] = 6, ""
    assert group.ask()[0][LANE] == EarlierProgress(6)


def test_a_transaction_that_is_open_holds_up_only_partitions_with_a_later_position_behind_it() -> None:
    group = Owners({LANE: (3, ""), OTHER: (9, "")})
    stranger = group.wrote(1, state="open", where=("reconsume.DELAY.9s", 1))
    group.wrote(9, where=OTHER)
    group.wrote(5)
    assert group.ask(LANE, OTHER) == ({OTHER: EarlierProgress(9)}, {LANE})
    stranger.state = "aborted"
    assert group.ask() == ({LANE: EarlierProgress(5, is_restored=True)}, set())


def test_a_position_in_front_of_the_open_transaction_is_known() -> None:
    group = Owners()
    group.wrote(5)
    group.wrote(1, state="open", where=("reconsume.DELAY.9s", 1))
    assert group.ask() == ({LANE: EarlierProgress(5, is_restored=True)}, set())


@pytest.mark.parametrize("away", [True, False], ids=["not to be read", "hidden"])
def test_after_30_s_the_committed_offset_holds(caplog: pytest.LogCaptureFixture, *, away: bool) -> None:
    group = Owners({LANE: (3, "")})
    group.wrote(5, state="open")
    group.positions.refusal = KafkaNotReachable("away") if away else None
    for group.now in (1_000, 30_999):
        assert group.ask() == ({}, {LANE})
    assert "using the committed offset" not in caplog.text
    group.now = 31_000
    assert group.ask() == ({LANE: EarlierProgress(3)}, set())
    assert "using the committed offset: reconsume.DELAY.1s-0" in caplog.text
    assert group.ask() == ({}, {LANE}), "the next owner has its own 30 s"


def test_a_partition_that_was_decided_or_went_away_has_its_30_s_again() -> None:
    group = Owners()
    group.wrote(5, state="open")
    group.ask()
    group.owners.forget([LANE])
    group.now = 29_000
    assert group.ask(LANE, OTHER) == ({}, {LANE})
    group.now = 58_999
    assert group.ask() == ({}, {LANE})


def test_a_topic_that_was_made_again_begins_anew() -> None:
    group = Owners()
    group.wrote(5)
    group.positions.ids[LANE[0]] = "2"
    assert group.ask() == ({}, set())
    group.wrote(2)
    assert group.ask()[0][LANE].offset == 2


@pytest.mark.parametrize("state", ["committed", "aborted", "open"])
def test_a_commit_for_a_deleted_topic_does_not_count(state: str) -> None:
    """A worker had records of the old topic in memory, and committed them when the new one existed."""
    group = Owners({LANE: (5, "")}, end=3)
    group.wrote(5, state=state)
    group.positions.ids[LANE[0]] = "2"
    assert group.ask() == ({LANE: EarlierProgress(0, is_outdated=True)}, set())
    group.told[LANE] = 0, ""
    assert group.ask() == ({LANE: EarlierProgress(0)}, set())


def test_a_commit_counts_that_the_new_topic_may_have() -> None:
    """As in a copy of an installation, whose topics have other ids."""
    group = Owners({LANE: (5, "")}, end=5)
    group.wrote(5)
    group.positions.ids[LANE[0]] = "2"
    assert group.ask() == ({LANE: EarlierProgress(5)}, set())


def test_a_commit_counts_whose_records_the_brokers_have_lost() -> None:
    """Else all that is left of them would be delivered again."""
    group = Owners({LANE: (5, "")}, end=3)
    group.wrote(5)
    assert group.ask() == ({LANE: EarlierProgress(5)}, set())


@pytest.mark.parametrize("ids", [(NO_ID, "2"), ("2", NO_ID), (NO_ID, NO_ID)])
def test_a_topic_that_gets_its_id_in_an_upgrade_of_brokers_is_the_same(ids: tuple[str, str]) -> None:
    """For a moment some brokers report it and others do not. A batch in doubt may have had the id of before."""
    group = Owners({LANE: (5, "")}, end=7)
    group.positions.ids[LANE[0]] = ids[0]
    group.wrote(7)
    group.owners.meet([LANE])
    assert group.owners.recreated({LANE[0]: ids[1]}) == []
    group.positions.ids[LANE[0]] = ids[1]
    assert group.owners.ask([LANE]) == ({LANE: EarlierProgress(7, is_restored=True)}, set())
    if set(ids) != {NO_ID}:
        assert group.owners.recreated({LANE[0]: "3"}) == [LANE]


@pytest.mark.parametrize("end", [3, 2_000], ids=["shorter", "longer"])
@pytest.mark.parametrize("told", [{}, {LANE: (0, "")}], ids=["offset dropped", "offset replaced"])
def test_a_position_without_an_id_does_not_count_for_a_topic_with_one(told: dict[Any, Any], end: int) -> None:
    """It may be of a topic that got its id in an upgrade of the brokers, and was deleted and created again since."""
    group = Owners(told, end=end)
    group.positions.ids[LANE[0]] = NO_ID
    group.wrote(1_000)
    group.owners.meet([LANE])
    assert group.owners.recreated({LANE[0]: "A"}) == []
    assert group.owners.recreated({LANE[0]: "B"}) == [LANE]
    after = Owners(told, group.positions, end=end)
    after.positions.ids[LANE[0]] = "B"
    assert after.ask() == ({where: EarlierProgress(*one) for where, one in told.items()}, set())
    after.wrote(2)
    assert after.ask() == ({LANE: EarlierProgress(2, is_restored=True)}, set())


@pytest.mark.parametrize("before", [NO_ID, "1"])
def test_without_ids_a_position_counts_up_to_the_end_of_its_topic(before: str) -> None:
    """A shorter topic is another one, or the brokers have lost records: they are rather delivered again than lost."""
    group = Owners({LANE: (5, "")}, end=7)
    group.positions.ids[LANE[0]] = before
    group.wrote(7)
    group.positions.ids[LANE[0]] = NO_ID
    assert group.ask() == ({LANE: EarlierProgress(7, is_restored=True)}, set())
    group.end = 6
    assert group.ask() == ({LANE: EarlierProgress(5)}, set())
    group.end = None
    assert group.ask() == ({}, {LANE})


def test_positions_of_a_topic_that_gets_its_id_have_it_from_then_on() -> None:
    group, log = Owners(), PositionLog({"bootstrap.servers": "127.0.0.1:1"}, "reconsume.POSITIONS")
    log._ids = {LANE[0]: NO_ID, OTHER[0]: "1"}
    owners = EarlierOwners(group.owners._consumer, log)
    owners.recreated({LANE[0]: "2", OTHER[0]: "3", "reconsume.DELAY.9s": "4"})
    assert log._ids == {LANE[0]: "2", OTHER[0]: "1"}


def test_a_partition_of_a_new_topic_waits_for_its_end() -> None:
    group = Owners({LANE: (5, "")}, end=None)
    group.wrote(5)
    group.positions.ids[LANE[0]] = "2"
    assert group.ask() == ({}, {LANE})


def test_a_position_that_was_reset_leaves_the_committed_offset() -> None:
    group = Owners({LANE: (3, "")})
    group.wrote(5)
    group.positions.reset(LANE)
    assert group.ask() == ({LANE: EarlierProgress(3)}, set())
    group.told.clear()
    assert group.ask() == ({}, set())


@pytest.mark.parametrize("metadata", ["of another tool", "apart1:AQ=="], ids=["another tool", "formats 3 to 5"])
def test_malformed_metadata_is_taken_as_empty(metadata: str, caplog: pytest.LogCaptureFixture) -> None:
    group = Owners({LANE: (3, metadata)})
    assert group.ask() == ({LANE: EarlierProgress(3)}, set())
    assert "metadata ignored topic=reconsume.DELAY.1s partition=0" in caplog.text


def test_without_positions_the_committed_offset_is_believed() -> None:
    group = Owners({LANE: (3, "")})
    assert EarlierOwners(GroupConsumer({}, lambda _settings: cast("Any", group)), None).ask([LANE, OTHER]) == (
        {LANE: EarlierProgress(3)},
        set(),
    )
