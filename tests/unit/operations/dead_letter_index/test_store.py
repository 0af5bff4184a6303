"""The index of dead letters: what is found, counted, and forgotten."""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_index.letters import (
    IndexDamaged,
    IndexedLetter,
    IndexFull,
    LetterFilter,
    Progress,
)
from reconsume.operations.dead_letter_index.pages import indexed_page
from reconsume.operations.dead_letter_index.store import DeadLetterStore

TOPIC = "reconsume.DLQ.departures"
HOUR_MS = 3_600_000


def letter(offset: int, **more: object) -> IndexedLetter:
    one = IndexedLetter(
        key=DeadLetterKey(TOPIC, 0, offset, 1_000 + offset),
        group="departures",
        message_id=f"flights/0/{offset}",
        born_ms=None,
        origin_topic="flights",
        record_key=b"k%d" % offset,
        label="TimeoutError: no answer",
        exception_class="TimeoutError",
        cause="no answer",
        attempt=17,
        replay_times=0,
        size=300,
        headers={"trace": f"t{offset}"},
    )
    return replace(one, **more)  # type: ignore[arg-type]


def damage(file: Path) -> None:
    """Leave the first page as it is, which alone is read at the start."""
    with file.open("r+b") as broken:
        broken.seek(4_096)
        broken.write(b"\xff" * (file.stat().st_size - 4_096))


def filled(store: DeadLetterStore, *letters: IndexedLetter) -> DeadLetterStore:
    store.add(letters, {}, {(TOPIC, 0): Progress("id", len(letters))})
    return store


def temporary_files() -> list[str]:
    """Of SQLite, in this process; they are deleted while they are open."""
    links = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(one.readlink()))
    return [one for one in links if "etilqs" in one]


def offsets(store: DeadLetterStore, wanted: LetterFilter, **more: object) -> list[int]:
    return [one.key.offset for one in store.find(wanted, **more)]  # type: ignore[arg-type]


def test_letters_are_found_newest_first_page_by_page() -> None:
    store = filled(DeadLetterStore(), *map(letter, range(5)))
    first = store.find(LetterFilter(), limit=2)
    assert [one.key.offset for one in first] == [4, 3]
    assert offsets(store, LetterFilter(), before=first[-1].key) == [2, 1, 0]
    assert store.find(LetterFilter(), limit=1) == [letter(4)]
    assert store.count(LetterFilter()) == 5


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LetterFilter(group="departures"), [2, 1, 0]),
        (LetterFilter(group="arrivals"), []),
        (LetterFilter(key="k1"), [1]),
        (LetterFilter(message_id="flights/0/2"), [2]),
        (LetterFilter(label="KeyError: 'gate'"), [0]),
        (LetterFilter(text="NO ANSWER"), [2, 1]),
        (LetterFilter(text="100%_"), []),
        (LetterFilter(header="trace=t1"), [1]),
        (LetterFilter(header='a"b=x'), []),
        (LetterFilter(origin_topic="flights"), [2, 1, 0]),
        (LetterFilter(origin_topic="gates"), []),
        (LetterFilter(since_ms=1_001, until_ms=1_002), [1]),
        (LetterFilter(state="RESENT"), []),
    ],
)
def test_a_filter_takes_what_it_says(wanted: LetterFilter, found: list[int]) -> None:
    first = letter(0, label="KeyError: 'gate'", exception_class="KeyError", cause="'gate'")
    store = filled(DeadLetterStore(), first, letter(1), letter(2))
    assert offsets(store, wanted) == found
    assert store.count(wanted) == len(found)


@pytest.mark.parametrize(
    "header",
    ["租户=acme", "é=1", 'a"b=x', r"a\b=x", "a.b=c=d", "tenant=acme", 'quoted={"zone": "x"}'],
)
def test_a_letter_is_found_by_each_header_that_fits(header: str) -> None:
    name, _, text = header.partition("=")
    headers = {"long": "y" * 9_000, f'other"{name}': text, name: text}
    others = letter(1, headers={name: "other", "other": text}), letter(2, headers={f'x"{name}': text, "x": header})
    store = filled(DeadLetterStore(), letter(0, headers=headers), *others)
    assert offsets(store, LetterFilter(header=header)) == [0]
    assert offsets(store, LetterFilter(header="zone=x")) == []


