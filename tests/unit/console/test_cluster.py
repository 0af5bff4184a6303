"""What the pages ask of Kafka: changes of dead letters take turns."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count
from reconsume.console import cluster
from reconsume.console.cluster import CauseCounts, ConsoleCluster
from reconsume.console.process import Console, make_index
from reconsume.console.snapshot import Snapshot, Snapshots
from reconsume.console.web.faults import status_of
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter, JobSpec
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.letters import IndexFull, LetterFilter
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import DeadLetterRecord, Page
from reconsume.operations.jobs import planning
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.status import Status
from tests.support.consoles import console_settings
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.console.fake_cluster import letter
from tests.unit.console.pages.test_index import indexed


def test_a_change_that_waits_for_another_one_for_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        begun.set()
        assert go_on.wait(PATIENCE)
        return []

    monkeypatch.setattr(cluster, "resolve", resolve)
    monkeypatch.setattr(cluster, "_WAIT_SECONDS", 0.1)
    console, place = ConsoleCluster(Settings(bootstrap_servers="127.0.0.1:9")), [RecordAddress(0, 1)]
    first = threading.Thread(target=console.resolve, args=("departures", place, "alice", "x"))
    first.start()
    assert begun.wait(PATIENCE)
    with pytest.raises(KafkaNotReachable, match="another change by this console"):
        console.reopen("arrivals", place)
    go_on.set()
    first.join(PATIENCE)
    assert console.resolve("arrivals", place, "bob", "x") == []


def test_causes_that_come_while_they_are_counted_are_part_of_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with DeadLetterStore() as store:
        store.add([indexed(0, 1, "KeyError")], {}, {})
        monkeypatch.setattr(DeadLetterStore, "count", lambda *_: 0)
        counts = CauseCounts.of(store, "departures")
    assert (counts.number, [one.number for one in counts.causes]) == (1, [1])


def test_another_message_with_the_same_id_is_no_part_of_a_life() -> None:
    """Its topic was made again."""
    info = letter(0).letter
    with DeadLetterStore() as store:
        births = enumerate((info.born_ms, 1, None))
        letters = [
            replace(indexed(at, at, "x"), message_id=info.origin_message_id, born_ms=born) for at, born in births
        ]
        store.add(letters, {}, {})
        console = ConsoleCluster(Settings(bootstrap_servers="127.0.0.1:9"))
        console._index = DeadLetterIndex(Cluster(Settings(bootstrap_servers="127.0.0.1:9")), store, CauseLabels())
        console._index.is_complete = True
        assert [found.key.offset for found in console.of_message("departures", info)] == [2, 0]


def test_an_index_that_fails_leaves_the_last_reading_and_is_tried_again() -> None:
    status = Status(1, [], [], Count(0, exact=True))
    answers: list[Snapshot | Exception] = [Snapshot(status, Groups()), sqlite3.DatabaseError("malformed")]
    stop = threading.Event()

    def read() -> Snapshot:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    snapshots = Snapshots(read)
    thread = threading.Thread(target=snapshots.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: (one := snapshots.latest()) is not None and "malformed" in one.trouble, "it fails")
        answers[:] = [Snapshot(replace(status, at_ms=2), Groups())]
        wait_until(lambda: (one := snapshots.latest()) is not None and one.status.at_ms == 2, "it works again")
        assert thread.is_alive()
    finally:
        stop.set()
        snapshots.wake()
        thread.join(PATIENCE)


def test_a_list_from_kafka_shows_the_same_causes_as_one_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, letters = {"(?i)timeout": "slow"}, [letter(1), letter(2, "Timeout after 17 s")]

    def read_page(*_: object, takes: Callable[[DeadLetterRecord], bool], **__: object) -> Page:
        return Page([one for one in letters if takes(one)], len(letters), None)

    monkeypatch.setattr(cluster, "read_page", read_page)
    settings = Settings(bootstrap_servers="127.0.0.1:9")
    with DeadLetterStore() as store:
        console = ConsoleCluster(settings, DeadLetterIndex(Cluster(settings), store, CauseLabels(rules)))
        for wanted, found in (
            (DeadLetterFilter(label="slow"), letters[1:]),
            (DeadLetterFilter(label="x"), []),
            (DeadLetterFilter(), letters),
        ):
            assert console.page("departures", wanted).records == found


def test_a_group_without_dead_letters_is_shown_without_asking_kafka() -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:9")
    with DeadLetterStore() as store:
        index = DeadLetterIndex(Cluster(settings), store, CauseLabels())
        console = ConsoleCluster(settings, index)
        assert console.causes("departures") is None, "the page asks Kafka"
        index.is_complete = True
        assert console.causes("departures") == (0, [])


def test_a_plan_from_the_index_has_its_hours_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if few of the group's many letters match: to find them in Kafka, all would be read."""
    monkeypatch.setattr(cluster, "_MOST_PLANNED", 5)
    monkeypatch.setattr(cluster, "jobs_topic", lambda _cluster: "")
    settings, hour_ms = Settings(bootstrap_servers="127.0.0.1:9"), 3_600_000
    with DeadLetterStore() as store:
        store.add([indexed(number, number % 3 * hour_ms, "KeyError") for number in range(5)], {}, {})
        store.add([indexed(number, 0, "ValueError") for number in range(5, 9)], {}, {})
        index = DeadLetterIndex(Cluster(settings), store, CauseLabels())
        index.is_complete = True
        draft = JobDraft("resend", "departures", DeadLetterFilter(label="KeyError"))
        plan = ConsoleCluster(settings, index).plan_job(draft)
    assert [(one.value, one.number) for one in plan.hours] == [("0", 2), (str(hour_ms), 2), (str(2 * hour_ms), 1)]


