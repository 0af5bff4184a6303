"""A worker's place in its group: joined twice where it is kept over a kill, and what ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.scheduler.delivery.orphaned_transactions import FormerMembers, OrphanedTransactions
from reconsume.bridge.scheduler.membership.group_member import GroupMember, group_error
from reconsume.bridge.scheduler.service import FencedLives
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, WorkerFenced
from reconsume.delay_levels.wire.names import TopicNames

NAMES = TopicNames()
ONE = [TopicPartition(NAMES.delay(1_000), 0)]
EVERYTHING, DELAY_TOPICS = r"^reconsume\.(SEND_BACK|DELAY\..*|PARKED\..*)$", r"^reconsume\.DELAY\..*$"
FENCED = (
    "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id: Fatal consumer error: "
    "Broker: Static consumer fenced by other consumer with same group.instance.id"
)


class FakeConsumer:
    """Takes note of subscriptions; it is a member for so many polls after `unsubscribe`."""

    def __init__(self, polls: int = 0) -> None:
        self.patterns: list[str] = []
        self.callbacks: dict[str, Callable[[Any, list[TopicPartition]], None]] = {}
        self.polls = polls
        self.is_subscribed = False

    def subscribe(self, patterns: list[str], **callbacks: Any) -> None:
        self.patterns += patterns
        self.callbacks, self.is_subscribed = callbacks, True

    def unsubscribe(self) -> None:
        self.is_subscribed = False

    def memberid(self) -> str:
        return "me" if self.polls > 0 else ""

    def poll(self, _seconds: float) -> None:
        self.polls -= 1

    def rebalance(self, kind: str, partitions: list[TopicPartition]) -> None:
        self.callbacks[kind](self, partitions)


def member_of(consumer: FakeConsumer, *, is_static: bool) -> tuple[GroupMember, list[tuple[str, int]]]:
    """A member that has asked for partitions, and what it was told."""
    told: list[tuple[str, int]] = []
    member = GroupMember(
        GroupConsumer({}, lambda _settings: cast("Any", consumer)),
        NAMES,
        is_static=is_static,
        noticed=lambda came: told.append(("noticed", came)),
    )
    member.join(
        lambda given: told.append(("given", len(given))),
        lambda taken: told.append(("taken", len(taken))),
    )
    return member, told


def test_a_static_member_joins_again_with_the_inbox_once_it_has_its_partitions() -> None:
    consumer = FakeConsumer()
    _, told = member_of(consumer, is_static=True)
    assert consumer.patterns == [DELAY_TOPICS]
    for _ in range(3):
        consumer.rebalance("on_assign", ONE)
    assert consumer.patterns == [DELAY_TOPICS, EVERYTHING]
    assert told == [("noticed", True), ("given", 1)] * 3


def test_any_other_member_joins_once() -> None:
    consumer = FakeConsumer()
    _, told = member_of(consumer, is_static=False)
    consumer.rebalance("on_assign", [])
    assert consumer.patterns == [EVERYTHING]
    assert told == [("noticed", False), ("given", 0)]


def test_only_partitions_that_are_lost_say_that_the_group_took_it_for_dead() -> None:
    consumer = FakeConsumer()
    member, told = member_of(consumer, is_static=True)
    consumer.rebalance("on_revoke", ONE)
    assert not member.was_shut_out
    consumer.rebalance("on_lost", ONE)
    assert member.was_shut_out
    assert told == [("taken", 1), ("taken", 1)]


def test_leaving_waits_until_the_group_is_left() -> None:
    consumer = FakeConsumer(polls=3)
    GroupConsumer({}, lambda _settings: cast("Any", consumer)).leave()
    assert not consumer.is_subscribed
    assert consumer.polls == 0


def test_what_ends_a_membership() -> None:
    assert isinstance(group_error(KafkaError(KafkaError._FATAL, FENCED)), WorkerFenced)
    assert isinstance(group_error(KafkaError(KafkaError._FATAL, "something else")), KafkaNotReachable)
    refused = group_error(KafkaError(KafkaError.INVALID_SESSION_TIMEOUT))
    assert isinstance(refused, KafkaRefused)
    assert "scheduler.session_timeout_ms" in str(refused)
    assert group_error(KafkaError(KafkaError.NOT_COORDINATOR)) is None


def test_former_members_are_those_that_were_seen_and_are_gone() -> None:
    former = FormerMembers()
    former.look({"a", "b"}, 0)
    assert former.take(0) == []
    former.look({"b"}, 1_000)
    former.look({"b"}, 2_000)
    assert former.take(2_000) == ["a"]
    assert former.take(2_000) == []


def test_a_member_that_is_back_or_gone_for_long_is_no_former_one() -> None:
    former = FormerMembers()
    former.look({"a", "b", "c"}, 0)
    former.look({"c"}, 1_000)
    former.look({"a", "c"}, 2_000)
    assert former.take(2_000) == ["b"]
    former.look({"a"}, 3_000)
    former.look({"a"}, 63_000)
    assert former.take(63_000) == []


def test_transactions_are_ended_by_whoever_gets_partitions_and_one_failure_leaves_the_others() -> None:
    answers: list[set[str] | Exception] = [{"a", "b"}, KafkaNotReachable("away"), set(), set()]
    ended: list[str] = []

    def members() -> set[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(name: str) -> None:
        ended.append(name)
        raise KafkaRefused("no right")

    now = 0.0
    orphans = OrphanedTransactions(members, end, clock=lambda: now)
    orphans.look(has_new_partitions=True)
    orphans.look(has_new_partitions=True)
    orphans.look(has_new_partitions=False)
    assert ended == []
    now = 1_000.0
    assert not orphans.look(has_new_partitions=True)
    assert ended == ["a", "b"]


def test_the_end_of_a_worker_does_not_wait_for_all_the_others() -> None:
    """While the coordinator is away, each of them takes seconds."""
    answers, ended, now = [{"a", "b", "c"}, set[str](), set[str]()], list[str](), 0.0

    def end(name: str) -> None:
        ended.append(name)
        orphans.close()

    orphans = OrphanedTransactions(lambda: answers.pop(0), end, clock=lambda: now)
    orphans.look(has_new_partitions=False)
    orphans.look(has_new_partitions=False)
    now = 1_000.0
    orphans.look(has_new_partitions=True)
    assert ended == ["a"]


def test_an_error_that_nobody_expects_ends_no_watch_over_the_members() -> None:
    asked = threading.Semaphore(0)

    def members() -> set[str]:
        asked.release()
        raise ValueError("a name that is none")

    orphans = OrphanedTransactions(members, lambda _name: None)
    orphans.start()
    assert asked.acquire(timeout=30)
    orphans.noticed(has_new_partitions=False)
    assert asked.acquire(timeout=30)
    orphans.close()


def test_members_that_all_went_and_come_back_one_by_one_do_not_end_each_others_transactions() -> None:
    answers, ended, now = [{"a", "b"}, set[str](), {"a"}, {"a", "b"}], list[str](), 0.0
    orphans = OrphanedTransactions(lambda: answers.pop(0), ended.append, clock=lambda: now)
    orphans.look(has_new_partitions=False)
    assert orphans.look(has_new_partitions=True), "it is looked again"
    now = 500.0
    assert orphans.look(has_new_partitions=True)
    now = 1_500.0
    assert not orphans.look(has_new_partitions=True)
    assert ended == []


@pytest.mark.parametrize(("error", "again"), [(KafkaNotReachable("loading"), True), (KafkaRefused("no right"), False)])
def test_members_that_nobody_tells_are_asked_for_again(error: ReconsumeError, *, again: bool) -> None:
    def members() -> set[str]:
        raise error

    orphans = OrphanedTransactions(members, lambda _name: None)
    assert orphans.look(has_new_partitions=True) is again
    assert not orphans.look(has_new_partitions=False)


@pytest.mark.parametrize("was_shut_out", [False, True])
def test_only_a_worker_that_the_group_has_not_shut_out_suspects_another_one(*, was_shut_out: bool) -> None:
    lives, fenced = FencedLives(), WorkerFenced("fenced")
    assert not any(lives.is_too_much(fenced, 1_000, was_shut_out=was_shut_out) for _ in range(2))
    assert lives.is_too_much(fenced, 1_000, was_shut_out=was_shut_out) is not was_shut_out
