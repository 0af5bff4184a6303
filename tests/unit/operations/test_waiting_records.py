"""Which waiting records may be withdrawn, and delivered early."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import pytest

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Span
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.delay_levels.wire.timer import LONGEST_DELAY_MS
from reconsume.operations import waiting
from reconsume.operations.lives.group_waits import count_group_waits
from reconsume.operations.waiting import WaitingRecord, check_withdrawable, list_waiting

NOW = 1_700_000_000_000
MESSAGE = WaitingRecord(
    Position("reconsume.DELAY.60d", 0, 1), "delayed message", "flights", "o/0/1", "key", None, 1, None, NOW
)


def test_a_message_that_is_due_after_its_withdrawal_is_forgotten_is_not_withdrawn() -> None:
    late = replace(MESSAGE, due_ms=NOW + LONGEST_DELAY_MS * 3 // 2)
    with pytest.raises(
        IllegalSetting, match=r"DELAY\.60d/0/1 is due in 60 days; a withdrawal is remembered for 40 only"
    ):
        check_withdrawable(late, NOW)
    for now, due_ms in ((NOW + LONGEST_DELAY_MS // 2, late.due_ms), (NOW, None)):
        check_withdrawable(replace(late, due_ms=due_ms), now)


class Reader:
    """Reads small records of the asked ranges."""

    def __init__(self, *_: Any, **_more: Any) -> None:
        self.unread: dict[Partition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def records(self, ranges: dict[Partition, tuple[int, int]], **_: Any) -> Iterator[ReadRecord]:
        for where, span in ranges.items():
            for offset in range(*span):
                yield ReadRecord(*where, offset, None, None, [("REAL_TOPIC", b"%RETRY%g")], NOW)


def test_what_small_partitions_leave_of_their_shares_is_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(Settings(bootstrap_servers="nowhere:1"))
    lanes = [cluster.names.delay(seconds * 1_000) for seconds in (10, 30, 60)]
    monkeypatch.setitem(
        cluster.__dict__, "admin", SimpleNamespace(topics=lambda: dict.fromkeys(lanes, 1), leaderless=lambda _: set())
    )
    spans = {(lane, 0): Span(5, 5 + count) for lane, count in zip(lanes, (30_000, 20_000, 1_000), strict=True)}
    monkeypatch.setattr(waiting, "unfinished", lambda *_: spans)
    monkeypatch.setattr(waiting, "RangeReader", Reader)
    found, listed = count_group_waits(cluster, "g"), list_waiting(cluster)
    assert found.by_topic == {lanes[0]: 9_500, lanes[1]: 9_500, lanes[2]: 1_000}
    assert (found.read, found.is_whole, listed.looked_at, listed.is_whole) == (20_000, False, 20_000, False)
    spans[lanes[0], 0] = Span(5, 6)
    spans[lanes[1], 0] = Span(5, 18_000)
    found = count_group_waits(cluster, "g")
    assert (found.read, found.is_whole) == (1 + 17_995 + 1_000, True)