def test_a_dry_run_without_the_index_reads_the_newest_letters_alone_and_no_other_one_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, read, begun, go_on = (
        "reconsume.DLQ.departures",
        list[tuple[object, ...]](),
        threading.Event(),
        threading.Event(),
    )

    class Window:
        """Two letters, of a million."""

        def __init__(self, *place: object, **_: object) -> None:
            read.append(place[3:])

        def letters(self) -> list[DeadLetterRecord]:
            begun.set()
            assert go_on.wait(PATIENCE)
            return [letter(1), letter(2)]

    spec = JobSpec("resolve", "departures", 1, "", "", topic, "id", {0: (7, 1_000_000), 1: (0, 30)})
    monkeypatch.setattr(planning, "fix", lambda *_: spec)
    monkeypatch.setattr(planning, "LetterWindow", Window)
    monkeypatch.setattr(cluster, "jobs_topic", lambda _cluster: "")
    console, draft = ConsoleCluster(Settings(bootstrap_servers="127.0.0.1:9")), JobDraft("resolve", "departures")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(console.plan_job, draft)
        try:
            assert begun.wait(PATIENCE)
            with pytest.raises(ReconsumeError, match="reads Kafka for another dry run; try again") as refused:
                console.plan_job(draft)
        finally:
            go_on.set()
        assert status_of(refused.value) == 503
        assert (first.result().count, first.result().is_whole) == (4, False)
    assert read == [(0, 990_000, 1_000_000), (1, 0, 30)]
    monkeypatch.setattr(planning, "fix", lambda *_: replace(spec, spans={0: (7, 10_007), 1: (0, 10_000)}))
    assert console.plan_job(draft).is_whole
    assert read[2:] == [(0, 7, 10_007), (1, 0, 10_000)]


def test_other_rules_for_causes_have_an_index_of_their_own(tmp_path: Path) -> None:
    for rules in ({}, {"^Key": "bad"}, {"^Key": "good"}):
        settings = console_settings(Settings(), index_folder=tmp_path, cause_labels=rules)
        for known in ([], ["KeyError"]):
            with make_index(settings).store as store:
                assert [one.label for one in store.find(LetterFilter())] == known, rules
                store.add([indexed(0, 1, "KeyError")], {}, {})


@pytest.mark.parametrize(("error", "is_told"), [(IndexFull("raise"), False), (KafkaNotReachable("no answer"), True)])
def test_the_oldest_open_letter_is_told_only_while_the_index_can_follow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, is_told: bool
) -> None:
    """The frozen figure of one console hid the right one of another."""
    stop, looks, name = threading.Event(), list[float | None](), "reconsume_oldest_open_dead_letter_timestamp_seconds"
    monkeypatch.setattr("reconsume.operations.dead_letter_index.follower._EVERY_SECONDS", 0.01)
    console = Console(console_settings(Settings(bootstrap_servers="127.0.0.1:9"), index_folder=tmp_path))
    index = console._index
    assert index is not None

    def look(_stop: threading.Event | None = None) -> None:
        looks.append(console._metrics.registry.get_sample_value(name, {"group": "departures"}))
        if len(looks) == 2:
            raise error
        if len(looks) == 3:
            stop.set()
        index.is_complete = True

    monkeypatch.setattr(index, "look", look)
    with index.store:
        index.store.add([indexed(1, 2_000, "KeyError")], {}, {})
        console._follow(index, stop)
        wait_until(lambda: len(looks) == 3, "three looks")
    console._server.close()
    assert looks == [None, 2.0, 2.0 if is_told else None]


@pytest.mark.parametrize(
    ("error", "is_complete"),
    [
        (sqlite3.DatabaseError("malformed"), False),
        (IndexFull("raise console.index_mib"), False),
        (KafkaRefused("no right to read"), False),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), False),
        (KafkaNotReachable("no answer"), True),
    ],
)
def test_an_index_that_falls_behind_is_not_asked_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_complete: bool
) -> None:
    stop, looks = threading.Event(), list[tuple[bool, bool]]()
    with DeadLetterStore() as store:
        index = DeadLetterIndex(Cluster(Settings(bootstrap_servers="127.0.0.1:9")), store, CauseLabels())
        index.is_complete = True

        def look(_stop: threading.Event | None = None) -> None:
            looks.append((index.is_complete, str(error) in index.trouble))
            if len(looks) == 1:
                raise error
            stop.set()

        monkeypatch.setattr(index, "look", look)
        monkeypatch.setattr("reconsume.operations.dead_letter_index.follower._EVERY_SECONDS", 0.01)
        index.run(stop)
    assert (looks, index.trouble) == ([(True, False), (is_complete, True)], "")
