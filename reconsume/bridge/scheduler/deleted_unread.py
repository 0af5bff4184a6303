"""Detects waiting records that retention has deleted before a worker read them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.scheduler.queues.backlog import PartitionHead

_UNCERTAIN: Final = ", records or ends of transactions"


class DeletedUnread:
    """Notes how far each partition was read, and compares that with its first kept offset.

    librdkafka continues at the first kept record without a word, and what is gone is in no metric and in no reconcile.

    Guarantees: each deleted offset is reported once by a process. A single offset at the end of an empty partition is
    not, because the last transaction leaves one behind the last record. Deleted offsets from where a partition
    continued are a warning, not an error, because aborted records and ends of transactions have offsets too.
    Test: tests/unit/bridge/scheduler/test_deleted_unread.py.
    """

    def __init__(self) -> None:
        self._read_to: dict[Partition, int] = {}

    def look(
        self, heads: Iterable[PartitionHead], firsts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> list[tuple[int, str]]:
        """Return log lines, with their levels, for partitions with records that were deleted since the last look.

        At a partition's first look, and after other workers had it, they are those since its start.

        Args:
            heads: the current heads of the worker's partitions.
            firsts: the first kept offset of each.
            ends: the offset after the last committed record of each.
        """
        lines = []
        for head in heads:
            if head.start is None and head.read_to is None:
                continue  # not begun; others may have read and delivered records since the last look
            topic, first, end = head.where[0], firsts.get(head.where, 0), ends.get(head.where, 0)
            before = self._read_to.get(head.where)
            if before is not None and before > end:
                before = None  # the topic was deleted and created again
            known = max((one for one in (before, head.start) if one is not None), default=head.read_to)
            if known is None:
                continue
            deleted = first - known
            if deleted > 1 or (deleted == 1 and first < end):
                is_start = known == head.start != before
                level, kind = (logging.WARNING, _UNCERTAIN) if is_start else (logging.ERROR, "")
                what = f"{topic}-{head.where[1]}: up to {deleted:,} offsets were deleted before they were read{kind}"
                lines.append((level, f"{what}; raise retention.ms of topic {topic}"))
            self._read_to[head.where] = max(known, first, head.read_to or 0)
        return lines
