"""Where a due record goes, and what is asked of Kafka to know it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from reconsume.bridge.scheduler.targets import Targets, Undeliverable
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused
from reconsume.delay_levels.names import TopicNames

NAMES = TopicNames("reconsume.")
GROUPS = [f"g{number}" for number in range(200)]
HEADERS = [f"%RETRY%{group}".encode() for group in GROUPS]


class FakeAdmin:
    """Knows every topic; `refuses` says which one it may not look at."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.refuses = ""
        self.is_away = False

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        wanted = list(topics)
        self.asked.append(len(wanted))
        if self.is_away:
            raise KafkaNotReachable("away")
        if self.refuses in wanted:
            raise KafkaRefused(f"no right to see {self.refuses}")
        return dict.fromkeys(wanted, 1)


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def targets(admin: FakeAdmin) -> Targets:
    found = Targets(NAMES, (), cast("Any", admin), cast("Any", None), cast("Any", None))
    for header in HEADERS:
        found.find(header)
    admin.asked.clear()
    return found


def test_what_is_known_is_not_asked_for(targets: Targets, admin: FakeAdmin) -> None:
    assert [targets.find(header).group for header in HEADERS] == GROUPS
    assert admin.asked == []


def test_what_was_forgotten_is_asked_for_in_one_question(targets: Targets, admin: FakeAdmin) -> None:
    targets.forget()
    assert [targets.find(header).group for header in HEADERS] == GROUPS
    assert admin.asked == [200]
    targets.find(b"%RETRY%new")
    assert admin.asked == [200, 1]


def test_one_that_may_not_be_looked_at_does_not_stand_for_the_others(targets: Targets, admin: FakeAdmin) -> None:
    admin.refuses = NAMES.retry("g7")
    targets.forget()
    assert targets.find(b"%RETRY%g1").topic == NAMES.retry("g1")
    with pytest.raises(Undeliverable, match="no right"):
        targets.find(b"%RETRY%g7")
    assert targets.find(b"%RETRY%g8").topic == NAMES.retry("g8")


def test_while_nobody_answers_nothing_is_undeliverable(targets: Targets, admin: FakeAdmin) -> None:
    admin.is_away = True
    targets.forget()
    for header in HEADERS[:3]:
        with pytest.raises(KafkaNotReachable):
            targets.find(header)
    admin.is_away = False
    assert targets.find(HEADERS[0]).group == "g0"
