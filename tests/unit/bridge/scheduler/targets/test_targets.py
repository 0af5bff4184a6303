"""Where a due record goes, and what is asked of Kafka to know it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import WantedTopic
from reconsume.bridge.scheduler.targets.deletions import DeletedTopics
from reconsume.bridge.scheduler.targets.look_ups import LookUps, LookUpsSpent
from reconsume.bridge.scheduler.targets.targets import ListedTopics, Targets, Undeliverable
from reconsume.bridge.topics.topics import NamedTopic
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from reconsume.delay_levels.rules.lane_budgets import BURST
from reconsume.delay_levels.wire.names import TopicNames

NAMES = TopicNames("reconsume.")
GROUPS = [f"g{number}" for number in range(200)]
HEADERS = [f"%RETRY%{group}".encode() for group in GROUPS]


class FakeAdmin:
    """Knows every topic but those that are missing; also makes them, as a `TopicMaker`.

    Attributes:
        now: milliseconds; each answer takes `takes_ms`.
        asked: how many topics each question was about.
        made: topics that were to be made.
        refuses: a topic that it may not look at.
        missing: what topics that do not exist begin with.
        cannot_make: the answer to whoever makes one.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.takes_ms = 0.0
        self.asked: list[int] = []
        self.made: list[str] = []
        self.refuses = ""
        self.missing: tuple[str, ...] = ()
        self.cannot_make: ReconsumeError | None = None
        self.is_away = False

    def partitions(self, topics: Iterable[str], refused: dict[str, ReconsumeError] | None = None) -> dict[str, int]:
        wanted = list(topics)
        self.asked.append(len(wanted))
        self.now += self.takes_ms
        if self.is_away:
            raise KafkaNotReachable("away")
        if self.refuses in wanted:
            error = KafkaRefused(f"no right to see {self.refuses}")
            if refused is None:
                raise error
            refused[self.refuses] = error
        return {one: 1 for one in wanted if one != self.refuses and not one.startswith(self.missing)}

    def make_for_groups(self, named: Sequence[NamedTopic], _groups: Groups) -> dict[str, int | ReconsumeError]:
        topics = [one.topic for one in named]
        self.made += topics
        self.now += self.takes_ms
        if isinstance(self.cannot_make, KafkaNotReachable):
            raise self.cannot_make
        return dict.fromkeys(topics, self.cannot_make or 1)

    def targets(self, *allowed: str, listed: ListedTopics | None = None) -> Targets:
        me: Any = self
        return Targets(
            *(NAMES, allowed, me, me, Groups, DeletedTopics(lambda: self.now)),
            look_ups=LookUps(lambda: self.now),
            listed=listed or ListedTopics(),
        )


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def targets(admin: FakeAdmin) -> Targets:
    found = admin.targets()
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
    assert admin.asked == [200], "nor is each of the others looked up alone"


def test_while_nobody_answers_nothing_is_undeliverable(targets: Targets, admin: FakeAdmin) -> None:
    admin.is_away = True
    targets.forget()
    for header in HEADERS[:3]:
        with pytest.raises(KafkaNotReachable):
            targets.find(header)
    admin.is_away = False
    admin.now += 1_000
    assert targets.find(HEADERS[0]).group == "g0"


def test_a_topic_that_cannot_be_made_is_tried_again_after_5_s(admin: FakeAdmin) -> None:
    admin.missing, admin.cannot_make = (NAMES.retry("bad"),), KafkaRefused("no right to make it")
    targets = admin.targets()
    for _ in range(5_000):
        with pytest.raises(Undeliverable, match="no right to make it"):
            targets.find(b"%RETRY%bad")
    assert (len(admin.asked), len(admin.made)) == (1, 1)
    targets.forget()
    admin.now += 4_999
    with pytest.raises(Undeliverable, match="no right to make it"):
        targets.find(b"%RETRY%bad")
    assert len(admin.made) == 1, "an aborted batch is no reason to try again"
    admin.cannot_make, admin.now = None, admin.now + 1
    assert targets.find(b"%RETRY%bad").group == "bad"


def test_unknown_targets_of_a_batch_are_looked_up_and_made_together(admin: FakeAdmin) -> None:
    admin.missing = (NAMES.retry("g1"), NAMES.dead_letter("g1"), "nobody-has-it")
    targets = admin.targets("nobody.*", "orders")
    names = [*HEADERS, b"%DLQ%g11", b"nobody-has-it", b"orders", b"not allowed", b"\xff", None]
    targets.expect(lambda: [name for name in names for _ in range(25)])
    for header in HEADERS:
        assert targets.find(header).partitions == 1
    assert targets.find(b"%DLQ%g11").kind == "dlq"
    assert targets.find(b"orders").kind == "topic"
    assert (len(admin.asked), admin.asked[0]) == (1, 203)
    assert sorted(admin.made) == sorted(
        {NAMES.dead_letter("g11"), *(NAMES.retry(group) for group in GROUPS if group.startswith("g1"))}
    )
    with pytest.raises(Undeliverable, match="nobody-has-it does not exist"):
        targets.find(b"nobody-has-it")


def test_of_those_that_cannot_be_made_each_is_refused_for_itself(admin: FakeAdmin) -> None:
    admin.missing, admin.cannot_make = (NAMES.retry("g"),), KafkaRefused("no right to make it")
    targets = admin.targets()
    targets.expect(lambda: HEADERS)
    for header in HEADERS:
        with pytest.raises(Undeliverable, match="no right to make it"):
            targets.find(header)
    assert (len(admin.asked), len(admin.made)) == (1, 200)