def test_states_close_letters_and_open_them_again() -> None:
    store = filled(DeadLetterStore(), letter(0), letter(1))
    resent = DeadLetterState("RESENT", 5_000, "alice", job="dlq-1")
    store.add((), {letter(0).key: resent, letter(7).key: resent}, {})
    assert store.find(LetterFilter(state="RESENT")) == [letter(0, state=resent)]
    assert offsets(store, LetterFilter(state="OPEN")) == [1]
    store.add((), {letter(0).key: None}, {})
    assert offsets(store, LetterFilter(state="OPEN")) == [1, 0]


def test_a_state_of_a_topic_that_was_made_again_is_not_taken_for_that_of_a_new_letter() -> None:
    store = filled(DeadLetterStore(), letter(0))
    store.add((), {letter(0).key._replace(stored_ms=1): DeadLetterState("RESENT", 5_000, "alice")}, {})
    assert offsets(store, LetterFilter(state="OPEN")) == [0]


def test_the_newest_letter_of_a_message_supersedes_the_others_in_whatever_order_they_come() -> None:
    newer = letter(3, message_id="flights/0/0")
    for order in ([letter(0), newer], [newer, letter(0)]):
        store = filled(DeadLetterStore(), *order)
        assert offsets(store, LetterFilter(state="OPEN")) == [3]
        assert offsets(store, LetterFilter(state="SUPERSEDED")) == [0]
    other_group = replace(newer, group="arrivals")
    assert offsets(filled(DeadLetterStore(), letter(0), other_group), LetterFilter(state="OPEN")) == [3, 0]


@pytest.mark.parametrize("births", list(product((None, 100, 200), repeat=4)))
def test_letters_of_one_id_that_were_born_at_different_times_supersede_each_other_not(
    births: tuple[int | None, ...],
) -> None:
    """Whether they come at once, in two halves, or the later ones first, as from several partitions."""
    letters = [letter(offset, message_id="same", born_ms=born_ms) for offset, born_ms in enumerate(births)]
    still_open = [
        offset
        for offset in reversed(range(4))
        if all(None not in (births[offset], later) and births[offset] != later for later in births[offset + 1 :])
    ]
    for parts in ((letters,), (letters[:2], letters[2:]), (letters[2:], letters[:2]), ([one] for one in letters[::-1])):
        store = DeadLetterStore()
        for part in parts:
            filled(store, *part)
        assert offsets(store, LetterFilter(state="OPEN")) == still_open
        for one in letters:
            store.add((), {one.key: DeadLetterState("RESOLVED", 1, "bob")}, {})
            store.add((), {one.key: None}, {})
        assert offsets(store, LetterFilter(state="OPEN")) == still_open
    assert [one.born_ms for one in store.find(LetterFilter())] == [*births[::-1]]


def test_an_older_letter_that_is_reopened_stays_superseded() -> None:
    older, newer = letter(0), letter(3, message_id="flights/0/0")
    store = filled(DeadLetterStore(), older, newer)
    store.add((), {older.key: DeadLetterState("RESOLVED", 1, "bob")}, {})
    for _ in range(2):
        store.add((), {older.key: None}, {})
        assert offsets(store, LetterFilter(state="OPEN")) == [3]
        assert offsets(store, LetterFilter(state="SUPERSEDED")) == [0]


