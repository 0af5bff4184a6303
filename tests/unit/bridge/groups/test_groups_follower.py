"""A GROUPS topic that is read anew, on a reader that gives what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Message

from reconsume.bridge.groups import groups_follower
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused
from reconsume.delay_levels.wire.names import TopicNames

TOPIC = TopicNames().groups
PAUSED = b'{"retryPaused":true}'

Step = tuple[dict[bytes, bytes | None], bool]
"""Records, and whether the end has come after them."""


class Reads:
    """Reads of one beginning, in turn; then the follower is stopped, or the topic went back."""

    def __init__(self, follower: GroupsFollower, *steps: Step, goes_back: bool = False) -> None:
        self._follower, self._steps, self._goes_back = follower, list(steps), goes_back
        self.unread, self.went_back = {(TOPIC, 0)}, False
        self.seen: list[set[str]] = []

    def follow(self, starts: Mapping[Any, Any]) -> None:
        assert list(starts) == [(TOPIC, 0)]

    def read(self, _seconds: float) -> Iterator[Message]:
        self.seen.append(set(self._follower.groups.by_name))
        if not self._steps:
            self.went_back = self._goes_back
            self._follower._stop.set()
            return
        records, at_end = self._steps.pop(0)
        yield from (Message(topic=TOPIC, partition=0, key=key, value=value) for key, value in records.items())
        if at_end:
            self.unread.clear()

    def close(self) -> None: ...


@pytest.fixture
def follower() -> GroupsFollower:
    return GroupsFollower({}, TOPIC, Groups())


def follow(follower: GroupsFollower, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    admin = type("Admin", (), {"partitions": lambda _self, topics: dict.fromkeys(topics, 1)})()
    monkeypatch.setattr(groups_follower, "TailReader", lambda *_: reads)
    follower._stop.clear()
    follower._follow(cast("Any", admin))
    return reads.seen


def test_a_topic_with_more_partitions_is_read_anew(follower: GroupsFollower, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, reads = [1, 1, 2], Reads(follower, *[({}, True)] * 9)
    admin = type("Admin", (), {"partitions": lambda *_: {TOPIC: counts.pop(0)}})()
    monkeypatch.setattr(groups_follower, "TailReader", lambda *_: reads)
    follower._count_seconds = 0
    follower._follow(cast("Any", admin))
    assert (counts, len(reads.seen)) == ([], 1)


def test_the_first_time_what_was_read_holds_at_once(follower: GroupsFollower, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = follow(follower, Reads(follower, ({b"a": PAUSED}, False), ({b"b": b"{}"}, True)), monkeypatch)
    assert seen == [set(), {"a"}, {"a", "b"}]


def test_a_topic_that_is_read_anew_replaces_what_was_known_when_its_end_has_come(
    follower: GroupsFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(follower, Reads(follower, ({b"gone": PAUSED, b"stays": b"{}"}, True)), monkeypatch)
    seen = follow(follower, Reads(follower, ({b"stays": b"{}"}, False), ({b"new": b"{}"}, True)), monkeypatch)
    assert seen == [{"gone", "stays"}, {"gone", "stays"}, {"stays", "new"}]
    assert not follower.groups.is_paused("gone")


def test_a_topic_that_was_made_again_is_read_anew_and_one_that_is_missing_changes_nothing(
    follower: GroupsFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KafkaNotReachable, match="made again"):
        follow(follower, Reads(follower, ({b"a": PAUSED}, True), goes_back=True), monkeypatch)
    follower._follow(cast("Any", type("Admin", (), {"partitions": lambda *_: {}})()))
    assert follower.groups.is_paused("a")


class Forgetting(GroupsFollower):
    """Its thread forgets a refusal as soon as another thread has looked whether there is one."""

    seen = False

    @property
    def _refusal(self) -> KafkaRefused | None:
        if self.seen:
            return None
        self.seen = True
        return KafkaRefused("no right")

    @_refusal.setter
    def _refusal(self, _error: KafkaRefused | None) -> None: ...


def test_a_refusal_that_is_over_while_it_is_raised_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_follower, "_POLL_SECONDS", 0)
    with pytest.raises(KafkaRefused, match="no right"):
        Forgetting({"bootstrap.servers": "127.0.0.1:9"}, "groups", Groups()).wait_until_loaded(threading.Event())


def test_who_waits_for_groups_without_an_error_is_told_what_is_waited_for(
    follower: GroupsFollower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(groups_follower, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(groups_follower, "_WARN_SECONDS", 0.01)
    assert not follower.wait_until_loaded(threading.Event(), 0.1)
    assert f"topic {TOPIC} was not read within 0 s; check that it has a leader" in caplog.messages
