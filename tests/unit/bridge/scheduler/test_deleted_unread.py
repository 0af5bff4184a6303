"""Records that retention deletes before a worker has read them are told once; delivered ones may go."""

from __future__ import annotations

import logging

import pytest

from reconsume.bridge.scheduler.deleted_unread import DeletedUnread
from reconsume.bridge.scheduler.queues.backlog import PartitionHead

WHERE = ("reconsume.DELAY.2h", 3)


def head(read_to: int | None, start: int | None = None) -> PartitionHead:
    return PartitionHead(WHERE, 7_200_000, 0, 0, None, read_to, start=start)


def line_of(count: int, kind: str) -> str:
    topic = "reconsume.DELAY.2h"
    what = f"{topic}-3: up to {count:,} offsets were deleted before they were read{kind}"
    return f"{what}; raise retention.ms of topic {topic}"


Seen = tuple[PartitionHead, int, int]
"""The partition, its first kept offset, and its end."""


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        pytest.param([(head(5), 0, 20), (head(12), 9, 20), (head(15), 9, 20)], [4], id="reading went on behind them"),
        pytest.param([(head(5), 0, 20), (head(5), 9, 20), (head(5), 9, 20)], [4], id="reading is paused"),
        pytest.param([(head(5), 0, 20), (head(5), 9, 20), (head(5), 12, 20)], [4, 3], id="and more are deleted"),
        pytest.param([(head(5), 0, 20), (head(9), 5, 20)], [], id="those that were read are deleted"),
        pytest.param([(head(101, 100), 101, 101)], [], id="the end of a transaction behind the last delivered record"),
        pytest.param([(head(100, 100), 40, 120), (head(120, 100), 110, 120)], [10], id="since the start"),
        pytest.param([(head(200, 100), 0, 200), (head(200, 100), 150, 200)], [], id="delivered since the start"),
        pytest.param([(head(9), 9, 20)], [], id="the group is new"),
        pytest.param(
            [(head(100, 0), 0, 100), (head(None), 4_000, 5_000), (head(5_000, 4_000), 4_000, 5_000)],
            *([],),
            id="another worker had it meanwhile",
        ),
        pytest.param([(head(50, 10), 0, 50), (head(2, 0), 0, 2), (head(2, 0), 6, 8)], [4], id="the topic is another"),
    ],
)
def test_what_is_deleted_unread_is_told_once(looks: list[Seen], told: list[int]) -> None:
    watch = DeletedUnread()
    lines = [line for one, first, end in looks for line in watch.look([one], {WHERE: first}, {WHERE: end})]
    assert lines == [(logging.ERROR, line_of(count, "")) for count in told]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        pytest.param([(head(5_010, 100), 5_000, 6_000)], [4_900], id="all workers were away"),
        pytest.param([(head(None), 5_000, 6_000), (head(5_010, 100), 5_000, 6_000)], [4_900], id="not begun at first"),
        pytest.param([(head(5_000, 100), 5_000, 5_000)], [4_900], id="none is left"),
        pytest.param([(head(4, 2), 4, 4)] * 2, [2], id="ends of transactions behind the last record"),
        pytest.param([(head(4, 2), 3, 5)], [1], id="the end of a transaction, and a new record"),
        pytest.param([(head(5), 0, 5), (head(40, 30), 34, 50)], [4], id="another worker had it meanwhile"),
    ],
)
def test_offsets_of_before_the_start_may_be_ends_of_transactions(looks: list[Seen], told: list[int]) -> None:
    """Offsets alone do not tell."""
    watch = DeletedUnread()
    lines = [line for one, first, end in looks for line in watch.look([one], {WHERE: first}, {WHERE: end})]
    assert lines == [(logging.WARNING, line_of(count, ", records or ends of transactions")) for count in told]


def test_a_partition_without_a_leader_for_a_moment_is_known_again_afterwards() -> None:
    watch = DeletedUnread()
    looks = [watch.look([head(9_000, 100)], {WHERE: 50}, {WHERE: 9_000}), watch.look([], {}, {})]
    assert [*looks, watch.look([head(9_000, 100)], {WHERE: 8_000}, {WHERE: 9_000})] == [[], [], []]
