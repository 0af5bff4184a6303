"""Records with large headers: what is in memory together is bounded by all their bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast
from unittest.mock import MagicMock

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Span
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.bridge.writing.batch_size import BatchSize
from reconsume.console import cluster as cluster_module
from reconsume.console.cluster import ConsoleCluster
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import JobProgress, JobSpec, encode_job_progress
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import Quarantined
from reconsume.delay_levels.wire.resend import SEND
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations import dead_letters, resend, waiting
from reconsume.operations.dead_letter_index import follower
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import DeadLetterRecord, read_page, record_of
from reconsume.operations.jobs import letter_files, work
from reconsume.operations.jobs.letter_files import letter_file
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.run import JobRun
from reconsume.operations.jobs.work import LetterOutcome, Resending, with_outcomes
from reconsume.operations.lives import delayed_messages as deliver_module
from reconsume.operations.quarantine import changes
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import ResendVerdict
from reconsume.operations.waiting import WaitingRecord, describe_waiting

MIB = 1024 * 1024
CLUSTER = Cluster(Settings(bootstrap_servers="nowhere:1"))
DEAD = CLUSTER.names.dead_letter("g")
LANE = CLUSTER.names.delay(10_000)
LARGE: list[Header] = [("blob", bytes(MIB))]


def record(offset: int, topic: str = DEAD) -> ReadRecord:
    return ReadRecord(topic, 0, offset, b"k", b"v", LARGE, 1_000 + offset)


def letters(count: int) -> list[DeadLetterRecord]:
    return [record_of("g", record(offset)) for offset in range(count)]


class Reader:
    """Reads records of a megabyte, all of it in the headers."""

    def __init__(self, *_: Any, **_more: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def records(self, ranges: dict[tuple[str, int], tuple[int, int]], **_: Any) -> Iterator[ReadRecord]:
        for (topic, _partition), (start, end) in ranges.items():
            yield from (record(offset, topic) for offset in range(start, end))


def test_a_page_of_dead_letters_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "find_partitions", lambda *_: [(DEAD, 0)])
    monkeypatch.setattr(dead_letters, "find_spans", lambda *_: {(DEAD, 0): (0, 100)})
    monkeypatch.setattr(dead_letters, "RangeReader", Reader)
    monkeypatch.setattr(dead_letters, "StatesReader", lambda *_, **__: SimpleNamespace(of=lambda _key: None))
    monkeypatch.setitem(CLUSTER.__dict__, "admin", None)
    page = read_page(CLUSTER, "g", limit=100)
    assert (len(page.records), page.older) == (32, "0:68")


def test_a_list_of_waiting_records_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLUSTER.__dict__, "admin", SimpleNamespace(topics=lambda: {LANE: 1}, leaderless=set))
    monkeypatch.setattr(waiting, "unfinished", lambda *_: {(LANE, 0): Span(0, 100)})
    monkeypatch.setattr(waiting, "RangeReader", Reader)
    found = waiting.list_waiting(CLUSTER)
    assert (found.looked_at, found.is_whole) == (64, False)


def test_a_transaction_of_a_job_ends() -> None:
    window, work = (
        SimpleNamespace(letters=lambda: letters(20)),
        SimpleNamespace(decide=lambda _window, one: LetterOutcome(one.place, "", "sent")),
    )
    run = cast("Any", SimpleNamespace(_spec=SimpleNamespace(rate=None), _size=BatchSize(500, 8 * MIB)))
    parts = [len(part) for part, _ in JobRun._parts(run, cast("Any", work), cast("Any", window))]
    assert parts == [8, 8, 4]


def test_a_transaction_of_the_quarantine_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_PART_BYTES", 8 * MIB)
    told = Quarantined(LARGE, "why", Position(LANE, 0, 0), 0)
    records = [QuarantineRecord(RecordAddress(0, offset), b"k", b"v", told, 0, "OPEN") for offset in range(20)]
    assert [len(part) for part in changes._parts(records)] == [8, 8, 4]


def test_a_page_of_the_quarantine_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Quarantined(LARGE, "why", Position(LANE, 0, 0), 0)
    held = [QuarantineRecord(RecordAddress(0, offset), b"k", b"v", told, 0, "OPEN") for offset in range(100)]
    monkeypatch.setattr(cluster_module, "read_quarantine", lambda *_: iter(held))
    console = ConsoleCluster(CLUSTER.settings)
    assert console.quarantine(10) == (held[:10], True)
    assert console.quarantine(500) == (held[:32], True)


def test_too_many_delayed_messages_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    in_an_hour = b"%d" % (CLUSTER.clock() + 3_600_000)
    due = [("REAL_TOPIC", b"flights"), ("UNIQ_KEY", b"id"), ("TIMER_DELIVER_MS", in_an_hour)]
    waits = [
        (record(offset, LANE), describe_waiting(record(offset, LANE)._replace(headers=due), CLUSTER.names))
        for offset in range(100)
    ]
    seen: list[int] = []

    def read_waiting(*_: object) -> Iterator[tuple[ReadRecord, WaitingRecord]]:
        for one in waits:
            seen.append(one[0].offset)
            yield one

    monkeypatch.setattr(deliver_module, "read_waiting", read_waiting)
    monkeypatch.setattr(deliver_module, "read_groups", lambda _cluster: Groups())
    monkeypatch.setattr(deliver_module, "ExclusiveWriter", MagicMock())
    monkeypatch.setattr(CLUSTER, "require", lambda topic: topic)
    monkeypatch.setitem(CLUSTER.__dict__, "admin", SimpleNamespace(partitions=lambda topics: dict.fromkeys(topics, 1)))
    with pytest.raises(IllegalSetting, match="have more than 64 MiB; name fewer"):
        deliver_module.deliver_now(CLUSTER, [f"{LANE}/0/{offset}" for offset in range(100)])
    assert len(seen) == 64


def test_the_index_stores_them_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_TOGETHER_BYTES", 8 * MIB)
    with DeadLetterStore() as store:
        stored: list[int] = []
        monkeypatch.setattr(store, "add", lambda letters, _states, _read: stored.append(len(letters)))
        DeadLetterIndex(CLUSTER, store, CauseLabels())._read(map(record, range(20)), {DEAD: "g"}, {(DEAD, 0): "id"})
    assert stored == [8, 8, 4]


def test_a_parquet_file_has_groups_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(letter_files, "_BYTES_OF_A_GROUP", 8 * MIB, raising=False)
    file = letter_file("parquet", None, tmp_path / "letters.parquet")
    for one in letters(20):
        file.write(one)
    file.close()
    read = parquet.ParquetFile(tmp_path / "letters.parquet").metadata
    assert [read.row_group(number).num_rows for number in range(read.num_row_groups)] == [8, 8, 4]


def test_a_long_topic_costs_a_job_neither_its_progress_record_nor_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "read_groups", lambda _cluster: Groups())
    monkeypatch.setattr(work, "find_lane", lambda _cluster: [(CLUSTER.names.delay(0), 0)])
    spec = JobSpec("resend", "g", 0, "bob", "", DEAD, "id", {0: (0, 9)}, target="origin")
    resending = Resending(CLUSTER, Job("j", spec), CLUSTER.names.dead_letter_states)
    window: Any = SimpleNamespace(verdict=lambda one: ResendVerdict(one, SEND, 0, one.at))
    headers: list[Header] = [("RETRY_TOPIC", b"A" * MIB)]
    outcomes = [
        resending.decide(window, record_of("g", record(offset)._replace(headers=headers))) for offset in range(9)
    ]
    progress = with_outcomes(JobProgress(), outcomes)
    assert progress.counts == {"no_target": 9}
    assert len(encode_job_progress(progress)) < 4_096
    refused = LetterOutcome(RecordAddress(0, 0), "id", "too_large", "A" * MIB)
    assert len(encode_job_progress(with_outcomes(progress, [refused] * 9))) < 8_192


def test_long_ids_cost_a_job_no_memory_and_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def letter(offset: int) -> ReadRecord:
        headers: list[Header] = [("ORIGIN_MESSAGE_ID", b"A" * MIB + b"%d" % (offset % 20))]
        return record(offset)._replace(headers=headers)

    admin = SimpleNamespace(offsets_at=lambda *_, **__: {(DEAD, 0): 0}, end_offsets=lambda *_, **__: {(DEAD, 0): 40})
    monkeypatch.setitem(CLUSTER.__dict__, "admin", admin)
    monkeypatch.setattr(resend, "find_partitions", lambda *_: [(DEAD, 0)])
    monkeypatch.setattr(resend, "find_lane", lambda _cluster: [])
    monkeypatch.setattr(Reader, "records", lambda *_, **__: map(letter, range(40)))
    monkeypatch.setattr(resend, "RangeReader", Reader)
    histories = resend.Histories(CLUSTER, "g", to_the_last=False)
    tracemalloc.start()
    try:
        for offset in range(20):
            histories.add(record_of("g", letter(offset)))
        histories.read()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MIB
    assert [histories.of(record_of("g", letter(offset))).newest[2] for offset in range(20)] == list(range(20, 40))
