"""What counts as waiting, and who is refused."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from reconsume.bridge.groups.groups import Groups, parse_group_config
from reconsume.bridge.kafka import clients
from reconsume.bridge.writing.waiting_limit import NotDue, WaitingLimit
from reconsume.delay_levels.errors import GroupIsFull, SendBackFailed
from reconsume.delay_levels.rules.send_back import DeadLetter, Delayed
from reconsume.delay_levels.wire.names import MAX_TOPIC_LENGTH, TopicNames
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackCopy, SendBackRequest, Stored

NAMES = TopicNames()
FIRST = SendBackRequest("departures", [], Stored.first_copy(Position("flights", 3, 42), 0))
COPY = SendBackCopy(NAMES.delay(10_000), [], Delayed(3, 10_000, 1))


def test_what_is_due_waits_no_more() -> None:
    waits = NotDue()
    for due_ms in (9_500, 2_500, 2_700, 60_000):
        waits.add(due_ms)
    assert [waits.count(now_ms) for now_ms in (0, 2_999, 3_000, 10_000, 60_999, 61_000)] == [4, 4, 2, 1, 1, 0]
    waits.add(62_000)
    assert waits.count(61_000) == 1


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> WaitingLimit:
    config = parse_group_config("departures", {"maxWaiting": 2})
    limit = WaitingLimit({}, NAMES, lambda: Groups(by_name={"departures": config}), "test")
    monkeypatch.setattr(limit, "_ask", lambda: None)
    monkeypatch.setattr(limit, "_clock", lambda: 0)
    return limit


def test_a_member_that_sees_only_retries_forgets_what_is_due(
    limit: WaitingLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second in range(100):
        monkeypatch.setattr(limit, "_clock", lambda now_ms=second * 1_000: now_ms)
        limit.sent("departures", COPY.topic)
    assert len(limit._own["departures"]._seconds) <= 11


def test_first_failures_alone_are_refused(limit: WaitingLimit) -> None:
    limit.check(FIRST, COPY)
    for _ in range(2):
        limit.check(FIRST, COPY)
        limit.sent("departures", COPY.topic)
    with pytest.raises(GroupIsFull, match="2 messages wait for a retry, and the limit is 2"):
        limit.check(FIRST, COPY)
    assert limit.share("departures") == 1
    limit.check(FIRST._replace(stored=FIRST.stored._replace(reconsume_times=1)), COPY)
    limit.check(FIRST, SendBackCopy(NAMES.delay(0), [], DeadLetter("exhausted", 1)))


def test_what_is_on_its_way_counts_until_it_has_ended(limit: WaitingLimit) -> None:
    ended: list[SendBackFailed | None] = []
    first, _ = (limit.admit(FIRST, COPY, ended.append) for _ in range(2))
    with pytest.raises(GroupIsFull):
        limit.admit(FIRST, COPY, ended.append)
    first(None)
    assert ended == [None]
    limit.check(FIRST, COPY)
    with pytest.raises(GroupIsFull):
        limit.check(FIRST, COPY, beside=1)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_a_machine_whose_clock_is_wrong_counts_what_waits(monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    right, steady = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: right() + ahead_ms / 1_000)
    monkeypatch.setattr(clients.Clients, "steady_clock", property(lambda _self: lambda: steady[0]))
    config = parse_group_config("departures", {"maxWaiting": 2})
    one = WaitingLimit({}, NAMES, lambda: Groups(by_name={"departures": config}), "test")
    monkeypatch.setattr(one, "_ask", lambda: None)
    one.sent("departures", COPY.topic)
    assert one.waiting("departures") == 1
    steady[0] = 11_000
    assert one.waiting("departures") == 0


def test_an_error_that_nobody_expects_ends_no_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.bridge.writing.waiting_limit._ASK_EVERY_SECONDS", 0)
    config, asked = parse_group_config("departures", {"maxWaiting": 2}), list[str]()
    one = WaitingLimit({"bootstrap.servers": "127.0.0.1:9"}, NAMES, lambda: Groups(by_name={"departures": config}), "t")

    def count(_admin: object, group: str) -> int:
        asked.append(group)
        if len(asked) == 3:
            one.close()
        raise ValueError("a number that is none")

    monkeypatch.setattr(one, "_count", count)
    one._told["departures"] = 0
    one._ask()
    assert asked == ["departures"] * 3


@pytest.mark.parametrize(("commits", "waiting"), [({0: 5, 1: 7}, 0), ({0: 5, 1: 4}, 3), ({0: 5}, 7), ({}, 12)])
def test_the_end_of_the_last_transaction_is_no_waiting_message(
    limit: WaitingLimit, commits: dict[int, int], waiting: int
) -> None:
    class Admin:
        """A retry topic of two partitions; behind the last record of each stands the end of its transaction."""

        def partitions(self, topics: list[str]) -> dict[str, int]:
            return {one: 2 for one in topics if "RETRY" in one}

        def committed(self, _group: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
            return {where: commits[where[1]] for where in partitions if where[1] in commits}

        def end_offsets(
            self, partitions: list[tuple[str, int]], *, earliest: bool = False
        ) -> dict[tuple[str, int], int]:
            return {where: 0 if earliest else (6, 8)[where[1]] for where in partitions}

    assert limit._count(cast("Any", Admin()), "departures") == waiting


def test_a_group_without_a_limit_is_not_counted(limit: WaitingLimit) -> None:
    limit.sent("arrivals", COPY.topic)
    limit.check(FIRST._replace(group="arrivals"), COPY)
    assert limit.share("arrivals") == 0
    assert limit._thread is None


def test_a_group_whose_name_is_too_long_for_a_parked_topic_is_counted(
    limit: WaitingLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "g" * (MAX_TOPIC_LENGTH - len(NAMES.prefix + "RETRY."))
    monkeypatch.setattr("reconsume.bridge.writing.waiting_limit._unread", lambda *_: 7)
    assert limit._count(cast("Any", None), group) == 7
    assert limit._count(cast("Any", None), group[1:]) == 14
