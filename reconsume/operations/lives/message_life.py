"""The history of a message: every record of it that Kafka still has, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import partitions_with_leader
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.delay_levels.wire.properties import (
    DLQ_ERRORS,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    REPLAY_ID,
    count_property,
    text_property,
)
from reconsume.delay_levels.wire.resend import DeadLetterInfo, born_ms_of, is_same_message
from reconsume.operations.dead_letters import DeadLetterRecord

_MOST: Final = 50_000
"""Maximum of records to read for one message."""
_SECONDS: Final = 10.0
WAITED: Final = "waited"
DELIVERED: Final = "delivered"
DIED: Final = "died"


@dataclass(frozen=True, slots=True)
class LifeStep:
    """A record of a message.

    Attributes:
        kind: `waited` (on a delay topic), `delivered` (to the retry topic) or `died`.
        attempt: how often it had been sent back by then; None if unknown.
        replay_id: the replay before it; None without one.
        cause: the cause of the send-back, if the record has it.
    """

    kind: str
    at_ms: int
    topic: str
    partition: int
    offset: int
    attempt: int | None
    replay_id: str | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class MessageLife:
    """The history of a message.

    Attributes:
        steps: the records in the order of time.
        read: the number of records that were read.
        is_whole: whether all possible places were read.
    """

    steps: list[LifeStep]
    read: int
    is_whole: bool


def read_life(cluster: Cluster, group: str, letter: DeadLetterRecord) -> MessageLife:
    """Read the waits, deliveries and deaths of a dead letter's message, at most 50,000 records of all messages.

    Args:
        cluster: the installation.
        group: the group of the dead letter.
        letter: a dead letter of the message.

    Raises:
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    admin, names = cluster.admin, cluster.names
    own = {names.retry(group): DELIVERED, names.dead_letter(group): DIED}
    topics = {topic: count for topic, count in admin.topics().items() if names.is_scheduled(topic) or topic in own}
    info = letter.letter
    known = [one for one in (info.first_failure_ms, info.born_ms) if one is not None and 0 < one <= letter.stored_ms]
    partitions, lost = partitions_with_leader(admin, topics)
    starts = admin.offsets_at(partitions, known[0] if known else letter.stored_ms)
    ends = admin.end_offsets(partitions)
    if letter.state is None:
        ends |= admin.offsets_at(partitions, letter.stored_ms + 1)
    spans: dict[Partition, tuple[int, int]] = {}
    left = _MOST
    # The group's own topics first: they have fewer records of other messages.
    for where in sorted(partitions, key=lambda one: (one[0] not in own, ends[one] - starts[one])):
        width = max(0, ends[where] - starts[where])
        spans[where] = (starts[where], starts[where] + min(width, max(left, 0)))
        left -= width
    steps, read = [], 0
    with RangeReader(cluster.base, f"{names.prefix}dlq") as reader:
        for one in reader.records(spans, within_seconds=_SECONDS):
            read += 1
            step = _step(one, own.get(one.topic, WAITED), group, info)
            if step is not None:
                steps.append(step)
        is_whole = not lost and left >= 0 and not reader.unread
    return MessageLife(sorted(steps, key=lambda one: (one.at_ms, one.kind != WAITED, one.offset)), read, is_whole)


def _step(read: ReadRecord, kind: str, group: str, info: DeadLetterInfo) -> LifeStep | None:
    """Return the step of a record; None for another message or group."""
    headers = read.headers
    try:
        if text_property(headers, ORIGIN_MESSAGE_ID) != info.origin_message_id:
            return None
        if not is_same_message(born_ms_of(headers), info.born_ms):
            return None
        if kind == WAITED and text_property(headers, REAL_TOPIC) not in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            return None
        return LifeStep(
            *(kind, read.stored_ms, read.topic, read.partition, read.offset),
            count_property(headers, RECONSUME_TIME),
            text_property(headers, REPLAY_ID),
            text_property(headers, DLQ_ERRORS + "message"),
        )
    except MalformedProperty:
        return None
