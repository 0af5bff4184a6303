"""The quarantine may be large: it is read record by record, and given back in parts."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.delay_levels.wire.dead_letter_states import RESOLVED, DeadLetterState, encode_state
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import RELEASED, Quarantined, QuarantineMark, quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.quarantine import changes, records
from reconsume.operations.quarantine.records import QuarantineCounter, find_quarantined, read_quarantine
from reconsume.operations.record_address import RecordAddress

TOPIC = "reconsume.QUARANTINE"
COUNT, VALUE_BYTES = 1_000, 100_000
CLUSTER = Cluster(Settings(bootstrap_servers="nowhere:1"))


def message(offset: int, headers: list[Header], value: bytes = b"") -> ReadRecord:
    return ReadRecord(TOPIC, 0, offset, None, value, headers, 1_000)


def there(start: int) -> Iterator[ReadRecord]:
    """Two offsets apart, as transactions of one record leave them; five were released, one resolved."""
    headers = quarantine_headers([], "why", Position("reconsume.DELAY.1s", 0, 7), 5)
    for offset in range(0, 2 * COUNT, 2):
        if offset >= start:
            yield message(offset, headers, bytes(VALUE_BYTES))
    behind: list[list[Header]] = [[("written by", b"a stranger")], [("QUARANTINE_RELEASED", b"9" * 5_000)]]
    behind += [QuarantineMark(offset, RELEASED).headers() for offset in range(0, 20, 4)]
    behind += [QuarantineMark(2, RESOLVED).headers()]
    value = encode_state(DeadLetterState(RESOLVED, 7, "alice", "known")).encode()
    for offset, told in enumerate(behind, start=2 * COUNT):
        if offset >= start:
            yield message(offset, told, value)


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = {(TOPIC, 0): (0, 2 * COUNT + 8)}
    monkeypatch.setattr(records, "find_spans", lambda _cluster, **_: spans)
    monkeypatch.setattr(
        records,
        "read_spans",
        lambda _cluster, spans: (one for first, end in spans.values() for one in there(first) if one.offset < end),
    )


def test_reading_it_takes_the_memory_of_one_record() -> None:
    tracemalloc.start()
    try:
        waiting = sum(one.state == "OPEN" for one in read_quarantine(CLUSTER))
        counted = QuarantineCounter().look(CLUSTER)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (waiting, counted) == (COUNT - 6, Count(COUNT - 6, exact=True))
    assert most < 10 * VALUE_BYTES, f"{COUNT * VALUE_BYTES:,} bytes are there"


@pytest.mark.parametrize(
    ("place", "state"),
    [
        (RecordAddress(0, 0), "RELEASED"),
        (RecordAddress(0, 2), "RESOLVED"),
        (RecordAddress(0, 6), "OPEN"),
        (RecordAddress(0, 16), "RELEASED"),
        (RecordAddress(0, 1), None),
        (RecordAddress(0, 2 * COUNT), None),
        (RecordAddress(0, 2 * COUNT + 1), None),
        (RecordAddress(0, 2 * COUNT + 8), None),
        (RecordAddress(1, 0), None),
    ],
)
def test_one_is_found_by_its_place_with_what_became_of_it(place: RecordAddress, state: str | None) -> None:
    found = find_quarantined(CLUSTER, place)
    assert (None if found is None else found.state) == state
    resolution = None if found is None else found.resolution
    assert (None if resolution is None else (resolution.by, resolution.why)) == (
        ("alice", "known") if state == "RESOLVED" else None
    )


@pytest.mark.parametrize("target", ["%RETRY%departures", "%DLQ%departures", "departures"])
def test_a_flood_that_is_given_back_goes_to_its_own_groups_bulk_partition(target: str) -> None:
    """Not to the one of a group that is called as its header is written."""
    headers = quarantine_headers([("REAL_TOPIC", target.encode())], "why", Position("reconsume.DELAY.1s", 0, 7), 5)
    read = next(read_quarantine(CLUSTER))
    asked: list[str] = []
    one = dataclasses.replace(read, quarantined=Quarantined.of(headers))

    def choose(group: str, _key: bytes | None) -> int:
        asked.append(group)
        return 5

    writer = SimpleNamespace(write_after=lambda back, _marks: asked.extend(str(record.partition) for record in back))
    changes._release(CLUSTER.names, {}, choose, [one], cast("Any", writer))
    assert asked == ["departures", "5"]


def test_what_is_given_back_together_is_bounded_in_records_and_in_bytes() -> None:
    parts = list(changes._parts(read_quarantine(CLUSTER)))
    assert sum(map(len, parts)) == COUNT
    assert max(sum(len(one.value or b"") for one in part) for part in parts) < 8 * 1024 * 1024 + VALUE_BYTES


def test_a_large_one_is_counted_step_by_step_and_its_marks_are_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_COUNTED_AT_ONCE", COUNT)
    counter = QuarantineCounter()
    assert [counter.look(CLUSTER) for _ in range(4)] == [
        Count(COUNT // 2 + COUNT + 8, exact=False),
        Count(COUNT + 8, exact=False),
        *[Count(COUNT - 6, exact=True)] * 2,
    ]
    # The first ten are deleted.
    monkeypatch.setattr(records, "_COUNTED_AT_ONCE", 1 << 62)
    monkeypatch.setattr(records, "find_spans", lambda _cluster, **_: {(TOPIC, 0): (20, 2 * COUNT + 8)})
    assert counter.look(CLUSTER) == Count(COUNT - 10, exact=True)


def test_what_is_closed_is_neither_read_again_nor_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = quarantine_headers([], "why", Position("reconsume.DELAY.1s", 0, 7), 5)
    log, read = [message(0, headers), message(2, headers)], list[int]()

    def read_spans(_cluster: object, spans: dict[tuple[str, int], tuple[int, int]]) -> Iterator[ReadRecord]:
        [(start, end)] = spans.values()
        for one in log:
            if start <= one.offset < end:
                read.append(one.offset)
                yield one

    monkeypatch.setattr(records, "find_spans", lambda *_, **__: {(TOPIC, 0): (0, log[-1].offset + 1)})
    monkeypatch.setattr(records, "read_spans", read_spans)
    counter = QuarantineCounter()
    assert (counter.look(CLUSTER).number, counter.closed) == (2, {})
    log += [message(at, QuarantineMark(offset, RESOLVED).headers()) for at, offset in ((4, 2), (6, 0))]
    assert (counter.look(CLUSTER).number, counter.closed) == (0, {(TOPIC, 0): 7})
    assert not counter._states._resolved
    read.clear()
    assert list(read_quarantine(CLUSTER, counter.closed)) == []
    log.append(message(8, headers))
    assert [one.place.offset for one in read_quarantine(CLUSTER, counter.closed)] == [8]
    assert set(read) == {8}
    assert (counter.look(CLUSTER).number, counter.closed) == (1, {(TOPIC, 0): 7})


@pytest.mark.parametrize("stored", ["²", "9" * 5_000, "", "-1"])
def test_a_record_with_an_odd_time_was_written_by_no_scheduler(stored: str) -> None:
    headers = quarantine_headers([], "why", Position("reconsume.DELAY.1s", 0, 7), 5)
    assert not records.is_quarantined([*headers[:-1], (headers[-1][0], stored.encode())])
