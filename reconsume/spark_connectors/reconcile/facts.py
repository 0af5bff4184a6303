"""What all attempts together tell: how far the schedulers have come, and what the delay topics still hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.judged import Committed

__all__ = ["SETTLED_MS", "Facts", "gather_facts"]

SETTLED_MS: Final = 30_000
"""Twice the longest transaction: whatever was written in one before is visible, or never will be."""
_HOUR_MS: Final = 3_600_000

Places = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one reading.

    Attributes:
        handled: for each partition that schedulers read, the offset before which all was handled.
        known_since_ms: before that moment send-backs may have been deleted; 0 if none was.
        surplus: deliveries that no send-back explains.
        releases: marks of records that were released from the quarantine.
    """

    handled: Places
    known_since_ms: int
    surplus: int
    releases: int = 0

    def with_handled(self, marks: Places) -> Facts:
        """With what is known from elsewhere."""
        known = {place: max(mark, self.handled.get(place, 0)) for place, mark in marks.items()}
        return replace(self, handled={**self.handled, **known})

    def is_handled(self, place: Column) -> Column:
        """Whether a scheduler has gone past a record, by its `<topic>/<partition>/<offset>`."""
        if not self.handled:
            return F.lit(False)
        entries = [F.lit(one) for (name, number), mark in self.handled.items() for one in (f"{name}/{number}", mark)]
        mark = F.try_element_at(F.create_map(*entries), F.substring_index(place, "/", 2))
        return F.coalesce(F.substring_index(place, "/", -1).cast("bigint") < mark, F.lit(False))


def gather_facts(pairs: DataFrame, topic_prefix: str, committed: Committed, now_ms: int) -> Facts:
    """One look at all pairs.

    All before the offset that the schedulers have committed was handled. Where that is not known a delivery says so of
    what is before it, unless it was one that overtook a flood. It has to be older than a transaction may last: of one
    that has just ended not everything may be visible.
    """
    handled: dict[tuple[str, int], int] = {}
    begins: dict[tuple[str, int], Any] = {}
    surplus = releases = 0
    for row in _collect(pairs, now_ms):
        surplus += row.surplus
        releases += row.releases
        for topic, partition, mark in (
            (row.sent_topic, row.sent_partition, row.sent_mark),
            (row.inbox_topic, row.inbox_partition, row.inbox_mark),
        ):
            if mark is not None:
                handled[topic, partition] = max(mark + 1, handled.get((topic, partition), 0))
        # Not those of the inbox: it may begin with delayed messages, which are not read.
        if row.first_offset is not None:
            place = row.sent_topic, row.sent_partition
            begins[place] = min(row, begins.get(place, row), key=lambda one: int(one.first_offset))
    expired = [one.first_ms + (one.delay_ms or 0) + _HOUR_MS for one in begins.values() if one.first_offset > 0]
    # In place of what deliveries say: where records overtake, one of those says nothing of what is before it.
    handled.update(committed.get(topic_prefix + "scheduler", {}))
    return Facts(handled, max(expired, default=0), surplus, releases)


def _collect(pairs: DataFrame, now_ms: int) -> list[Any]:
    """One row for each pair of partitions, of the inbox and of a delay topic, that attempts went through."""
    settled = F.timestamp_millis(F.lit(now_ms - SETTLED_MS))
    kind, is_sent = F.col("arrived_kind"), F.col("sent_offset").isNotNull()
    summary = pairs.groupBy("sent_topic", "sent_partition", "inbox_topic", "inbox_partition").agg(
        F.max(F.when(F.col("arrived_appended") < settled, F.col("sent_offset"))).alias("sent_mark"),
        F.max(F.when(F.coalesce("sent_appended", "arrived_appended") < settled, F.col("inbox_offset"))).alias(
            "inbox_mark"
        ),
        F.min("sent_offset").alias("first_offset"),
        F.min(F.unix_millis("sent_appended")).alias("first_ms"),
        F.max("sent_delay_ms").alias("delay_ms"),
        F.count_if(~is_sent & kind.isin("retry", "dead_letter")).alias("surplus"),
        F.count_if(kind == "released").alias("releases"),
    )
    return summary.collect()
