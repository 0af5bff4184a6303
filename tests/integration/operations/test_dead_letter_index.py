"""The index of dead letters on a real Kafka: what is open, how old, and why; gone on with, and made anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_index import follower
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.current import current_page, index_file
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.letters import LetterFilter
from reconsume.operations.dead_letter_index.pages import indexed_page
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import matches, read_page
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import reopen, resolve
from tests.integration.installation import Installation, installation
from tests.integration.operations.test_dlq import headers_of, with_dead_letters
from tests.support.consoles import console_settings, running_console
from tests.support.resends import resend
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.operations.dead_letter_index.test_store import damage

pytestmark = pytest.mark.kafka

FIRST, SECOND, THIRD, FOURTH = (RecordAddress(0, number) for number in range(4))


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture
def index(here: Installation) -> Iterator[DeadLetterIndex]:
    with DeadLetterStore() as store:
        yield DeadLetterIndex(here.cluster, store, CauseLabels())


def stored(here: Installation, group: str) -> dict[RecordAddress, int]:
    """When each dead letter of the group was stored."""
    return {one.place: one.stored_ms for one in read_page(here.cluster, group).records}


def open_of(index: DeadLetterIndex, group: str) -> tuple[int, int] | None:
    """How many are open, and when the oldest was stored."""
    index.look()
    found = index.store.open_by_group(time.time() * 1_000).get(group)
    return None if found is None else (found.number, found.oldest_ms)


def wait_for_open(index: DeadLetterIndex, group: str, wanted: tuple[int, int] | None) -> None:
    """Look until it is so: Kafka answers a commit before readers of committed records see what was committed."""
    wait_until(lambda: open_of(index, group) == wanted, f"open of {group} are {wanted}")


def test_a_file_that_is_damaged_inside_is_filled_again(here: Installation, tmp_path: Path) -> None:
    group, file, stop = with_dead_letters(here, 1_000), tmp_path / "index.db", threading.Event()
    with DeadLetterStore(file) as store:
        DeadLetterIndex(here.cluster, store, CauseLabels()).look()
    damage(file)
    with DeadLetterStore(file) as store:
        index = DeadLetterIndex(here.cluster, store, CauseLabels())
        thread = threading.Thread(target=index.run, args=(stop,))
        thread.start()
        try:
            wait_until(lambda: index.is_complete, "the index is complete")
        finally:
            stop.set()
            thread.join(PATIENCE)
        assert store.count(LetterFilter(group=group)) == 1_000


def test_a_dead_letter_is_open_until_it_is_sent_again_resolved_or_deleted(
    here: Installation, index: DeadLetterIndex
) -> None:
    group, other = with_dead_letters(here, 5), with_dead_letters(here, 1)
    assert not index.is_complete
    at = stored(here, group)
    wait_for_open(index, group, (5, at[FIRST]))
    assert index.is_complete
    resend(here.cluster, group, [FIRST])
    wait_for_open(index, group, (4, at[SECOND]))
    resolve(here.cluster, group, [SECOND], by="bob", why="no such flight")
    wait_for_open(index, group, (3, at[THIRD]))
    reopen(here.cluster, group, [SECOND])
    wait_for_open(index, group, (4, at[SECOND]))
    topic = here.settings.names.dead_letter(group)
    admin = AdminClient(here.settings.client_settings())
    [deleted] = admin.delete_records([TopicPartition(topic, 0, FOURTH.offset)]).values()
    deleted.result(PATIENCE)
    wait_for_open(index, group, (2, at[FOURTH]))

    # A message dies again, after it was sent again.
    saturday, _ = resend(here.cluster, group, [FOURTH])
    headers = headers_of(group, 3, REPLAY_ID=saturday, REPLAY_TIMES="1")
    here.produce(topic, b"value-3", key=b"key-3", headers=headers)
    wait_for_open(index, group, (2, at[RecordAddress(0, 4)]))
    wait_for_open(index, other, (1, stored(here, other)[FIRST]))


def test_an_index_that_starts_later_or_goes_on_finds_the_same(here: Installation, tmp_path: Path) -> None:
    group = with_dead_letters(here, 3)
    at = stored(here, group)
    resolve(here.cluster, group, [FIRST], by="bob", why="x")
    found = []
    for file in (tmp_path / "a.db", tmp_path / "a.db", None):
        with DeadLetterStore(file) as store:
            index = DeadLetterIndex(here.cluster, store, CauseLabels())
            wait_for_open(index, group, (2, at[SECOND]))
            found.append(store.find(LetterFilter(group=group)))
    assert found[0] == found[1] == found[2]
    assert [one.state and one.state.by for one in found[0]] == [None, None, "bob"]


def test_a_topic_that_was_made_again_is_read_anew(
    here: Installation, index: DeadLetterIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = with_dead_letters(here, 2)
    resolve(here.cluster, group, [FIRST, SECOND], by="bob", why="x")
    wait_for_open(index, group, None)
    topic = here.settings.names.dead_letter(group)
    here.delete(topic)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.produce(topic, b"new", headers=headers_of(group, 0))
    wait_for_open(index, group, (1, stored(here, group)[FIRST]))
    here.delete(topic)
    monkeypatch.setattr(follower, "_LOOKS_WITHOUT", 0)
    wait_for_open(index, group, None)


def test_pages_of_the_index_are_those_of_kafka(here: Installation, index: DeadLetterIndex) -> None:
    group = with_dead_letters(here, 24, partitions=3)
    topic = here.settings.names.dead_letter(group)
    here.produce(topic, b"the 25th", headers=[*headers_of(group, 24), ("tenant", b"acme=1")])
    index.look()
    every = read_page(here.cluster, group).records
    for wanted in (
        DeadLetterFilter(),
        DeadLetterFilter(key="key-7"),
        DeadLetterFilter(message_id="flights/0/8"),
        DeadLetterFilter(text="TIMEOUT"),
        DeadLetterFilter(origin_topic="flights", header="tenant=acme=1"),
    ):
        from_kafka = [one.place for one in every if matches(wanted, one)]
        from_index, before = [], None
        while True:
            page = indexed_page(index.store, group, topic, wanted, before, limit=4)
            assert (page.found, page.looked_at) == (len(from_kafka), 25)
            from_index += [one.place for one in page.records]
            if page.older is None:
                break
            before = page.older
        assert sorted(from_index) == sorted(from_kafka)
    assert [(one.value, one.number) for one in index.store.count_by("label", LetterFilter(group=group))] == [
        ("no dep_time", 13),
        ("timeout", 12),
    ]


def test_a_console_shows_and_exports_it(here: Installation, tmp_path: Path) -> None:
    group = with_dead_letters(here, 3)
    resolve(here.cluster, group, [FIRST], by="bob", why="x")
    stored_ms = stored(here, group)[SECOND]
    wanted = f'reconsume_oldest_open_dead_letter_timestamp_seconds{{group="{group}"}} {stored_ms / 1000!r}'
    with running_console(console_settings(here.settings, index_folder=tmp_path)) as browser:
        wait_until(lambda: _has(browser.probe("/metrics").text, wanted), wanted)
        row = f"{group} 2 2 2"
        wait_until(lambda: row in browser.get(f"/?q={group}").seen.words, "a reading after that of the index")
        causes = browser.get(f"/groups/{group}").seen
        assert "timeout 1 50 %" in causes.words
        [link] = [one for one in causes.links if "label=timeout" in one]
        letters = browser.get(link).seen
        assert letters.places == ["0/1"]
        assert "1 of 3 dead letters match." in letters.words
    assert [one.suffix for one in sorted(tmp_path.iterdir())] != []


def _has(metrics: str, wanted: str) -> bool:
    name, _, value = wanted.rpartition(" ")
    found = [line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith(name)]
    return [float(one) for one in found] == [float(value)]


def test_a_page_comes_from_a_consoles_index_while_that_has_everything(
    here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    group = with_dead_letters(here, 3)
    everything = [RecordAddress(0, number) for number in (2, 1, 0)]

    def shown() -> tuple[list[RecordAddress], bool]:
        page, from_index = current_page(here.cluster, group, DeadLetterFilter())
        return [one.place for one in page.records], from_index

    assert shown() == (everything, False)
    with DeadLetterStore(index_file(here.settings)) as store:
        index = DeadLetterIndex(here.cluster, store, CauseLabels())
        index.look()
        assert shown() == (everything, True)
        page, _ = current_page(here.cluster, group, DeadLetterFilter(), limit=2)
        older, from_index = current_page(here.cluster, group, DeadLetterFilter(), before=page.older, limit=2)
        assert ([one.place for one in older.records], from_index) == (everything[2:], True)
        resolve(here.cluster, group, [FIRST], by="bob", why="no such flight")
        assert shown() == (everything, False)
        older, from_index = current_page(here.cluster, group, DeadLetterFilter(), before=page.older, limit=2)
        assert ([one.place for one in older.records], from_index) == (everything[2:], False)
        index.look()
        assert shown() == (everything, True)
        lane = TopicPartition(here.settings.names.dead_letter(group), 0, 1)
        admin = AdminClient(here.settings.client_settings())
        [deleted] = admin.delete_records([lane]).values()
        deleted.result(PATIENCE)
        wait_until(lambda: shown() == (everything[:2], False), "the deleted one is not shown")
        index.look()
        assert shown() == (everything[:2], True)
    index_file(here.settings).write_bytes(b"no database")
    assert shown() == (everything[:2], False)
