"""What all attempts together tell: how far the schedulers have come, and what the delay topics still hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.judged import Committed

__all__ = ["Facts", "gather_facts"]

_SETTLED_MS: Final = 30_000
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
    """

    handled: Places
    known_since_ms: int
    surplus: int

    def with_handled(self, marks: Places) -> Facts:
        """With what is known from elsewhere."""
        known = {place: max(mark, self.handled.get(place, 0)) for place, mark in marks.items()}
        return replace(self, handled={**self.handled, **known})

    def is_handled(self, topic: Column, partition: Column, offset: Column) -> Column:
        """Whether a scheduler has gone past a record."""
        if not self.handled:
            return F.lit(False)
        entries = [F.lit(one) for (name, number), mark in self.handled.items() for one in (f"{name}/{number}", mark)]
        mark = F.try_element_at(F.create_map(*entries), F.concat_ws("/", topic, partition.cast("string")))
        return F.coalesce(offset < mark, F.lit(False))


def gather_facts(pairs: DataFrame, topic_prefix: str, committed: Committed, now_ms: int) -> Facts:
    """One look at all pairs.

    All before the offset that the schedulers have committed was handled. Where that is not known a delivery says so of
    what is before it, unless it was one that overtook a flood. It has to be older than a transaction may last: of one
    that has just ended not everything may be visible.
    """
    handled: dict[tuple[str, int], int] = {}
    known_since_ms = surplus = 0
    for row in _collect(pairs, now_ms):
        surplus += row.surplus
        if row.topic is None:
            continue
        if row.mark is not None:
            handled[row.topic, row.partition] = row.mark + 1
        # The inbox may begin with delayed messages, which are not read.
        if row.first_offset and row.topic != topic_prefix + "SEND_BACK":
            expired = row.first_ms + (row.longest_ms or 0) + _HOUR_MS
            known_since_ms = max(known_since_ms, expired)
    handled.update(committed.get(topic_prefix + "scheduler", {}))
    return Facts(handled, known_since_ms, surplus)


def _collect(pairs: DataFrame, now_ms: int) -> list[Any]:
    """One row for each partition of the inbox and of the delay topics."""
    settled = F.timestamp_millis(F.lit(now_ms - _SETTLED_MS))
    places = {
        "sent": (F.col("arrived_appended"), F.col("sent_delay_ms")),
        "inbox": (F.coalesce("sent_appended", "arrived_appended"), F.lit(None).cast("bigint")),
    }
    sides = F.array(
        *(
            F.struct(
                F.col(f"{side}_topic").alias("topic"),
                F.col(f"{side}_partition").alias("partition"),
                F.col(f"{side}_offset").alias("offset"),
                F.col(f"{side}_appended").alias("appended"),
                next_at.alias("next_at"),
                delay.alias("delay_ms"),
                (
                    F.lit(side == "sent")
                    & F.col("sent_offset").isNull()
                    & F.col("arrived_kind").isin("retry", "dead_letter")
                ).alias("surplus"),
            )
            for side, (next_at, delay) in places.items()
        )
    )
    one = pairs.select(F.explode(sides).alias("one")).select("one.*")
    summary = one.groupBy("topic", "partition").agg(
        F.max(F.when(F.col("next_at") < settled, F.col("offset"))).alias("mark"),
        F.min("offset").alias("first_offset"),
        F.min(F.unix_millis("appended")).alias("first_ms"),
        F.max("delay_ms").alias("longest_ms"),
        F.count_if("surplus").alias("surplus"),
    )
    return summary.collect()
