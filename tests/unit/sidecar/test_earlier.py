from __future__ import annotations

import logging

import pytest

from reconsume.bridge.reading.recent_send_backs import Attempt, RecentSendBack
from reconsume.sidecar.repeats import EarlierSendBacks

WRITTEN = RecentSendBack(dead_letter=False, level=3, due_ms=1, born_ms=None, in_inbox=False)


def attempt(group: str, number: int) -> Attempt:
    return Attempt(group, f"flights/0/{number}", 1, (None, None))


def kept(earlier: EarlierSendBacks, group: str) -> list[int]:
    return [number for number in range(1_000) if earlier.get(attempt(group, number), 0) is not None]


def test_one_groups_flood_leaves_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    earlier = EarlierSendBacks(60_000, has_one_group=False, most=10, most_of_a_group=4)
    for number in range(1_000):
        earlier.add(attempt("flood", number), WRITTEN, 0)
    for number in range(3):
        earlier.add(attempt("small", number), WRITTEN, 0)
    assert (kept(earlier, "flood"), kept(earlier, "small")) == ([0, 1, 2, 3], [0, 1, 2]), "the first are the newest"
    earlier.log(5)
    assert (
        "996 send-backs of the last 5 minutes are not remembered: memory holds 4 of a group and 10 in all"
        in caplog.text
    )


def test_the_only_group_may_have_all_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    earlier = EarlierSendBacks(60_000, has_one_group=True, most=10, most_of_a_group=4)
    for number in range(10):
        earlier.add(attempt("only", number), WRITTEN, 0)
    with caplog.at_level(logging.WARNING):
        earlier.log(5)
    assert caplog.text == ""
    earlier.add(attempt("only", 10), WRITTEN, 0)
    assert kept(earlier, "only") == list(range(10))


def test_a_copy_on_a_delay_topic_tells_more_than_one_in_the_inbox() -> None:
    earlier = EarlierSendBacks(60_000, has_one_group=False)
    inbox = WRITTEN._replace(in_inbox=True)
    for one in (inbox, WRITTEN, inbox):
        earlier.add(attempt("g", 1), one, 0)
    assert earlier.get(attempt("g", 1), 0) == WRITTEN
    assert earlier.get(attempt("g", 1), 60_000) is None


def test_of_two_records_at_the_same_place_the_later_born_one_is_known() -> None:
    old, new = WRITTEN._replace(born_ms=1_000), WRITTEN._replace(born_ms=2_000)
    in_inbox = new._replace(in_inbox=True)
    for found, known in (
        ((new, old), new),
        ((old, new), new),
        ((in_inbox, old), in_inbox),
        ((old, in_inbox), in_inbox),
    ):
        earlier = EarlierSendBacks(60_000, has_one_group=False)
        for one in found:
            earlier.add(attempt("g", 1), one, 0)
        assert earlier.get(attempt("g", 1), 0) == known