def test_a_topic_of_the_user_is_seen_5_s_after_it_was_made(admin: FakeAdmin) -> None:
    admin.missing = ("orders",)
    targets = admin.targets("orders")
    for _ in range(1_000):
        with pytest.raises(Undeliverable, match="topic orders does not exist"):
            targets.find(b"orders")
    assert admin.asked == [1]
    admin.missing, admin.now = (), admin.now + 5_000
    assert targets.find(b"orders").kind == "topic"


def test_a_question_without_an_answer_is_asked_once_and_followed_by_a_pause(admin: FakeAdmin) -> None:
    admin.missing, admin.cannot_make = (NAMES.retry("bad"),), KafkaNotReachable("a broker is fenced")
    targets = admin.targets()
    assert targets.find(b"%RETRY%known").group == "known"
    admin.takes_ms = 1_000
    for _ in range(100):
        with pytest.raises(KafkaNotReachable, match="fenced"):
            targets.find(b"%RETRY%bad")
        assert targets.find(b"%RETRY%known").group == "known"
        with pytest.raises(LookUpsSpent):
            targets.find(b"%RETRY%other")
    assert admin.now == 2_000, "one look-up, of two questions"
    admin.takes_ms = 0
    admin.now += 1_499
    with pytest.raises(LookUpsSpent):
        targets.find(b"%RETRY%other")
    admin.now += 2
    assert targets.find(b"%RETRY%other").group == "other"


def test_look_ups_of_one_batch_take_half_a_second_and_half_of_the_time(admin: FakeAdmin) -> None:
    """Any number of names that cannot be: 8 ms for each question."""
    admin.missing, admin.cannot_make, admin.takes_ms = ("reconsume.RETRY.",), KafkaRefused("no"), 8.0
    targets, number = admin.targets(), 0

    def look_up_while_there_is_time() -> None:
        nonlocal number
        while True:
            try:
                targets.find(f"%RETRY%{number}".encode())
            except Undeliverable:
                number += 1
            except LookUpsSpent:
                return

    for turn in range(40):
        began = admin.now
        look_up_while_there_is_time()
        assert admin.now - began <= 500 + 16, turn
        admin.now += 50
    assert number == len(admin.made) > 100
    assert 16 * number <= 500 + 16 + 40 * 50


def test_what_is_remembered_is_bounded(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.bridge.scheduler.targets.targets._MOST_KNOWN", 200)
    monkeypatch.setattr("reconsume.bridge.scheduler.targets.look_ups._MOST_FAILURES", 100)
    admin.missing, admin.cannot_make = (NAMES.retry("bad"),), KafkaRefused("no")
    targets = admin.targets()
    for number in range(250):
        assert targets.find(f"%RETRY%g{number}".encode()).partitions == 1
        with pytest.raises(Undeliverable):
            targets.find(f"%RETRY%bad{number}".encode())
    assert len(targets._known) == 200
    assert len(targets.look_ups._failures) == 100


def test_what_is_listed_needs_no_question_and_tells_of_added_partitions(admin: FakeAdmin) -> None:
    listed = ListedTopics({NAMES.retry("g"): 1, NAMES.retry("other"): 3})
    targets = admin.targets(listed=listed)
    assert targets.find(b"%RETRY%g").partitions == 1
    listed.topics = {NAMES.retry("g"): 4}
    assert targets.find(b"%RETRY%g").partitions == 4
    listed.topics = {}
    assert targets.find(b"%RETRY%g").partitions == 4, "a write tells whether it is gone"
    assert admin.asked == []


def test_partitions_that_are_added_to_a_lane_are_used_by_a_worker_that_only_takes_in(admin: FakeAdmin) -> None:
    lane = NAMES.delay(10_000)
    listed = ListedTopics({lane: 4})
    targets = admin.targets(listed=listed)
    flood = [targets.lane_partition(lane, "orders", b"key") for _ in range(2 * BURST)]
    assert set(flood) == {ANY_PARTITION}, "there are no bulk partitions yet"
    listed.topics = {lane: 6}
    flood = [targets.lane_partition(lane, "orders", b"key") for _ in range(2 * BURST)]
    assert flood[-1] in (4, 5)
    assert admin.asked == []


def test_after_an_aborted_batch_an_old_list_tells_nothing(admin: FakeAdmin) -> None:
    listed = ListedTopics({NAMES.retry("g"): 1})
    targets = admin.targets(listed=listed)
    targets.find(b"%RETRY%g")
    targets.forget()
    admin.missing = (NAMES.retry("g"),)
    with pytest.raises(KafkaNotReachable, match="was deleted; it is created again in 20 s"):
        targets.find(b"%RETRY%g")
    assert admin.asked == [1]
    listed.topics = {NAMES.retry("g"): 2}
    assert targets.find(b"%RETRY%g").partitions == 2


def test_a_lane_that_cannot_be_made_is_tried_again_after_5_s(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, tries = NAMES.delay(7_000), list[str]()

    def make(wanted: Any) -> bool:
        tries.append(wanted.name)
        raise KafkaRefused("no right to make it")

    targets = admin.targets()
    monkeypatch.setattr(
        targets, "maker", SimpleNamespace(make=make, delay_topic=lambda _ms: WantedTopic(lane, 1, 1, {}))
    )
    admin.missing = (lane,)
    for _ in range(1_000):
        with pytest.raises(Undeliverable, match="no right to make it"):
            targets.lane_partition(lane, "orders", None)
    assert tries == [lane]
    admin.missing, admin.now = (), admin.now + 5_000
    targets.lane_partition(lane, "orders", None)
