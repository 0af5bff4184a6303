"""Partitions whose first records were deleted, by retention or by hand, and the attempts this leaves undecidable.

Guarantees: deleted records count neither as lost nor as orphans. Each duration and each group has its own moment
before which records may be gone; an empty partition may have held records up to now.
Test: tests/spark/reconcile/test_expired.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.names import kind_of
from reconsume.spark_connectors.session import looked_up

logger = logging.getLogger(__name__)

Partition = tuple[str, int]
_LATE_MS: Final = 3_600_000
"""A delivery may be this much later than its due time, and its send-back deleted."""


class Extent(NamedTuple):
    """The range of offsets that a partition holds.

    Attributes:
        first: the first kept offset; 0 if nothing was deleted of the examined time.
        end: the offset of the next record.
    """

    first: int
    end: int


ExtentsSince = Callable[[int], Mapping[Partition, Extent]]
"""Called with the moment (ms) from which topics are examined, 0 for always; returns each partition's extent."""


class First(NamedTuple):
    """The first record that was read of a partition: its offset, and when it was stored (ms)."""

    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ExpiredLanes:
    """Times (ms) until which retention may have deleted the send-back of a delivery.

    Attributes:
        until_ms: by the duration of the delay topic.
        otherwise_ms: for all other durations.
    """

    until_ms: Mapping[int, int] = field(default_factory=dict)
    otherwise_ms: int = 0

    @property
    def latest_ms(self) -> int:
        """Return the latest moment of all durations; 0 if no record may be gone."""
        return max(self.until_ms.values(), default=0) or self.otherwise_ms

    def of(self, delay_ms: Column) -> Column:
        """Return the moment for a duration; the latest of all for null."""
        latest = F.lit(max(self.until_ms.values(), default=self.otherwise_ms))
        known = looked_up(self.until_ms, delay_ms)
        return F.when(delay_ms.isNull(), latest).otherwise(F.coalesce(known, F.lit(self.otherwise_ms)))


def deleted_until(
    read: Mapping[Partition, First], extents: Mapping[Partition, Extent] | None, now_ms: int, *, guess: bool, gaps: bool
) -> dict[str, int]:
    """Return by topic the moment (ms) before which its records may have been deleted; 0 if none was.

    Args:
        read: the first record read of each partition.
        extents: the extents of the partitions; None if unknown.
        now_ms: the moment for empty partitions, which may have held records up to now.
        guess: without extents, whether a partition that begins after offset 0 has lost records.
        gaps: whether records after the first one read may have been skipped.
    """
    until: dict[str, int] = {}
    for place in {*read, *(extents or ())}:
        first = read.get(place)
        if extents is not None:
            kept = extents[place].first if place in extents else 0
        else:
            kept = first.offset if guess and first is not None else 0
        moment = 0
        if kept > 0:
            moment = now_ms if first is None or (gaps and first.offset < kept) else first.at_ms
        until[place[0]] = max(until.get(place[0], 0), moment)
    return until


def expired_lanes(until: Mapping[str, int], names: TopicNames, otherwise_ms: int) -> ExpiredLanes:
    """Return the times until which the send-backs of each duration may have been deleted.

    Args:
        until: the result of `deleted_until`.
        names: the installation's topics.
        otherwise_ms: the moment for other durations.
    """
    lanes: dict[int, int] = {}
    for topic, moment in until.items():
        with suppress(IllegalName):
            if topic != names.send_back:  # nothing is delivered from the inbox
                delay = names.delay_ms(topic)
                lanes[delay] = max(lanes.get(delay, 0), moment + delay + _LATE_MS if moment else 0)
    return ExpiredLanes(lanes, otherwise_ms)


