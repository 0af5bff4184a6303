"""A partition that has more to read, and of which nothing is read, has stalled."""

from __future__ import annotations

import pytest

from reconsume.bridge.scheduler.queues.backlog import PartitionHead
from reconsume.bridge.scheduler.stalls import StallWatch

WHERE = ("reconsume.DELAY.1s", 3)


def head(read_to: int | None, *, paused: bool = False) -> PartitionHead:
    return PartitionHead(WHERE, 1_000, 0, 0, None, read_to, paused)


Seen = tuple[PartitionHead, int]
"""The partition, and its end."""
STANDS, DONE, NEW, PAUSED = (head(5), 9), (head(9), 9), (head(None), 9), (head(5, paused=True), 9)


@pytest.mark.parametrize(
    ("seen", "stalled"),
    [
        pytest.param([(0, STANDS), (40, STANDS), (80, STANDS), (120, STANDS)], True, id="nothing is read"),
        pytest.param([(0, STANDS), (40, STANDS), (80, STANDS), (120, (head(5), 12))], True, id="and more comes"),
        pytest.param([(0, NEW), (40, NEW), (80, NEW), (120, NEW)], True, id="nothing was ever read"),
        pytest.param([(0, STANDS), (40, STANDS), (80, STANDS), (119, STANDS)], False, id="not for long"),
        pytest.param([(0, STANDS), (40, STANDS), (80, (head(6), 9)), (120, (head(6), 9))], False, id="it is slow"),
        pytest.param([(0, STANDS), (40, DONE), (80, DONE), (120, (head(9), 12))], False, id="it had come to its end"),
        pytest.param([(0, DONE), (40, DONE), (80, DONE), (120, DONE)], False, id="there is no more"),
        pytest.param([(0, PAUSED), (40, PAUSED), (80, PAUSED), (120, PAUSED)], False, id="it waits on purpose"),
        pytest.param([(0, STANDS), (40, None), (80, STANDS), (120, STANDS)], False, id="another worker had it"),
        pytest.param([(0, STANDS), (40, STANDS), (120, STANDS)], False, id="nobody could look for long"),
    ],
)
def test_a_partition_has_stalled(seen: list[tuple[float, Seen | None]], *, stalled: bool) -> None:
    watch, found = StallWatch(), list[str]()
    for seconds, one in seen:
        found = watch.look(seconds * 1_000, [one[0]] if one else [], {WHERE: one[1]} if one else {})
    assert bool(found) == stalled


def test_it_is_told_in_words() -> None:
    watch = StallWatch(patience_ms=0)
    assert watch.look(0, [head(5)], {WHERE: 9}) == ["reconsume.DELAY.1s-3 stands at 5 of 9"]
