"""Whether a topic exists: what is asked of Kafka to know it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest

from reconsume.bridge.topics.existing_topics import ExistingTopics
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, TopicNotReady


class FakeAdmin:
    """Knows no topic, or raises."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.error: ReconsumeError | None = None
        self.found: dict[str, int] = {}

    def partitions(self, _topics: Iterable[str]) -> dict[str, int]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def existing(admin: FakeAdmin) -> ExistingTopics:
    return ExistingTopics(cast("Any", admin), "make it", lambda: admin.now)


@pytest.mark.parametrize("error", [None, KafkaRefused("no right to see it")])
def test_a_topic_that_is_missing_or_hidden_is_asked_for_every_5_s(
    admin: FakeAdmin, existing: ExistingTopics, error: ReconsumeError | None
) -> None:
    admin.error = error
    for _ in range(1_000):
        with pytest.raises(TopicNotReady if error is None else KafkaRefused):
            existing.require("orders")
    assert admin.asked == 1
    admin.error, admin.found, admin.now = None, {"orders": 1}, 5.0
    existing.require("orders")
    assert existing.known("orders") == 1


def test_without_an_answer_nothing_is_known(admin: FakeAdmin, existing: ExistingTopics) -> None:
    admin.error = KafkaNotReachable("away")
    for _ in range(2):
        with pytest.raises(KafkaNotReachable):
            existing.require("orders")
    assert admin.asked == 2


def test_what_is_to_be_forgotten_is_asked_for_at_once(admin: FakeAdmin, existing: ExistingTopics) -> None:
    with pytest.raises(TopicNotReady, match="topic orders does not exist; make it"):
        existing.require("orders")
    existing.forget("orders")
    admin.found = {"orders": 1}
    existing.require("orders")


def test_what_is_remembered_is_bounded(
    admin: FakeAdmin, existing: ExistingTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconsume.bridge.topics.existing_topics._MOST_FAILED", 100)
    for number in range(500):
        with pytest.raises(TopicNotReady):
            existing.require(f"orders-{number}")
    assert len(existing._failed) == 100
    admin.now = 5.0
    with pytest.raises(TopicNotReady):
        existing.require("orders")
    assert len(existing._failed) == 1


class Raced(dict[Any, Any]):
    """Another thread forgets a topic as soon as this one has looked whether it is known."""

    def __contains__(self, key: object) -> bool:
        was_known = super().__contains__(key)
        self.pop(key, None)
        return was_known


def test_a_topic_that_another_thread_forgets_meanwhile_is_unknown(admin: FakeAdmin, existing: ExistingTopics) -> None:
    admin.found = {"orders": 4}
    existing.require("orders")
    existing._known = Raced(existing._known)
    assert existing.known("orders") in (4, None)


def test_failures_are_forgotten_while_other_threads_forget_some(
    admin: FakeAdmin, existing: ExistingTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconsume.bridge.topics.existing_topics._MOST_FAILED", 200)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def fail(thread: int) -> None:
        for number in range(2_000):
            with suppress(TopicNotReady):
                existing.require(f"{thread}-{number}")
            admin.now += 0.01
            existing.forget(f"{thread}-{number - 100}")

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fail, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(existing._failed) <= 200


def test_partitions_that_were_added_are_known_within_a_minute(admin: FakeAdmin, existing: ExistingTopics) -> None:
    admin.found = {"orders": 4}
    assert existing.require("orders") == 4
    admin.found, admin.now = {"orders": 6}, 59.0
    existing.look_again()
    assert (existing.known("orders"), admin.asked) == (4, 1)
    admin.now = 60.0
    existing.look_again()
    assert (existing.known("orders"), admin.asked) == (6, 2)


def test_a_topic_that_was_there_is_used_while_nobody_answers_and_forgotten_when_it_is_gone(
    admin: FakeAdmin, existing: ExistingTopics
) -> None:
    admin.found = {"orders": 4}
    existing.require("orders")
    admin.error, admin.now = KafkaNotReachable("away"), 60.0
    assert existing.require("orders") == 4
    admin.error, admin.found, admin.now = None, {}, 120.0
    existing.look_again()
    assert existing.known("orders") is None
