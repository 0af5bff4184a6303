"""What all attempts together tell: how far the schedulers have come, and what the delay topics still hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.judged import Committed
from reconsume.spark_connectors.reconcile.records.deleted import ExpiredLanes, First

__all__ = ["SETTLED_MS", "AttemptFacts", "gather_facts"]

SETTLED_MS: Final = 30_000
"""Twice the longest transaction: whatever was written in one before is visible, or never will be."""
_MOST_HELD: Final = 1_000
"""Of so many records of the quarantine a query can ask one by one."""

Places = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """Of one reading.

    Attributes:
        handled: for each partition that schedulers read, the offset before which all was handled.
        surplus: deliveries that no send-back explains.
        releases: marks of records that were released from the quarantine.
        firsts: the first record that was read of each partition of the delay topics.
        held: stamps of what is in the quarantine; None if those are too many, or not all are known.
        lanes: until when deliveries may have lost their send-back.
    """

    handled: Places
    surplus: int
    releases: int = 0
    firsts: Mapping[tuple[str, int], First] = field(default_factory=dict)
    held: frozenset[int] | None = None
    lanes: ExpiredLanes = field(default_factory=ExpiredLanes)

    def with_handled(self, marks: Places) -> AttemptFacts:
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


def gather_facts(pairs: DataFrame, topic_prefix: str, committed: Committed, now_ms: int) -> AttemptFacts:
    """One look at all pairs.

    All before the offset that the schedulers have committed was handled. Where that is not known a delivery says so of
    what is before it, unless it was one that overtook a flood. It has to be older than a transaction may last: of one
    that has just ended not everything may be visible.
    """
    handled: dict[tuple[str, int], int] = {}
    firsts: dict[tuple[str, int], First] = {}
    held: set[int] = set()
    surplus = releases = 0
    for row in _collect(pairs, now_ms):
        surplus += row.surplus
        releases += row.releases
        held.update(row.held)
        for topic, partition, mark in (
            (row.sent_topic, row.sent_partition, row.sent_mark),
            (row.inbox_topic, row.inbox_partition, row.inbox_mark),
        ):
            if mark is not None:
                handled[topic, partition] = max(mark + 1, handled.get((topic, partition), 0))
        if row.first_offset is not None:
            place = row.sent_topic, row.sent_partition
            first = First(row.first_offset, row.first_ms)
            firsts[place] = min(first, firsts.get(place, first))
    # In place of what deliveries say: where records overtake, one of those says nothing of what is before it.
    handled.update(committed.get(topic_prefix + "scheduler", {}))
    few = frozenset(held) if len(held) <= _MOST_HELD else None
    return AttemptFacts(handled, surplus, releases, firsts, few)


def _collect(pairs: DataFrame, now_ms: int) -> list[Any]:
    """One row for each pair of partitions, of the inbox and of a delay topic, that attempts went through."""
    settled = F.timestamp_millis(F.lit(now_ms - SETTLED_MS))
    kind, is_sent = F.col("arrived_kind"), F.col("sent_offset").isNotNull()
    arrived_settled = (F.col("arrived_appended") < settled) & ~F.col("arrived_by_producer")
    sent_settled = F.when(is_sent, (F.col("sent_appended") < settled) & ~F.col("sent_by_producer"))
    summary = pairs.groupBy("sent_topic", "sent_partition", "inbox_topic", "inbox_partition").agg(
        F.max(F.when(arrived_settled, F.col("sent_offset"))).alias("sent_mark"),
        F.max(F.when(F.coalesce(sent_settled, arrived_settled), F.col("inbox_offset"))).alias("inbox_mark"),
        F.min("sent_offset").alias("first_offset"),
        F.min(F.unix_millis("sent_appended")).alias("first_ms"),
        F.collect_set(F.when(kind == "quarantine", F.col("arrived_stamp"))).alias("held"),
        F.count_if(~is_sent & kind.isin("retry", "dead_letter")).alias("surplus"),
        F.count_if(kind == "released").alias("releases"),
    )
    return summary.collect()
