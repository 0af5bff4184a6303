"""The follower of dead letters, with a Kafka in which nothing happens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState
from reconsume.operations.dead_letter_index import follower
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.letters import LetterFilter, Progress
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from tests.unit.operations.dead_letter_index.test_store import TOPIC

STATES = "reconsume.DEAD_LETTERS"
OTHER = "reconsume.DLQ.arrivals"


class _Reader:
    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Admin:
    """A Kafka with dead-letter topics whose records were deleted."""

    def __init__(self, *more: str, first: int = 3) -> None:
        self.lost: set[tuple[str, int]] = set()
        self.id_of_states: str | None = "id"
        self.is_away = False
        self.first, self.since = first, 0
        self._topics = {TOPIC: 1, STATES: 1} | dict.fromkeys(more, 1)

    def topics(self) -> dict[str, int]:
        return self._topics

    def leaderless(self, topics: Iterable[str]) -> set[tuple[str, int]]:
        return {where for where in self.lost if where[0] in topics}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        ids = dict.fromkeys(topics, "id") | {STATES: self.id_of_states}
        return {topic: one for topic in topics if (one := ids[topic]) is not None}

    def offsets_at(self, asked: Iterable[tuple[str, int]], _at_ms: int) -> dict[tuple[str, int], int]:
        if self.is_away:
            raise KafkaNotReachable("no answer")
        return dict.fromkeys(asked, self.since)

    def end_offsets(self, asked: Iterable[tuple[str, int]], *, earliest: bool = False) -> dict[tuple[str, int], int]:
        ends = dict.fromkeys(asked, self.first if earliest else 3)
        if self.lost & ends.keys():
            raise KafkaNotReachable("no leader")
        return ends


def cluster_of(admin: _Admin, clock: Clock = now_ms) -> Any:
    cluster = Cluster(Settings(bootstrap_servers="127.0.0.1:9"), clock)
    cluster.__dict__["admin"] = admin
    return cluster


def test_a_look_without_news_leaves_the_store_unchanged() -> None:
    cluster = cluster_of(_Admin())
    with DeadLetterStore() as store:
        index = DeadLetterIndex(cluster, store, CauseLabels())
        index.look()
        assert store.progress() == {(TOPIC, 0): ("id", 3), (STATES, 0): ("id", 3)}
        changes = store.changes
        index.look()
        assert store.changes == changes


def test_a_topic_that_is_missing_for_a_moment_is_kept_and_one_that_stays_away_is_forgotten() -> None:
    """A broker that has just started may know none; the console would show no open dead letters at all."""
    admin = _Admin(OTHER)
    with DeadLetterStore() as store:
        index = DeadLetterIndex(cluster_of(admin), store, CauseLabels())
        index.look()
        listed = dict(admin._topics)
        for looks in (3, 10):
            del admin._topics[OTHER], admin._topics[TOPIC]
            for _ in range(looks):
                with pytest.raises(KafkaNotReachable, match=r"missing from the list of topics: 2; .* after 20 s"):
                    index.look()
                assert {(TOPIC, 0), (OTHER, 0)} <= store.progress().keys()
                assert index.is_complete
            if looks == 3:
                admin._topics |= listed
                index.look()
        index.look()
        assert store.progress().keys() == {(STATES, 0)}


def test_a_partition_without_a_leader_keeps_no_other_from_being_followed() -> None:
    admin = _Admin(OTHER)
    admin.lost = {(OTHER, 0)}
    with DeadLetterStore() as store:
        store.add((), {}, {(OTHER, 0): Progress("id", 2)})
        index = DeadLetterIndex(cluster_of(admin), store, CauseLabels())
        for _ in range(2):
            with pytest.raises(KafkaNotReachable, match="without a leader, which are not read: 1;"):
                index.look()
            assert index.is_complete
            # It is read again from its start, and so are all states: those of its unread letters were read meanwhile.
            read = {(TOPIC, 0): 3, (STATES, 0): 3, (OTHER, 0): 0}
            assert store.progress() == {where: Progress("id", following) for where, following in read.items()}
        changes = store.changes
        with pytest.raises(KafkaNotReachable):
            index.look()
        assert store.changes == changes
        admin.lost = set()
        index.look()
        assert store.progress()[OTHER, 0].next == 3


def resolve_unseen(monkeypatch: pytest.MonkeyPatch, admin: _Admin, store: DeadLetterStore) -> None:
    """The states up to 2 were read, with a resolution; the reopening behind it has come and gone."""
    read = ReadRecord(TOPIC, 0, 2, b"k", b"v", [], 1_002)

    class Reader(_Reader):
        def records(self, ranges: dict[tuple[str, int], tuple[int, int]], **_: object) -> list[ReadRecord]:
            start, end = ranges.get((TOPIC, 0), (0, 0))
            return [read] if start <= 2 < end else []

    monkeypatch.setattr(follower, "RangeReader", Reader)
    DeadLetterIndex(cluster_of(admin), store, CauseLabels()).look()
    resolved = {DeadLetterKey(*read[:3], read.stored_ms): DeadLetterState("RESOLVED", 1, "bob")}
    store.add((), resolved, {(STATES, 0): Progress("id", 2)})


@pytest.mark.parametrize(
    ("file", "changed", "is_open"),
    [
        ("index.db", {}, False),
        ("index.db", {"since": 2}, False),
        ("index.db", {"since": 3}, True),
        (None, {"since": 3}, True),
        ("index.db", {"id_of_states": "other"}, True),
    ],
)
def test_a_letter_whose_reopening_kafka_has_forgotten_is_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str | None, changed: dict[str, Any], is_open: bool
) -> None:
    admin = _Admin(first=0)
    with DeadLetterStore(None if file is None else tmp_path / file) as store:
        resolve_unseen(monkeypatch, admin, store)
        vars(admin).update(changed)
        index = DeadLetterIndex(cluster_of(admin), store, CauseLabels())
        index.look()
        assert store.count(LetterFilter(state="OPEN")) == is_open
        admin.since = 9
        index.look()
        assert store.count(LetterFilter(state="OPEN")) == is_open, "it was read a moment ago"


def test_what_kafka_forgets_during_a_look_that_takes_half_a_day_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(_Admin):
        now_ms = 1e12

        def leaderless(self, topics: Iterable[str]) -> set[tuple[str, int]]:
            self.now_ms += 13 * 3_600_000
            return super().leaderless(topics)

    admin = Slow(first=0)
    with DeadLetterStore() as store:
        resolve_unseen(monkeypatch, admin, store)
        index = DeadLetterIndex(cluster_of(admin, lambda: admin.now_ms), store, CauseLabels())
        index.look()
        admin.since = 9
        index.look()
        assert store.count(LetterFilter(state="OPEN")) == 1


def test_a_check_for_forgotten_reopenings_that_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = _Admin(first=0)
    with DeadLetterStore() as store:
        resolve_unseen(monkeypatch, admin, store)
        index = DeadLetterIndex(cluster_of(admin), store, CauseLabels())
        admin.since, admin.id_of_states = 3, None
        index.look()
        admin.is_away, admin.id_of_states = True, "id"
        with pytest.raises(KafkaNotReachable):
            index.look()
        assert store.count(LetterFilter(state="OPEN")) == 0
        admin.is_away = False
        index.look()
        assert store.count(LetterFilter(state="OPEN")) == 1
