"""Few dead letters of a large group: what is read for them, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import RESOLVED, DeadLetterKey, DeadLetterState, encode_state
from reconsume.delay_levels.wire.jobs.job_records import JobSpec
from reconsume.operations import dead_letter_states, dead_letters
from reconsume.operations.dead_letter_states import StatesReader
from reconsume.operations.dead_letters import read_one, read_these
from reconsume.operations.jobs.selection import Selection
from reconsume.operations.record_address import RecordAddress

CLUSTER = Cluster(Settings(bootstrap_servers="nowhere:1"))
DEAD, STATES = CLUSTER.names.dead_letter("g"), CLUSTER.names.dead_letter_states
LETTERS = 10_000_000


class Reader:
    """A dead letter at each offset, and the state of each tenth of another group.

    Attributes:
        ranges: what was asked for.
    """

    ranges: list[tuple[int, int]]

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def records(self, ranges: dict[tuple[str, int], tuple[int, int]]) -> Iterator[ReadRecord]:
        for (topic, partition), (start, end) in ranges.items():
            if topic == DEAD:
                type(self).ranges.append((start, end))
                for offset in range(start, end):
                    yield ReadRecord(topic, partition, offset, b"k", b"v", [], 1_000)
            else:
                for offset in range(start, end):
                    key = DeadLetterKey(DEAD if offset == 7 else f"{DEAD}-other", 0, 5, 1_000)
                    value = encode_state(DeadLetterState(RESOLVED, 2_000, "alice", "why")).encode()
                    yield ReadRecord(topic, partition, offset, str(key).encode(), value, [], 2_000)


@pytest.fixture(autouse=True)
def _kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {DEAD: LETTERS, STATES: 10}
    admin = SimpleNamespace(
        partitions=lambda topics: dict.fromkeys(topics, 1),
        end_offsets=lambda asked, earliest=False, **_: {one: 0 if earliest else ends[one[0]] for one in asked},
        offsets_at=lambda asked, _at_ms, **_: dict.fromkeys(asked, 0),
    )
    monkeypatch.setitem(CLUSTER.__dict__, "admin", admin)
    monkeypatch.setattr(Reader, "ranges", [], raising=False)
    for module in (dead_letters, dead_letter_states):
        monkeypatch.setattr(module, "RangeReader", Reader)


def test_who_writes_takes_no_missing_topic_for_letters_that_are_all_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLUSTER.admin, "partitions", lambda _topics: {})
    key = DeadLetterKey(DEAD, 0, 5, 1_000)
    assert StatesReader(CLUSTER).of(key) is None
    with pytest.raises(TopicNotReady, match="DEAD_LETTERS does not exist"):
        StatesReader(CLUSTER, to_the_last=True).of(key)


def test_between_named_letters_that_are_far_apart_nothing_is_read() -> None:
    places = [RecordAddress(0, offset) for offset in (5, 7, LETTERS - 1)]
    assert [one.place for one in read_these(CLUSTER, "g", places)] == places
    assert Reader.ranges == [(5, 8), (LETTERS - 1, LETTERS)]


def test_one_letter_keeps_no_state_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[StatesReader]()

    class Noted(StatesReader):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            made.append(self)

    monkeypatch.setattr(dead_letters, "StatesReader", Noted)
    one = read_one(CLUSTER, "g", RecordAddress(0, 5))
    assert one.state is not None
    assert one.state.state == RESOLVED
    assert [list(reader._states) for reader in made] == [[one.key_of_state]]


@pytest.mark.parametrize(
    ("picked", "windows"),
    [
        ((5, 7, 99_999), [(5, 100_000)]),
        ((5, 100_005), [(5, 6), (100_005, 100_006)]),
        ((0, LETTERS - 1), [(0, 1), (LETTERS - 1, LETTERS)]),
    ],
)
def test_windows_end_behind_the_last_picked_letter(picked: tuple[int, ...], windows: list[tuple[int, int]]) -> None:
    spec = JobSpec("resend", "g", 5, "alice", "", DEAD, "id", {0: (0, LETTERS)}, records={0: picked})
    assert list(Selection(spec).windows(0, 0)) == windows
