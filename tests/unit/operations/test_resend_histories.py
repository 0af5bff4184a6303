"""The histories of messages that share an id: a recreated topic has other records at the same offsets."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.operations import resend
from reconsume.operations.dead_letters import record_of

CLUSTER = Cluster(Settings(bootstrap_servers="nowhere:1"))
DEAD, LANE = CLUSTER.names.dead_letter("g"), CLUSTER.names.delay(0)


def record(topic: str, offset: int, born_ms: int | None, **more: str) -> ReadRecord:
    headers = {"ORIGIN_MESSAGE_ID": "flights/0/0"} | more
    if born_ms is not None:
        headers["BORN_TIMESTAMP"] = str(born_ms)
    named = [(name, text.encode()) for name, text in headers.items()]
    return ReadRecord(topic, 0, offset, None, b"v", named, 1_000 + offset)


def copy(offset: int, born_ms: int | None, times: str = "1") -> ReadRecord:
    return record(LANE, offset, born_ms, REAL_TOPIC="%RETRY%g", REPLAY_ID="x", REPLAY_TIMES=times)


class Reader:
    """Reads fixed records, whatever the ranges."""

    all: Sequence[ReadRecord] = ()

    def __init__(self, *_: Any, **_more: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def records(self, *_: Any, **_more: Any) -> Iterator[ReadRecord]:
        return iter(self.all)


@pytest.mark.parametrize(
    ("births", "copies", "statuses"),
    [
        ((100, 200), [], ["send", "send"]),
        ((100, 100), [], ["superseded", "send"]),
        ((100, None), [], ["superseded", "send"]),
        ((None, 100), [], ["superseded", "send"]),
        ((100, 200, 100), [], ["superseded", "send", "send"]),
        ((100, None, 200), [], ["superseded", "superseded", "send"]),
        ((100, 200), [copy(9, 100)], ["replayed", "send"]),
        ((100, 200), [copy(9, None)], ["replayed", "replayed"]),
        ((100, None), [copy(9, 200)], ["superseded", "replayed"]),
        ((100, 200), [copy(-9, 200, times="2")], ["send", "capped"]),
    ],
)
def test_records_of_one_id_that_were_born_at_different_times_are_different_messages(
    births: Sequence[int | None], copies: list[ReadRecord], statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [record(DEAD, offset, born_ms) for offset, born_ms in enumerate(births)]
    ends = {(DEAD, 0): 0, (LANE, 0): 0}
    admin = SimpleNamespace(offsets_at=lambda *_, **__: ends, end_offsets=lambda *_, **__: ends)
    monkeypatch.setitem(CLUSTER.__dict__, "admin", admin)
    monkeypatch.setattr(resend, "find_partitions", lambda *_: [(DEAD, 0)])
    monkeypatch.setattr(resend, "find_lane", lambda _cluster: [(LANE, 0)])
    monkeypatch.setattr(resend, "RangeReader", Reader)
    monkeypatch.setattr(Reader, "all", [*letters, *copies])
    histories = resend.Histories(CLUSTER, "g", to_the_last=False)
    found = [record_of("g", one) for one in letters]
    for one in found:
        histories.add(one)
    histories.read()
    assert [resend.judge(one, histories.of(one), None, 2).status for one in found] == statuses


def test_a_copy_with_an_unreadable_time_of_birth_counts_for_all_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = copy(9, None)._replace(headers=[*copy(9, None).headers, ("BORN_TIMESTAMP", b"long ago")])
    test_records_of_one_id_that_were_born_at_different_times_are_different_messages(
        (100, 200), [broken], ["replayed", "replayed"], monkeypatch
    )


def test_a_history_is_small_also_with_a_long_id() -> None:
    histories, count = resend.Histories(CLUSTER, "g", to_the_last=False), 10_000
    tracemalloc.start()
    try:
        for offset in range(count):
            message_id = "a" * 500 + str(offset)
            histories.add(record_of("g", record(DEAD, offset, 10**12 + offset, ORIGIN_MESSAGE_ID=message_id)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / count < 400
