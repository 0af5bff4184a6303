"""Send-backs of the last minutes on the delay topics, which a dead process may have written.

Guarantees: the copies themselves are the sidecar's memory. A new process reads those of the last minutes before it
accepts calls. A separate journal would need a transaction with each copy, and a transaction that a crash leaves open
would block every reader of the delay topics.
Tests: tests/integration/sidecar/test_process.py, tests/integration/bridge/test_recent_send_backs.py.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.delay_levels.errors import IllegalName, KafkaNotReachable, MalformedProperty
from reconsume.delay_levels.wire.names import DLQ_PREFIX, TopicNames, prefix_and_group
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    REPLAY_ID,
    REPLAY_TIMES,
    Headers,
    count_property,
    text_property,
)
from reconsume.delay_levels.wire.resend import short_id

logger = SafeLogger(__name__)

_NEWEST_MS: Final = 1_000
RECENT_GROUP: Final = "reconsume.recent"


class Attempt(NamedTuple):
    """The identity of an attempt: message, group, and number of send-backs.

    A replay restarts at `reconsume_times` 0, so its plan and number are part of the identity.
    """

    group: str
    origin_message_id: str
    reconsume_times: int
    replay: tuple[bytes | None, ...]


class RecentSendBack(NamedTuple):
    """A send-back on a delay topic or in the inbox.

    Attributes:
        level: None in the inbox.
        due_ms: when it is due; None in the inbox.
    """

    dead_letter: bool
    level: int | None
    due_ms: int | None
    born_ms: int | None
    in_inbox: bool


def attempt_of(group: str, origin_message_id: str, reconsume_times: int, headers: Headers) -> Attempt:
    """Return the attempt that a send-back with these headers and this `reconsume_times` begins; its id is bounded."""
    last = dict(headers)
    return Attempt(group, short_id(origin_message_id), reconsume_times, (last.get(REPLAY_ID), last.get(REPLAY_TIMES)))


def recent_send_backs(
    base: Mapping[str, Any],
    names: TopicNames,
    since_ms: int,
    groups: Container[str] | None,
    stop: threading.Event,
    *,
    now_ms: int,
    most_bytes: int,
) -> Iterator[tuple[Attempt, RecentSendBack]]:
    """Yield committed send-backs appended between then and now, the last seconds first.

    This waits for the end of open transactions, which takes seconds at most.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        since_ms: a moment by the brokers' clock.
        groups: the groups; None means all.
        stop: ends the read early.
        now_ms: the current time.
        most_bytes: the maximum to read, of records of all groups.

    Raises:
        KafkaNotReachable: no broker answers.
        KafkaRefused: rights are missing.
    """
    for read in _appended(base, names, list(windows(since_ms, now_ms)), most_bytes, stop):
        try:
            found = _read(read, names)
        except (MalformedProperty, IllegalName) as error:
            logger.info("%s-%s@%s: %s", *read[:3], error)
            continue
        if found is not None and (groups is None or found[0].group in groups):
            yield found


def windows(since_ms: int, now_ms: int) -> Iterator[int]:
    """Yield the starts of time windows: the newest is a second long, each earlier one twice as long as the next."""
    begin, length = now_ms, _NEWEST_MS
    while begin > since_ms:
        begin = max(since_ms, begin - length)
        length *= 2
        yield begin


def _appended(
    base: Mapping[str, Any], names: TopicNames, begins: Sequence[int], most_bytes: int, stop: threading.Event
) -> Iterator[ReadRecord]:
    """Read the records of one window after the other."""
    admin = KafkaAdmin(base, "reconsume-recent", stop=stop)
    partitions = [where for where in all_partitions(admin.topics()) if names.is_scheduled(where[0])]
    # The ends first: records appended later are not from a dead process.
    ends: Mapping[Partition, int] = admin.end_offsets(partitions, uncommitted=True)
    left = most_bytes
    with RangeReader(base, RECENT_GROUP, seconds=float("inf")) as reader:
        for begin in begins:
            starts = admin.offsets_at(partitions, begin)
            ranges = {where: (starts[where], ends[where]) for where in partitions}
            for read in reader.records(ranges, stop=stop):
                left -= read.size
                if left < 0:
                    logger.warning(
                        "only %d MiB of recent send-backs are read: repeated calls may not be "
                        "recognised if they are older than %s",
                        *(most_bytes // 1024 // 1024, datetime.fromtimestamp(begin / 1000, UTC).isoformat()),
                    )
                    return
                yield read
            if reader.unread:
                raise KafkaNotReachable("reading the send-backs of the last minutes: stopped before their end")
            ends = {where: min(starts[where], ends[where]) for where in partitions}


def _read(read: ReadRecord, names: TopicNames) -> tuple[Attempt, RecentSendBack] | None:
    topic, headers = read.topic, read.headers
    prefix, group = prefix_and_group(text_property(headers, REAL_TOPIC) or "")
    if not prefix:
        return None
    dead_letter = prefix == DLQ_PREFIX
    in_inbox = topic == names.send_back
    identity = text_property(headers, ORIGIN_MESSAGE_ID)
    if identity is None:
        return None
    times = (count_property(headers, RECONSUME_TIME) or 0) + (1 if in_inbox else 0)
    due_ms = None if in_inbox else read.stored_ms + names.delay_ms(topic)
    level = None if in_inbox or dead_letter else count_property(headers, DELAY)
    written = RecentSendBack(dead_letter, level, due_ms, count_property(headers, BORN_TIMESTAMP), in_inbox)
    return attempt_of(group, identity, times, headers), written
