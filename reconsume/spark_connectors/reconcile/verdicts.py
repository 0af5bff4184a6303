"""Judges each attempt: its outcome and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.headers import present_texts
from reconsume.spark_connectors.names import place_of
from reconsume.spark_connectors.reconcile.judged import SETTLED_MS, AttemptFacts, LevelTables, Tolerances
from reconsume.spark_connectors.reconcile.releases import place_now

FINDINGS: Final = (
    *("LOST", "DUPLICATE", "EARLY", "LATE", "WRONG_LEVEL", "WRONG_GROUP", "WRONG_TOPIC", "WRONG_COUNT", "ORPHAN"),
    *("OVERDUE", "DAMAGED", "NOT_RESENT"),
)
"""The possible errors; docs/reconcile.md explains each."""
NOTES: Final = ("REPEATED", "EXPIRED", "PRODUCERS_TIME", "QUARANTINED", "DROPPED", "MAYBE_DROPPED", "ORIGIN_GONE")
"""Remarks that are not errors of the retries."""
_AN_HOUR_MS: Final = 3_600_000
_CLOCK_SKEW_MS: Final = 50
"""The leaders of two partitions may have different clocks."""
_SIDES: Final = ("inbox", "sent", "arrived")


@dataclass(frozen=True, slots=True)
class AttemptJudge:
    """The values that the columns of `judge` are made with.

    Args:
        now_ms: later send-backs are left for the next run.
        tables: the duration of each level.
        tolerances: deviations that are not findings.
        facts: facts from all attempts together.
        since_ms: the beginning of the window; earlier send-backs may be missing.
    """

    now_ms: int
    tables: LevelTables
    tolerances: Tolerances
    facts: AttemptFacts
    since_ms: int = 0

    def judge(self, pairs: DataFrame) -> DataFrame:
        """Add `outcome`, `lateness_ms`, `findings` and `notes`; remove attempts that cannot be judged yet.

        A quarantined record may be written again before the mark of its release is visible: `is_held` is whether an
        attempt has key and value of a record there.

        A send-back after `now_ms` is left for the next run, unless the inbox had it before. A delivery after `now_ms`
        without a send-back belongs to a later send-back.
        """
        now = F.timestamp_millis(F.lit(self.now_ms))
        later = F.when(_has("sent"), (F.col("sent_appended") >= now) & ~_has("inbox")).otherwise(
            _delivered() & (F.col("arrived_appended") >= now)
        )
        lateness = F.when(~_untimed(), _ms("arrived_appended") - _ms("sent_due"))
        judged = self.tables.with_policies(pairs.where(~F.coalesce(later, F.lit(False)) | _untimed()))
        judged = judged.withColumns({"outcome": self._outcome(), "lateness_ms": lateness})
        return judged.withColumns({"findings": _named(self._findings()), "notes": _named(self._notes())})

    def _outcome(self) -> Column:
        arrived = F.col("arrived_kind")
        sent_handled, taken_in = (self.facts.is_handled(place_now(side)) for side in ("sent", "inbox"))
        let_go = self.facts.is_handled(place_of("arrived_topic", "arrived_partition", "arrived_offset"))
        dropped = F.coalesce(self._dropping(), F.lit(True))
        return (
            F.when(arrived.isin("quarantine", "resolved"), "quarantined")
            .when(arrived == "parked", F.when(let_go, "lost").otherwise("waiting"))
            .when(_delivered() & ~(_has("sent") | _has("inbox") | F.col("parked")), "unexplained")
            .when(arrived == "retry", "moved")
            .when(arrived == "dead_letter", "dead")
            .when(_released_to_nowhere(), "lost")
            .when(
                _has("sent"),
                F.when(sent_handled & (_untimed() | (F.col("sent_due") < self._moment())), "lost").otherwise("waiting"),
            )
            .when(taken_in & dropped, "dropped")
            .when(taken_in, "lost")
            .otherwise("waiting")
        )

    def _findings(self) -> dict[str, Column]:
        outcome, late_ms = F.col("outcome"), F.col("lateness_ms")
        waits_for = self.now_ms - F.coalesce(_ms("sent_due"), _ms("sent_appended"), _ms("inbox_appended"))
        unexplained = _delivered() & ~_has("sent") & ~self._expired() & ~_untimed()
        return {
            "LOST": outcome == "lost",
            "OVERDUE": (outcome == "waiting") & ~F.col("parked") & (waits_for > self.tolerances.late_ms) & ~_untimed(),
            "DUPLICATE": unexplained & (F.col("copies_sent") > 0),
            "ORPHAN": unexplained & ~F.col("parked") & (F.col("copies_sent") == 0) & F.col("arrived_damage").isNull(),
            "EARLY": _delivered() & (late_ms < -_CLOCK_SKEW_MS),
            "LATE": _delivered() & ~F.col("parked") & (late_ms > self.tolerances.late_ms),
            "WRONG_LEVEL": self._wrong_level(),
            "WRONG_GROUP": F.col("paired") == "WRONG_GROUP",
            "WRONG_TOPIC": _delivered() & _has("sent") & (F.col("sent_dead") != F.col("arrived_dead")),
            "WRONG_COUNT": (F.col("paired") == "WRONG_COUNT") | _wrong_count(),
            "DAMAGED": ((outcome != "quarantined") & ~_released_to_nowhere())
            & F.coalesce("sent_damage", "arrived_damage", "inbox_damage").isNotNull(),
        }

    def _notes(self) -> dict[str, Column]:
        return {
            "REPEATED": (F.col("copy") > 0) & _has("sent"),
            "EXPIRED": _delivered() & ~_has("sent") & self._expired(),
            "PRODUCERS_TIME": _untimed(),
            "QUARANTINED": F.coalesce(F.col("arrived_kind") == "quarantine", F.lit(False)),
            "DROPPED": (F.col("outcome") == "dropped") & self._dropping(),
            "MAYBE_DROPPED": (F.col("outcome") == "dropped") & self._dropping().isNull(),
        }

    def _dropping(self) -> Column:
        """Return whether the group dropped what the inbox held then; null if unknown."""
        return self.tables.is_dropping(F.when(~F.col("inbox_by_producer"), _ms("inbox_appended")))

    def _wrong_level(self) -> Column:
        """Return whether the duration is not the level's, or the level is not that of the send-back."""
        sent = F.when(~F.col("sent_by_producer"), F.col("sent_appended"))
        wanted = self.tables.wanted_ms(F.col("sent_level"), sent)
        at_once = F.col("sent_dead") | (F.col("sent_replayed") & (F.col("sent_delay_ms") == 0))
        lane = F.when(at_once, F.col("sent_delay_ms") != 0).otherwise(F.col("sent_delay_ms") != wanted)
        changed = _delivered() & (F.col("sent_level") != F.col("arrived_level"))
        released = F.col("sent_released").isNotNull()
        # A record may be visible at its destination before the mark of its release.
        young = (_ms("sent_appended") >= self.now_ms - SETTLED_MS) & (F.lit(self.since_ms > 0) | F.col("is_held"))
        mended = (released & F.col("sent_dead")) | ((released | young) & (F.col("sent_delay_ms") == 0))
        lane_is_wrong = F.coalesce(lane & ~mended, F.lit(False))
        return lane_is_wrong | F.coalesce(changed & ~released, F.lit(False))

    def _expired(self) -> Column:
        """Return whether the send-back may have been deleted, or is before the window."""
        if not (self.since_ms or self.facts.lanes.latest_ms):
            return F.lit(False)
        # Much older than any change of the level table that it may have been sent back by.
        sent = F.timestamp_millis(_ms("arrived_appended") - self.tables.longest_ms - _AN_HOUR_MS)
        wanted = self.tables.wanted_ms(F.col("arrived_level"), sent)
        # Dead letters, replays and released records do not wait for their level.
        at_once = F.col("arrived_dead") | (F.col("attempt") == 0) | F.col("is_held")
        lane = F.when(at_once, F.lit(0)).otherwise(F.when(wanted >= 0, wanted)).cast("bigint")
        return _ms("arrived_appended") < F.greatest(self.facts.lanes.of(lane), F.lit(self.since_ms))

    def _moment(self) -> Column:
        return F.timestamp_millis(F.lit(self.now_ms))


