"""Partitions that have lost their first records, by retention or by hand, and what cannot be judged therefore.

Guarantees: what was deleted is neither lost nor an orphan. Each duration and each group has its own moment before which
records may be gone; a partition of which nothing is left may have held something of just now.
Test: tests/spark/test_expired.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.wire.names import TopicNames

__all__ = [
    "DeletedRecords",
    "ExpiredLanes",
    "Extent",
    "ExtentsSince",
    "First",
    "Partition",
    "deleted_until",
    "expired_lanes",
]

logger = logging.getLogger(__name__)

Partition = tuple[str, int]
_LATE_MS: Final = 3_600_000
"""A delivery may be so much later than it was due, and its send-back deleted."""


class Extent(NamedTuple):
    """What a partition of our topics holds.

    Attributes:
        first: the first offset that is kept; 0 where nothing was deleted of the time that is looked at.
        end: the offset of the next record.
    """

    first: int
    end: int


ExtentsSince = Callable[[int], Mapping[Partition, Extent]]
"""Given the moment (ms) from which on topics are looked at, 0 for ever: the extent of each partition that there is."""


class First(NamedTuple):
    """The first record of a partition that was read: its offset, and when it was stored (ms)."""

    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ExpiredLanes:
    """Until when deliveries may have lost their send-back, in ms.

    Attributes:
        until_ms: by the duration of the delay topic, where that is known.
        otherwise_ms: for all other durations.
    """

    until_ms: Mapping[int, int] = field(default_factory=dict)
    otherwise_ms: int = 0

    @property
    def latest_ms(self) -> int:
        """Of all durations; 0 if nothing may be gone."""
        return max(self.until_ms.values(), default=0) or self.otherwise_ms

    def of(self, delay_ms: Column) -> Column:
        """For a duration; the latest of all where that is null."""
        latest = F.lit(max(self.until_ms.values(), default=self.otherwise_ms))
        known = _looked_up(self.until_ms, delay_ms)
        return F.when(delay_ms.isNull(), latest).otherwise(F.coalesce(known, F.lit(self.otherwise_ms)))


def deleted_until(
    read: Mapping[Partition, First], extents: Mapping[Partition, Extent] | None, now_ms: int, *, guess: bool, gaps: bool
) -> dict[str, int]:
    """By topic: what was stored there before that moment (ms) may have been deleted; 0 if nothing was. Pure.

    Args:
        read: the first record that was read of each partition.
        extents: None if nobody told.
        now_ms: for partitions of which nothing is left: what they held may have been of just now.
        guess: whether a partition that begins behind its offset 0 has lost records, where nobody told.
        gaps: whether records may have been passed over behind the first one that was read.
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
    """Until when deliveries of each duration may have lost their send-back. Pure.

    Args:
        until: of `deleted_until`.
        names: of the installation.
        otherwise_ms: for durations whose topic is not among these.
    """
    lanes: dict[int, int] = {}
    for topic, moment in until.items():
        try:
            delay = names.delay_ms(topic)
        except IllegalName:
            continue
        if topic == names.send_back:
            continue  # nothing is delivered from there
        lanes[delay] = max(lanes.get(delay, 0), moment + delay + _LATE_MS if moment else 0)
    return ExpiredLanes(lanes, otherwise_ms)


class DeletedRecords:
    """What is gone of our topics; Kafka is asked once, and only where something seems wrong.

    Args:
        names: of the installation.
        now_ms: of the run.
        ask: gives the extents of all partitions; None where nobody can tell.
        from_beginning: whether the topics were read whole.
        in_window: whether only a window was read of them.
        gaps: whether records may have been passed over behind the first one that was read of a partition.
        goes_on: whether what is gone was deleted since the last run of a ledger.
    """

    def __init__(
        self,
        names: TopicNames,
        now_ms: int,
        ask: Callable[[], Mapping[Partition, Extent]] | None,
        *,
        from_beginning: bool,
        in_window: bool,
        gaps: bool,
        goes_on: bool = False,
    ) -> None:
        self._names = names
        self._now_ms = now_ms
        self._ask = ask
        self._from_beginning = from_beginning
        self._in_window = in_window
        self._gaps = gaps
        self._goes_on = goes_on
        self._asked: Mapping[Partition, Extent] | None = None

    @property
    def _extents(self) -> Mapping[Partition, Extent] | None:
        if self._asked is None and self._ask is not None:
            self._asked = self._ask()
        return self._asked

    def tell_gaps(self, folder: str) -> None:
        """Warn of send-backs that were deleted before any run of a ledger had read them."""
        if not self._goes_on:
            return
        missed = [at for at, one in (self._extents or {}).items() if one.first and self._names.is_scheduled(at[0])]
        if missed:
            logger.warning(
                "%d partitions, %s among them, have lost records since the last run of the ledger in %s: what was sent "
                "back there is in no run. Run it at least as often as half the retention of the delay topics",
                len(missed),
                "{}-{}".format(*min(missed)),
                folder,
            )

    def lanes(self, firsts: Mapping[Partition, First]) -> ExpiredLanes:
        """Until when deliveries may have lost their send-back.

        Args:
            firsts: the first record that was read of each partition of the delay topics.
        """
        # A window seldom begins with the offset 0 of a partition; yet a delivery without a send-back is rare as well.
        guess = self._from_beginning or self._in_window
        until = deleted_until(firsts, self._extents, self._now_ms, guess=guess, gaps=self._gaps)
        unknown = self._extents is not None or self._from_beginning
        return expired_lanes(until, self._names, self._now_ms + _LATE_MS if unknown else 0)

    def with_expired(self, rows: DataFrame, pairs: DataFrame, unsure: Column) -> DataFrame:
        """What went nowhere, as far as can be seen, is `expired` where its delivery may have been deleted.

        Args:
            rows: of `as_ledger`.
            pairs: of `pair_attempts`, which these were made from.
            unsure: which rows are looked at.
        """
        targets = _targets_of(rows, self._names, unsure)
        topics = {topic for both in targets.values() for topic in both}
        if self._extents is not None:
            topics.add(self._names.quarantine)  # kept for ever; that it begins late, after an abort, says nothing
        known = None if self._extents is None else {at: one for at, one in self._extents.items() if at[0] in topics}
        firsts = _firsts_of(pairs, topics)
        until = deleted_until(firsts, known, self._now_ms, guess=self._from_beginning, gaps=self._gaps)
        return _with_expired(rows, targets, until, self._names.quarantine, unsure)


