"""The records of a consumer, by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from confluent_kafka import Message

_topic, _partition, _error = Message.topic, Message.partition, Message.error


def by_partition(
    polled: Sequence[Message],
) -> Iterator[tuple[str | None, int | None, bool, Sequence[Message]]]:
    """Topic, partition, whether these are errors, and what came of it in a row.

    In C as far as it goes: a line of Python for each message shows in the rate.
    """
    if not polled:
        return
    size = len(polled)
    topics, partitions = list(map(_topic, polled)), list(map(_partition, polled))
    if topics.count(topics[0]) == partitions.count(partitions[0]) == size and not any(map(_error, polled)):
        yield topics[0], partitions[0], False, polled
        return
    start = 0
    for place, run in groupby(zip(topics, partitions, map(bool, map(_error, polled)), strict=True)):
        end = start + len(list(run))
        yield *place, polled[start:end]
        start = end