def test_open_letters_are_counted_by_group_and_all_by_cause() -> None:
    now = 100 * HOUR_MS
    times = [now - 30 * HOUR_MS, now - 2 * HOUR_MS, now - 1_000]
    letters = [
        letter(number, key=DeadLetterKey(TOPIC, 0, number, stored), label="a" if number else "b")
        for number, stored in enumerate(times)
    ]
    store = filled(DeadLetterStore(), *letters)
    assert store.open_by_group(now) == {"departures": (3, 1, 2, times[0])}
    assert store.count_by("label", LetterFilter()) == [("a", 2, times[1], times[2]), ("b", 1, times[0], times[0])]
    assert [one.value for one in store.count_by("hour", LetterFilter())] == [
        str(stored // HOUR_MS * HOUR_MS) for stored in reversed(times)
    ]
    store.add((), {one.key: DeadLetterState("RESOLVED", 1, "bob") for one in letters}, {})
    assert store.open_by_group(now) == {}


@pytest.mark.parametrize("kept", [True, False])
def test_new_letters_are_counted_by_hour_whatever_became_of_them(tmp_path: Path, kept: bool) -> None:
    hour, now = 3_600_000, 100 * 3_600_000 + 5
    times = {1: now, 2: now - 1, 3: now - hour, 4: now - 22 * hour, 5: now - 30 * hour}
    letters = [letter(offset, key=DeadLetterKey("t", 0, offset, at)) for offset, at in times.items()]
    other = letter(9, key=DeadLetterKey("u", 0, 9, now), group="arrivals")
    with DeadLetterStore(tmp_path / "x.db" if kept else None) as store:
        before = store.changes
        filled(store, *letters, other)
        found = store.new_by_hour(now)
        assert store.changes > before
    assert set(found) == {letters[0].group, "arrivals"}
    hours = found[letters[0].group]
    assert (len(hours), hours[-1], hours[-2], hours[-23], sum(hours)) == (24, 2, 1, 1, 4)


def test_the_hours_of_one_group_are_as_many_as_asked_for_and_the_last_has_later_letters_too() -> None:
    now = 100 * HOUR_MS + 5
    stored = [97 * HOUR_MS - 1, 98 * HOUR_MS - 1, 98 * HOUR_MS, now, now + 2 * HOUR_MS]
    letters = [letter(place, key=DeadLetterKey(TOPIC, 0, place, at)) for place, at in enumerate(stored)]
    other = letter(9, key=DeadLetterKey("other", 0, 9, now), group="other")
    store = filled(DeadLetterStore(), *letters, other)
    assert store.new_by_hour(now, hours=4, group="departures") == {"departures": [1, 1, 0, 2]}
    assert store.new_by_hour(now, hours=4, group="nobody") == {}


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (LetterFilter(group="departures", key="k1"), "by_key"),
        (LetterFilter(group="departures", state="OPEN", message_id="flights/0/1"), "by_message"),
    ],
)
def test_a_search_for_one_message_does_not_read_all_letters_of_its_group(wanted: LetterFilter, index: str) -> None:
    store, asked = filled(DeadLetterStore(), *map(letter, range(5))), list[str]()
    store._database.set_trace_callback(asked.append)
    assert offsets(store, wanted) == [1]
    assert store.count(wanted) == 1
    store._database.set_trace_callback(None)
    for query in asked:
        plan = " ".join(step for *_, step in store._database.execute(f"EXPLAIN QUERY PLAN {query}"))
        assert f"USING INDEX {index}" in plan, query


def test_the_first_page_counts_only_if_it_does_not_hold_all_that_match() -> None:
    store, asked = filled(DeadLetterStore(), *map(letter, range(5))), list[str]()
    store._database.set_trace_callback(asked.append)

    def counts(limit: int, before: str | None = None) -> tuple[int | None, int]:
        asked.clear()
        page = indexed_page(store, "departures", TOPIC, DeadLetterFilter(text="no answer"), before, limit)
        return page.found, sum("LIKE" in query and "count(*)" in query for query in asked)

    assert counts(5) == (5, 0)
    assert counts(4) == (5, 1)
    older = indexed_page(store, "departures", TOPIC, DeadLetterFilter(), None, 4).older
    assert counts(4, older) == (5, 1)


def test_what_kafka_has_deleted_is_forgotten() -> None:
    store = filled(DeadLetterStore(), *map(letter, range(4)))
    store.forget(TOPIC, 0, before=2)
    assert offsets(store, LetterFilter()) == [3, 2]
    assert store.progress() == {(TOPIC, 0): ("id", 4)}
    store.forget(TOPIC, 0, before=None)
    assert (offsets(store, LetterFilter()), store.progress()) == ([], {})


def test_a_file_is_gone_on_with_and_made_anew_where_it_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "index.db"
    with DeadLetterStore(file) as store:
        filled(store, letter(0))
    with DeadLetterStore(file) as store:
        assert offsets(store, LetterFilter()) == [0]
        store._database.execute("PRAGMA user_version = 99")
    with DeadLetterStore(file) as store:
        assert (offsets(store, LetterFilter()), store.progress()) == ([], {})
    file.write_bytes(b"no database" * 1_000)
    with DeadLetterStore(file) as store:
        assert store.progress() == {}


