"""What earlier owners of a partition have committed, and what they have done above that."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from reconsume.bridge.admin import Partition
from reconsume.bridge.kafka import metadata_of, translate
from reconsume.delay_levels.done_apart import decode_either
from reconsume.delay_levels.errors import MalformedProperty

__all__ = ["Left", "partitions_of", "what_was_left"]

logger = logging.getLogger(__name__)

_SECONDS: Final = 10.0


class Left(NamedTuple):
    """Of one commit: where to go on, and what is done already from there on."""

    offset: int
    done: frozenset[int]


def what_was_left(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, Left]:
    """What is committed; partitions without an offset are left out.

    Raises:
        ReconsumeError: nobody says.
    """
    asked = [TopicPartition(*where) for where in partitions]
    try:
        committed = consumer.committed(asked, _SECONDS)
    except KafkaException as error:
        raise translate(error, f"asking for the offsets of {asked[0].topic}") from error
    return {(one.topic, one.partition): Left(one.offset, _done(one)) for one in committed if one.offset >= 0}


def _done(committed: TopicPartition) -> frozenset[int]:
    try:
        return decode_either(committed.offset, metadata_of(committed))
    except MalformedProperty as error:
        logger.warning("%s-%d: %s; it is taken as empty", committed.topic, committed.partition, error)
        return frozenset()


def partitions_of(messages: Sequence[Message]) -> set[Partition]:
    """Where these records stand."""
    return {(one.topic() or "", one.partition() or 0) for one in messages if one.error() is None}
