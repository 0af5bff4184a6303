"""A consumer that is not a member of its group, and becomes none, is told from one that waits for a rebalance."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconsume.bridge.librdkafka.membership import Membership, MembershipLost

UP, SEEKING = ("up", "steady"), ("wait-coord", "init")
JOINING = ("up", "wait-join")


@dataclass
class Bench:
    """A consumer whose librdkafka tells how it is every 10 s."""

    conf: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.membership = Membership(self.conf, patience_ms=120_000, clock=lambda: self.now)

    def lives(self, seconds: float, state: tuple[str, str]) -> None:
        for _ in range(int(seconds / 10)):
            self.now += 10_000
            brokers = {"one": {"source": "learned", "state": "UP"}}
            self.hears({"cgrp": {"state": state[0], "join_state": state[1]}, "brokers": brokers})

    def hears(self, statistics: dict[str, Any]) -> None:
        self.membership.settings["stats_cb"](json.dumps(statistics))

    def is_lost(self, *, has_partitions: bool = False) -> bool:
        try:
            self.membership.check(has_partitions=has_partitions)
        except MembershipLost:
            return True
        return False


@pytest.mark.parametrize(
    ("lived", "lost"),
    [
        ([(600, UP)], False),
        ([(600, UP), (110, SEEKING)], False),
        ([(600, UP), (120, SEEKING)], True),
        ([(120, SEEKING)], True),
        ([(600, UP), (120, SEEKING), (10, JOINING)], False),
        ([(600, UP), (410, JOINING)], False),
        ([(600, UP), (420, JOINING)], True),
        ([(600, UP), (420, JOINING), (10, UP)], False),
        ([(110, SEEKING), (10, JOINING), (110, SEEKING)], False),
    ],
)
def test_it_is_lost_without_a_coordinator_or_after_the_longest_rebalance(
    lived: list[tuple[float, tuple[str, str]]], *, lost: bool
) -> None:
    bench = Bench()
    for seconds, state in lived:
        bench.lives(seconds, state)
    assert bench.is_lost() == lost


def test_a_rebalance_is_given_as_long_as_a_member_may_take() -> None:
    bench = Bench({"max.poll.interval.ms": 5_000})
    bench.lives(130, JOINING)
    assert bench.is_lost()


def test_while_nothing_is_heard_nothing_is_known() -> None:
    bench = Bench()
    bench.now = 10_000_000
    assert not bench.is_lost()


def test_why_it_is_lost_is_said() -> None:
    bench = Bench()
    bench.lives(130, SEEKING)
    with pytest.raises(MembershipLost, match=r"coordinator has not been found for 130 s \(wait-coord\)"):
        bench.membership.check(has_partitions=False)


def test_one_that_has_partitions_is_a_member() -> None:
    bench = Bench()
    bench.lives(500, SEEKING)
    assert bench.is_lost()
    assert not bench.is_lost(has_partitions=True)


def test_one_that_librdkafka_has_left_alone_is_lost_though_it_has_partitions() -> None:
    bench = Bench()
    for _ in range(2):
        bench.now += 10_000
        bench.hears({"cgrp": {"state": UP[0], "join_state": UP[1]}, "brokers": {}})
    assert bench.is_lost(has_partitions=True)


def test_the_users_own_statistics_go_on() -> None:
    told: list[str] = []
    bench = Bench({"stats_cb": told.append, "statistics.interval.ms": 1_000, "group.id": "g"})
    bench.hears({"cgrp": {"state": "up", "join_state": "steady"}, "name": "one"})
    assert json.loads(told[0])["name"] == "one"
    assert bench.membership.settings["statistics.interval.ms"] == 1_000
    assert bench.membership.settings["group.id"] == "g"
    assert Bench().membership.settings["statistics.interval.ms"] == 10_000


@pytest.mark.parametrize("name", ["statistics.interval.ms", "max.poll.interval.ms"])
def test_what_is_no_number_is_left_to_librdkafka_to_refuse(name: str) -> None:
    assert Membership({name: "often"}).settings[name] == "often"
