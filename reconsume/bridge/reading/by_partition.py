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
    start = 0
    if not any(map(_error, polled)) and len(set(map(_topic, polled))) == 1:
        topic = _topic(polled[0])
        for partition, same in groupby(map(_partition, polled)):
            end = start + len(list(same))
            yield topic, partition, False, polled[start:end]
            start = end
        return
    topics, partitions = map(_topic, polled), map(_partition, polled)
    for place, run in groupby(zip(topics, partitions, map(bool, map(_error, polled)), strict=True)):
        end = start + len(list(run))
        yield *place, polled[start:end]
        start = end
