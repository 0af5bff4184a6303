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
    if len(set(map(_topic, polled))) == len(set(map(_partition, polled))) == 1 and not any(map(_error, polled)):
        yield _topic(polled[0]), _partition(polled[0]), False, polled
        return
    topics, partitions = map(_topic, polled), map(_partition, polled)
    start = 0
    for place, run in groupby(zip(topics, partitions, map(bool, map(_error, polled)), strict=True)):
        end = start + len(list(run))
        yield *place, polled[start:end]
        start = end