def _firsts_of(pairs: DataFrame, topics: Collection[str]) -> dict[Partition, First]:
    """The first record that was read of each partition of topics where deliveries go."""
    there = pairs.where(F.col("arrived_topic").isin(list(topics)))
    firsts = there.groupBy("arrived_topic", "arrived_partition").agg(
        F.min("arrived_offset").alias("offset"), F.min(F.unix_millis("arrived_appended")).alias("at_ms")
    )
    return {(row[0], row[1]): First(row["offset"], row["at_ms"]) for row in firsts.collect()}


def _targets_of(rows: DataFrame, names: TopicNames, unsure: Column) -> dict[str, tuple[str, ...]]:
    """By group: the topics to which attempts go that seem to have gone nowhere.

    Args:
        rows: of `as_ledger`.
        names: of the installation.
        unsure: which rows those are.
    """
    groups = [row[0] for row in rows.where(unsure & F.col("group").isNotNull()).select("group").distinct().collect()]
    targets: dict[str, tuple[str, ...]] = {}
    for group in groups:
        try:
            targets[group] = names.retry(group), names.dead_letter(group)
        except IllegalName:
            continue
    return targets


def _with_expired(
    rows: DataFrame, targets: Mapping[str, tuple[str, ...]], until: Mapping[str, int], quarantine: str, unsure: Column
) -> DataFrame:
    """Attempts that went nowhere, as far as can be seen, but whose delivery may have been deleted: `expired`.

    Args:
        rows: of `as_ledger`.
        targets: of `_targets_of`.
        until: of `deleted_until`, for these topics and the quarantine.
        quarantine: its topic; only for records that are damaged, because others seldom go there.
        unsure: which rows are looked at.
    """
    retry, dead = (
        {group: until[topics[side]] for group, topics in targets.items() if until.get(topics[side], 0)}
        for side in (0, 1)
    )
    nothing = F.lit(0).cast("bigint")
    to_retry, to_dead = (F.coalesce(_looked_up(known, F.col("group")), nothing) for known in (retry, dead))
    aside = F.when(F.col("damage").isNotNull(), until.get(quarantine, 0)).otherwise(nothing)
    # What a plain client sent back may have become either; the rule was applied to it behind the inbox.
    chosen = (
        F.when(F.col("sent_offset").isNull(), F.greatest(to_retry, to_dead))
        .when(F.col("dead"), to_dead)
        .otherwise(to_retry)
    )
    earliest = F.unix_millis(F.coalesce("due", "appended", "asked"))
    earliest = F.when(F.array_contains("notes", "PRODUCERS_TIME"), nothing).otherwise(earliest)
    # What was released, and is not where it was written, has been looked for there.
    unsure &= F.col("target_offset").isNull()
    gone = F.coalesce(unsure & (earliest < F.greatest(chosen, aside)), F.lit(False))
    wrong = F.array_except("findings", F.array(F.lit("LOST"), F.lit("OVERDUE")))
    changed = {
        "outcome": F.when(gone, "expired").otherwise(F.col("outcome")),
        "findings": F.when(gone, wrong).otherwise(F.col("findings")),
        "notes": F.when(gone, F.array_append("notes", F.lit("EXPIRED"))).otherwise(F.col("notes")),
    }
    return rows.withColumns(changed)


def _looked_up(values: Mapping[int, int] | Mapping[str, int], key: Column) -> Column:
    """The value of a key, null where there is none."""
    if not values:
        return F.lit(None).cast("bigint")
    entries = [F.lit(one) for pair in values.items() for one in pair]
    return F.try_element_at(F.create_map(*entries), key).cast("bigint")