@dataclass(frozen=True)
class DeletedRecords:
    """The deleted records of reconsume's topics. Kafka is asked once, and only if something seems wrong.

    Attributes:
        names: the installation's topics.
        now_ms: the time of the run.
        ask: returns the extents of all partitions; None if that is impossible.
        from_beginning: whether the topics were read from their beginning.
        in_window: whether only a window was read.
        gaps: whether records after the first one read of a partition may have been skipped.
        goes_on: whether only records deleted since the last run of a ledger count.
    """

    names: TopicNames
    now_ms: int
    ask: Callable[[], Mapping[Partition, Extent]] | None
    _: KW_ONLY
    from_beginning: bool
    in_window: bool
    gaps: bool
    goes_on: bool = False

    @cached_property
    def _extents(self) -> Mapping[Partition, Extent] | None:
        return None if self.ask is None else self.ask()

    def tell_gaps(self, folder: str) -> None:
        """Warn of send-backs that were deleted before any run of a ledger has read them."""
        if not self.goes_on:
            return
        missed = [at for at, one in (self._extents or {}).items() if one.first and self.names.is_scheduled(at[0])]
        if missed:
            logger.warning(
                "%d partitions, such as %s, lost records since the last run of the ledger in %s, so their send-backs "
                "are in no run. Run reconcile at least as often as half the retention of the delay topics",
                len(missed),
                "{}-{}".format(*min(missed)),
                folder,
            )

    def lanes(self, firsts: Mapping[Partition, First]) -> ExpiredLanes:
        """Return the times until which the send-backs of deliveries may have been deleted.

        Args:
            firsts: the first record read of each partition of the delay topics.
        """
        # A window seldom begins at offset 0 of a partition; yet a delivery without a send-back is rare too.
        guess = self.from_beginning or self.in_window
        until = deleted_until(firsts, self._extents, self.now_ms, guess=guess, gaps=self.gaps)
        unknown = self._extents is not None or self.from_beginning
        return expired_lanes(until, self.names, self.now_ms + _LATE_MS if unknown else 0)

    def with_expired(self, rows: DataFrame, pairs: DataFrame, unsure: Column) -> DataFrame:
        """Mark attempts without a visible delivery as `expired` if the delivery may have been deleted.

        Args:
            rows: the result of `as_ledger`.
            pairs: the result of `pair_attempts` that the rows were made from.
            unsure: selects the rows to examine.
        """
        groups = rows.where(unsure & F.col("group").isNotNull()).select("group").distinct().collect()
        targets: dict[str, tuple[str, str]] = {}
        for (group,) in groups:
            with suppress(IllegalName):
                targets[group] = self.names.retry(group), self.names.dead_letter(group)
        topics = {topic for both in targets.values() for topic in both}
        if self._extents is not None:
            topics.add(self.names.quarantine)  # kept forever; a late beginning after an abort means nothing
        known = None if self._extents is None else {at: one for at, one in self._extents.items() if at[0] in topics}
        there = pairs.where(F.col("arrived_topic").isin(list(topics))).groupBy("arrived_topic", "arrived_partition")
        begins = there.agg(F.min("arrived_offset"), F.min(F.unix_millis("arrived_appended"))).collect()
        firsts = {(topic, partition): First(offset, at_ms) for topic, partition, offset, at_ms in begins}
        until = deleted_until(firsts, known, self.now_ms, guess=self.from_beginning, gaps=self.gaps)
        retry, dead = ({group: until.get(both[side], 0) for group, both in targets.items()} for side in (0, 1))
        parked = kind_of(F.col("target_topic"), self.names.prefix) == "parked"
        return _with_expired(rows, unsure, parked, retry, dead, until.get(self.names.quarantine, 0))


def _with_expired(
    rows: DataFrame,
    unsure: Column,
    parked: Column,
    retry_ms: Mapping[str, int],
    dead_ms: Mapping[str, int],
    quarantine_ms: int,
) -> DataFrame:
    nothing = F.lit(0).cast("bigint")
    to_retry, to_dead = (F.coalesce(looked_up(one, F.col("group")), nothing) for one in (retry_ms, dead_ms))
    # Apart from damaged records, few go there.
    aside = F.when(F.col("damage").isNotNull(), quarantine_ms).otherwise(nothing)
    # Records that plain clients sent back may be there too; the rule was applied to them behind the inbox.
    chosen = (
        F.when(parked, to_retry)
        .when(F.col("sent_offset").isNull(), F.greatest(to_retry, to_dead))
        .when(F.col("dead"), to_dead)
        .otherwise(to_retry)
    )
    # A parked record is delivered after it was parked.
    earliest = F.unix_millis(F.coalesce(F.when(parked, F.col("delivered")), "due", "appended", "asked"))
    earliest = F.when(F.array_contains("notes", "PRODUCERS_TIME"), nothing).otherwise(earliest)
    # Released records that are missing at their destination have been searched there already.
    unsure &= F.col("target_offset").isNull() | parked
    gone = F.coalesce(unsure & (earliest < F.greatest(chosen, aside)), F.lit(False))
    wrong = F.array_except("findings", F.array(F.lit("LOST"), F.lit("OVERDUE")))
    changed = {
        "outcome": F.when(gone, "expired").otherwise(F.col("outcome")),
        "findings": F.when(gone, wrong).otherwise(F.col("findings")),
        "notes": F.when(gone, F.array_append("notes", F.lit("EXPIRED"))).otherwise(F.col("notes")),
    }
    return rows.withColumns(changed)
