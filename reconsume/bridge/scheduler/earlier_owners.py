"""What earlier owners of a partition have committed, and what they have done above that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from reconsume.bridge.admin import Partition
from reconsume.bridge.kafka import metadata_of, translate
from reconsume.bridge.known_offsets import KnownOffsets
from reconsume.delay_levels.done_apart import decode_either
from reconsume.delay_levels.errors import KafkaNotReachable, MalformedProperty

__all__ = ["Left", "what_was_left"]

logger = logging.getLogger(__name__)

_SECONDS: Final = 3.0
_TRIES: Final = 4
"""A question that is asked while the coordinator is away may get no answer when it is back; a new one does."""


class Left(NamedTuple):
    """Of one commit: where to go on, and what is done already from there on."""

    offset: int
    done: frozenset[int]


def what_was_left(
    consumer: Consumer, partitions: Iterable[Partition], known: KnownOffsets, stop: threading.Event
) -> dict[Partition, Left]:
    """What is committed; partitions without an offset are left out.

    What the group's coordinator has lost is committed again.

    Raises:
        ReconsumeError: nobody says.
    """
    found = known.ask(partial(_committed, consumer, stop), partitions, stop)
    if found.restored:
        try:
            consumer.commit(offsets=found.restored, asynchronous=False)
        except KafkaException as error:
            # It is known here all the same, and the next delivery commits more.
            logger.warning("%s", translate(error, "committing again what the group's coordinator has lost"))
    return {(one.topic, one.partition): Left(one.offset, _done(one)) for one in found.committed if one.offset >= 0}


def _committed(consumer: Consumer, stop: threading.Event, partitions: list[TopicPartition]) -> list[TopicPartition]:
    doing = f"asking for the offsets of {partitions[0].topic}"
    for tries_left in reversed(range(_TRIES)):
        try:
            found = consumer.committed(partitions, _SECONDS)
        except KafkaException as error:
            why = translate(error, doing)
            if not tries_left or stop.is_set() or not isinstance(why, KafkaNotReachable):
                raise why from error
        else:
            break
    for one in found:
        if one.error is not None:
            raise translate(one.error, doing)
    return found


def _done(committed: TopicPartition) -> frozenset[int]:
    try:
        return decode_either(committed.offset, metadata_of(committed))
    except MalformedProperty as error:
        logger.warning("%s-%d: %s; it is taken as empty", committed.topic, committed.partition, error)
        return frozenset()
