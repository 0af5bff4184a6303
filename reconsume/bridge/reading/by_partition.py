"""The records of a consumer, by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from reconsume.bridge.process.polled_records import PolledRecord, error_of, partition_of, topic_of


def by_partition(
    polled: Sequence[PolledRecord],
) -> Iterator[tuple[str | None, int | None, bool, Sequence[PolledRecord]]]:
    """Yield topic, partition, whether these are errors, and consecutive records.

    Mostly in C: a line of Python for each message lowers the rate.
    """
    if not polled:
        return
    start = 0
    if not any(map(error_of, polled)) and len(set(map(topic_of, polled))) == 1:
        topic = topic_of(polled[0])
        for partition, same in groupby(map(partition_of, polled)):
            end = start + len(list(same))
            yield topic, partition, False, polled[start:end]
            start = end
        return
    topics, partitions = map(topic_of, polled), map(partition_of, polled)
    for place, run in groupby(zip(topics, partitions, map(bool, map(error_of, polled)), strict=True)):
        end = start + len(list(run))
        yield *place, polled[start:end]
        start = end