def _wrong_count() -> Column:
    """Return whether a dead letter counts fewer deliveries than there were."""
    retried = F.col("retried")
    after = (retried["attempt"] >= F.col("attempt")) & (retried["appended"] < F.col("sent_appended"))
    told = (F.col("arrived_kind") == "dead_letter") & (F.col("arrived_deliveries") != F.col("attempt"))
    timed = F.col("sent_dead") & after & ~F.col("sent_by_producer")
    return F.coalesce(timed, F.lit(False)) | F.coalesce(told, F.lit(False))


def _has(side: str) -> Column:
    return F.col(f"{side}_offset").isNotNull()


def _untimed() -> Column:
    """Return whether the time of one of its records is from a producer's clock, which allows no judgement."""
    return F.coalesce(*(F.when(F.col(f"{side}_by_producer"), F.lit(True)) for side in _SIDES), F.lit(False))


def _delivered() -> Column:
    return F.coalesce(F.col("arrived_kind").isin("retry", "dead_letter"), F.lit(False))


def _released_to_nowhere() -> Column:
    """Return whether the record is only in the quarantine; only `follow_releases` leaves a place without its kind."""
    return F.col("arrived_kind").isNull() & F.col("arrived_offset").isNotNull()


def _named(cases: dict[str, Column]) -> Column:
    return present_texts(*(F.when(found, F.lit(name)) for name, found in cases.items()))


def _ms(column: str) -> Column:
    return F.unix_millis(column)
