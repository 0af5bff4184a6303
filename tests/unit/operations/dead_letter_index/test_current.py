"""When a page of dead letters may come from a console's index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_index import current
from reconsume.operations.dead_letter_index.current import current_page, index_file
from reconsume.operations.dead_letter_index.letters import Progress
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import Page
from tests.unit.operations.dead_letter_index.test_store import TOPIC, letter

STATES = "reconsume.DEAD_LETTERS"


class _Admin:
    """A Kafka with dead letters from `start` to 3."""

    def __init__(self, start: int) -> None:
        self._start = start

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")

    def end_offsets(self, asked: Iterable[tuple[str, int]], *, earliest: bool = False) -> dict[tuple[str, int], int]:
        return {where: (self._start if earliest else 3) if where[0] == TOPIC else 0 for where in asked}


class _Letters(_Admin):
    """Three partitions with a letter in each millisecond from 1,000 on."""

    def __init__(self) -> None:
        super().__init__(0)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 3)

    def offsets_at(self, asked: Iterable[tuple[str, int]], stored_ms: int) -> dict[tuple[str, int], int]:
        return dict.fromkeys(asked, stored_ms - 1_000)


def test_a_page_of_the_index_is_gone_on_with_in_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    asked: list[str] = []

    def read_page(*_: object, before: str, **__: object) -> Page:
        asked.append(before)
        return Page([], 0, None)

    monkeypatch.setattr(current, "read_page", read_page)
    cluster: Any = Cluster(Settings())
    cluster.__dict__["admin"] = _Letters()
    found = current_page(cluster, "departures", DeadLetterFilter(), before="i1002:1:2")
    assert (found, asked) == ((Page([], 0, None), False), ["0:3,1:2,2:2"])


@pytest.mark.parametrize(
    ("start", "wanted", "from_index"),
    [
        (0, DeadLetterFilter(), True),
        (0, DeadLetterFilter(key="k1"), True),
        (0, DeadLetterFilter(text="answer"), False),
        (0, DeadLetterFilter(header="trace=t1"), False),
        (2, DeadLetterFilter(), False),
    ],
)
def test_an_index_without_stack_traces_or_with_letters_that_kafka_has_deleted_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, wanted: DeadLetterFilter, from_index: bool
) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(current, "read_page", lambda *_, **__: Page([], 1, None))
    cluster: Any = Cluster(Settings())
    cluster.__dict__["admin"] = _Admin(start)
    with DeadLetterStore(index_file(cluster.settings)) as store:
        store.add(map(letter, range(3)), {}, {(TOPIC, 0): Progress("id", 3), (STATES, 0): Progress("id", 0)})
    page, is_from_index = current_page(cluster, "departures", wanted)
    assert (is_from_index, bool(page.records)) == (from_index, from_index)


def test_partitions_that_are_added_to_the_topic_of_states_outdate_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All states are in partition 0, which an index follows alone."""
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    cluster, admin = Cluster(Settings()), _Admin(0)
    monkeypatch.setattr(admin, "partitions", lambda topics: {topic: 3 if topic == STATES else 1 for topic in topics})
    cluster.__dict__["admin"] = admin
    with DeadLetterStore(index_file(cluster.settings)) as store:
        store.add(map(letter, range(3)), {}, {(TOPIC, 0): Progress("id", 3), (STATES, 0): Progress("id", 0)})
    assert current_page(cluster, "departures", DeadLetterFilter())[1]


def test_a_user_without_a_home_folder_reads_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("RECONSUME_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    page = cast("Page", object())
    monkeypatch.setattr(current, "read_page", lambda *_args, **_options: page)
    assert current.current_page(Cluster(Settings()), "departures", DeadLetterFilter()) == (page, False)
