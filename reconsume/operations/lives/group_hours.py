"""The number of a group's delivered retries in each hour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import partitions_with_leader
from reconsume.bridge.reading.range_reader import RangeReader

HOURS: Final = 72
_HOUR_MS: Final = 3_600_000
_READ_UP_TO: Final = 2_000
"""Maximum of offsets to read; beyond that, offsets are subtracted."""
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RetryHours:
    """Retries by the hour of their delivery.

    Attributes:
        first_ms: the start of the oldest hour.
        by_hour: counts, the oldest hour first, the current hour last.
        is_exact: whether all records were counted; partitions without a leader are left out, and differences of
            offsets include the end marks of transactions.
        since_ms: when the oldest retry in Kafka was delivered; None if there is none.
    """

    first_ms: int
    by_hour: list[int]
    is_exact: bool
    since_ms: int | None


def count_retry_hours(cluster: Cluster, group: str) -> RetryHours:
    """Count the records of the group's retry topic in the last 72 hours.

    Raises:
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    admin, topic = cluster.admin, cluster.names.retry(group)
    partitions, lost = partitions_with_leader(admin, admin.partitions([topic]))
    hour = int(cluster.clock()) // _HOUR_MS
    first = hour - HOURS + 1
    if not partitions:
        return RetryHours(first * _HOUR_MS, [0] * HOURS, is_exact=not lost, since_ms=None)
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions)
    since_ms = _first_ms(cluster, partitions, starts, ends)
    begins = admin.offsets_at(partitions, first * _HOUR_MS)
    if sum(ends[where] - begins[where] for where in partitions) <= _READ_UP_TO:
        found = [0] * HOURS
        with RangeReader(cluster.base, f"{cluster.names.prefix}status") as reader:
            spans = {where: (begins[where], max(begins[where], ends[where])) for where in partitions}
            for one in reader.records(spans, within_seconds=_SECONDS):
                found[min(max(one.stored_ms // _HOUR_MS - first, 0), HOURS - 1)] += 1
            if not reader.unread:
                return RetryHours(first * _HOUR_MS, found, is_exact=not lost, since_ms=since_ms)
    bounds = [begins, *(admin.offsets_at(partitions, one * _HOUR_MS) for one in range(first + 1, hour + 1)), ends]
    differences = [sum(max(0, after[one] - before[one]) for one in partitions) for before, after in pairwise(bounds)]
    return RetryHours(first * _HOUR_MS, differences, is_exact=False, since_ms=since_ms)


def _first_ms(
    cluster: Cluster, partitions: Iterable[Partition], starts: dict[Partition, int], ends: dict[Partition, int]
) -> int | None:
    """Return when the first kept record was stored."""
    found: list[int] = []
    with RangeReader(cluster.base, f"{cluster.names.prefix}status") as reader:
        spans = {where: (starts[where], ends[where]) for where in partitions}
        for one in reader.records(spans, within_seconds=_SECONDS):
            found.append(one.stored_ms)
            reader.leave(one.where)
    return min(found, default=None)
