"""The quarantine may be large: it is read record by record, and given back in parts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import quarantine_headers, release_marker
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations import quarantine
from reconsume.operations.quarantine import count_quarantined, find_quarantined, read_quarantine
from reconsume.operations.record_address import RecordAddress

TOPIC = "reconsume.QUARANTINE"
COUNT, VALUE_BYTES = 1_000, 100_000
CLUSTER = Cluster(Settings(bootstrap_servers="nowhere:1"))


def message(offset: int, headers: list[Header], value: bytes = b"") -> ReadRecord:
    return ReadRecord(TOPIC, 0, offset, None, value, headers, 1_000)


def records(start: int) -> Iterator[ReadRecord]:
    """Two offsets apart, as transactions of one record leave them; of the first ten every other one was released."""
    headers = quarantine_headers([], "why", Position("reconsume.DELAY.1s", 0, 7), 5)
    for offset in range(0, 2 * COUNT, 2):
        if offset >= start:
            yield message(offset, headers, bytes(VALUE_BYTES))
    behind: list[list[Header]] = [[("written by", b"a stranger")], *map(release_marker, range(0, 20, 4))]
    for offset, told in enumerate(behind, start=2 * COUNT):
        if offset >= start:
            yield message(offset, told)


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = {(TOPIC, 0): (0, 2 * COUNT + 6)}
    monkeypatch.setattr(quarantine, "_spans", lambda _cluster, **_: spans)
    monkeypatch.setattr(
        quarantine,
        "_read",
        lambda _cluster, spans: records(min((first for first, _ in spans.values()), default=1 << 62)),
    )


def test_reading_it_takes_the_memory_of_one_record() -> None:
    tracemalloc.start()
    try:
        waiting = sum(not one.is_released for one in read_quarantine(CLUSTER))
        counted = count_quarantined(CLUSTER)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert waiting == counted == COUNT - 5
    assert most < 10 * VALUE_BYTES, f"{COUNT * VALUE_BYTES:,} bytes are there"


@pytest.mark.parametrize(
    ("place", "is_released"),
    [
        (RecordAddress(0, 0), True),
        (RecordAddress(0, 2), False),
        (RecordAddress(0, 16), True),
        (RecordAddress(0, 1), None),
        (RecordAddress(0, 2 * COUNT), None),
        (RecordAddress(0, 2 * COUNT + 1), None),
        (RecordAddress(0, 2 * COUNT + 6), None),
        (RecordAddress(1, 0), None),
    ],
)
def test_one_is_found_by_its_place_with_what_became_of_it(place: RecordAddress, is_released: bool | None) -> None:
    found = find_quarantined(CLUSTER, place)
    assert (None if found is None else found.is_released) == is_released


def test_what_is_given_back_together_is_bounded_in_records_and_in_bytes() -> None:
    parts = list(quarantine._parts(read_quarantine(CLUSTER)))
    assert sum(map(len, parts)) == COUNT
    assert max(sum(len(one.value or b"") for one in part) for part in parts) < 8 * 1024 * 1024 + VALUE_BYTES