@pytest.mark.parametrize("births", [1, 10_000])
def test_many_letters_with_the_id_of_one_message_hold_up_no_others(births: int) -> None:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with DeadLetterStore() as store:
        store._database.set_progress_handler(count, 10_000)
        for first in (0, 1_000):
            numbers = range(first, first + 1_000)
            filled(store, *(letter(number, message_id="same", born_ms=number % births) for number in numbers))
        store._database.set_progress_handler(None, 0)
        assert steps < 100, "ten thousand steps each: a look at every letter for each of them takes thousands"
        assert offsets(store, LetterFilter(state="OPEN"))[0] == 1_999
        assert store.count(LetterFilter(state="OPEN")) == min(births, 2_000)


def test_an_index_on_a_full_disk_is_in_memory(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # a stand-in: no file of more than 100 bytes
    try:
        with DeadLetterStore(tmp_path / "i") as store:
            assert offsets(filled(store, letter(0)), LetterFilter()) == [0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.find(LetterFilter()),
        lambda store: store.open_by_group(0),
        lambda store: filled(store, letter(7)),
        lambda store: store.forget(TOPIC, 0, before=1_000),
    ],
)
def test_a_file_that_is_damaged_inside_says_so_and_is_emptied(
    tmp_path: Path, ask: Callable[[DeadLetterStore], object]
) -> None:
    file = tmp_path / "index.db"
    with DeadLetterStore(file) as store:
        filled(store, *map(letter, range(2_000)))
    damage(file)
    with DeadLetterStore(file) as store:
        with pytest.raises(IndexDamaged, match="the index of dead letters is damaged"):
            ask(store)
        assert store.is_damaged
        store.rebuild()
        assert (offsets(filled(store, letter(7)), LetterFilter()), store.is_damaged) == ([7], False)


def test_an_index_that_cannot_be_read_says_so_and_stays() -> None:
    with DeadLetterStore() as store:
        filled(store, letter(0))
        store._database.set_progress_handler(lambda: 1, 1)  # a stand-in for a disk: SQLite gives the query up
        for ask in (lambda: store.find(LetterFilter()), lambda: store.open_by_group(0)):
            with pytest.raises(IndexDamaged, match="cannot be read"):
                ask()
        store._database.set_progress_handler(None, 0)
        assert (offsets(store, LetterFilter()), store.is_damaged) == ([0], False)


def test_a_full_index_says_so_and_stays_as_it_is(tmp_path: Path) -> None:
    with DeadLetterStore(tmp_path / "i", max_mib=1) as store:
        first = filled(store, letter(0))
        large = [letter(number, cause="c" * 2_000) for number in range(1, 2_000)]
        with pytest.raises(IndexFull, match=r"raise console.index_mib \(1\)"):
            store.add(large, {}, {(TOPIC, 0): Progress("id", 2_000)})
        assert (offsets(first, LetterFilter()), store.progress()) == ([0], {(TOPIC, 0): ("id", 1)})


def test_a_file_that_another_process_has_or_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    with DeadLetterStore(tmp_path / "i") as first:
        filled(first, letter(0))
        with DeadLetterStore(tmp_path / "i") as second:
            assert second.progress() == {}
    (tmp_path / "no folder").write_text("")
    with DeadLetterStore(tmp_path / "no folder" / "i") as store:
        assert offsets(filled(store, letter(0)), LetterFilter()) == [0]


def test_what_is_long_is_cut(tmp_path: Path) -> None:
    long = letter(0, record_key=b"k" * 9_000, cause="c" * 9_000, headers={"a": "x", "long": "y" * 9_000})
    store = filled(DeadLetterStore(tmp_path / "i"), long)
    [found] = store.find(LetterFilter(key="k" * 9_000))
    assert found.record_key is not None
    assert (len(found.record_key), len(found.cause or ""), found.headers) == (512, 2_000, {"a": "x"})


def test_many_letters_with_one_id_need_no_temporary_file(tmp_path: Path) -> None:
    """A read-only container has no folder for one."""
    open_files: list[str] = []

    def look() -> int:
        open_files.extend(temporary_files())
        return 0

    with DeadLetterStore(tmp_path / "letters.db") as store:
        store._database.set_progress_handler(look, 100)
        filled(store, *(letter(offset, message_id="batch", cause="x" * 200) for offset in range(2_000)))
        assert offsets(store, LetterFilter(group="departures", state="OPEN")) == [1_999]
    assert open_files == []
