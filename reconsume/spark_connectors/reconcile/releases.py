"""Follows records that a person released from the quarantine: their send-back continues as one attempt.

Repaired headers may give such a record a new identity. The mark of its release names its destination.
Test: tests/spark/reconcile/test_released.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.dead_letter_states import RESOLVED
from reconsume.spark_connectors.names import POSITION, place_of
from reconsume.spark_connectors.reconcile.judged import SETTLED_MS
from reconsume.spark_connectors.session import local_rows
from reconsume.spark_connectors.source import TopicSource

_SIDES: Final = ("sent", "inbox")
_PLACE: Final = ("topic", "partition", "offset")
_AS_SENT_BACK: Final = {
    "sent": ("topic", "partition", "offset", "appended", "level", "delay_ms"),
    "inbox": ("topic", "partition", "offset", "appended"),
}
"""The columns that a released record takes from its send-back, not from its new copy."""


@dataclass(frozen=True, slots=True)
class Release:
    """A mark in the quarantine and its record; places are `<topic>/<partition>/<offset>`.

    Attributes:
        held: the record's place in the quarantine.
        source: the place of its send-back; None if the send-back or the record was not read.
        went_to: the place of the new copy.
        at_ms: the time of the mark.
        stamp: the stamp of its key and value; None if it was not read.
    """

    held: str
    source: str | None
    went_to: str
    at_ms: int
    stamp: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """The records at their places.

    Attributes:
        stamps: stamps of key and value, by `<topic>/<partition>/<offset>`.
        begins: the first existing offset, by `<topic>/<partition>`.
    """

    stamps: Mapping[str, int]
    begins: Mapping[str, int]

    def is_missing(self, place: str, stamp: int | None) -> bool:
        """Return whether an expected record is absent; False if retention may have deleted it."""
        if place in self.stamps:
            return stamp is not None and self.stamps[place] != stamp
        partition, _, offset = place.rpartition("/")
        return partition in self.begins and self.begins[partition] < int(offset)


@dataclass(slots=True)
class Fates:
    """The changes to the rows.

    Attributes:
        moves: the first and the current place of each send-back; the first is None if unknown.
        passed: places in the quarantine that no longer count.
        missing: places of records whose new copy is missing, and its expected place.
        stale: places that an earlier run has followed already.
    """

    moves: list[tuple[str | None, str]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


def follow_releases(pairs: DataFrame, now_ms: int, source: TopicSource, settled: Collection[str] = ()) -> DataFrame:
    """Return `pairs` without marks: a released record gets the row of its send-back, so that it has one state.

    That row has the identity, due time and delivery of the record that was written again; place, level and time of the
    one that was sent back; and in `…_released` where it went. If a released record is missing, its send-back has the
    place in the quarantine as `arrived_…`, but no `arrived_kind`. A record that a person resolved has the
    `arrived_kind` `resolved`.

    Args:
        pairs: the result of `pair_attempts`.
        now_ms: the current time; a mark younger than the longest transaction is never missing.
        source: the topics; read again only if something is missing.
        settled: destinations of released records whose attempts a ledger has settled.
    """
    releases = _releases(pairs)
    found = _found(pairs)
    unread = [one for one in releases if one.went_to not in found and one.went_to not in settled]
    missed = [one for one in unread if one.at_ms < now_ms - SETTLED_MS]
    there = (
        _standing(source, [one.went_to for one in missed]) if any(one.source for one in missed) else Standing({}, {})
    )
    missing = {one.went_to for one in missed if there.is_missing(one.went_to, one.stamp)}
    fates = fates_of(releases, found, missing, settled)
    return _apply(pairs, fates)


def fates_of(
    releases: Iterable[Release], found: Mapping[str, int], missing: Collection[str], settled: Collection[str] = ()
) -> Fates:
    """Follow each send-back from release to release.

    Args:
        releases: all known releases.
        found: stamps of the read records, by place.
        missing: expected places without a record.
        settled: destinations of records whose attempts a ledger has settled.
    """
    fates = Fates()
    known = list(releases)
    fates.stale = [one.held for one in known if one.source == one.went_to]
    moving = [one for one in known if one.source != one.went_to]
    # Parts of their way that are read again say nothing new.
    told = _leading_to(settled, moving)
    fates.passed = [one.held for one in moving if one.went_to in told]
    moving = [one for one in moving if one.went_to not in told]
    ends = {one.went_to for one in moving}
    after = {one.source: one for one in moving if one.source is not None}
    taken: set[str] = set()
    for head in (one for one in moving if one.source is None or one.source not in ends):
        place = head.source
        step: Release | None = head
        while step is not None and step.went_to not in taken and _is_there(step, found):
            taken.add(step.went_to)
            fates.passed.append(step.held)
            place, step = step.went_to, after.get(step.went_to)
        if place != head.source and place is not None:
            fates.moves.append((head.source, place))
        if step is not None and place is None:
            fates.passed.append(step.held)  # no send-back is known, so nothing is missing
        elif step is not None and step.went_to in missing:
            fates.missing.append((step.held, step.went_to))
    return fates


def _standing(source: TopicSource, places: Collection[str]) -> Standing:
    """Return the records at these places; it reads their topics from the beginning."""
    topics = sorted({place.split("/")[0] for place in places})
    raw = source.of_clients().raw(pattern="|".join(map(re.escape, topics)))
    place = place_of("topic", "partition", "offset")
    wanted = F.when(place.isin(list(places)), F.struct(place, F.xxhash64("key", "value")))
    rows = raw.groupBy("topic", "partition").agg(F.min("offset").alias("begin"), F.collect_list(wanted).alias("found"))
    stamps: dict[str, int] = {}
    begins: dict[str, int] = {}
    for row in rows.collect():
        begins[f"{row.topic}/{row.partition}"] = row.begin
        stamps |= {one[0]: one[1] for one in row.found}
    return Standing(stamps, begins)


def _leading_to(settled: Collection[str], moving: Sequence[Release]) -> set[str]:
    """Return these places, and those from which records went there."""
    places = set(settled)
    for one in reversed(moving):  # they are in the order of time
        if one.went_to in places and one.source is not None:
            places.add(one.source)
    return places


def place_now(side: str) -> Column:
    """Return the place of the record that schedulers must handle next, on this side."""
    return F.coalesce(F.col(f"{side}_released"), place_of(*(f"{side}_{name}" for name in _PLACE)))


def _is_there(release: Release, found: Mapping[str, int]) -> bool:
    return release.went_to in found and release.stamp in (None, found[release.went_to])


def _releases(pairs: DataFrame) -> list[Release]:
    marks = pairs.where((F.col("arrived_kind") == "released") & F.col("arrived_cause").rlike(POSITION)).select(
        F.col("origin_message_id").alias("held"),
        F.col("arrived_cause").alias("went_to"),
        F.unix_millis("arrived_appended").alias("at_ms"),
    )
    held = pairs.where(F.col("arrived_kind") == "quarantine").select(
        _held().alias("held"),
        F.coalesce(*map(place_now, _SIDES)).alias("source"),
        F.col("arrived_stamp").alias("stamp"),
    )
    rows = marks.join(held, "held", "left").orderBy("at_ms", "held").collect()
    return [Release(row.held, row.source, row.went_to, row.at_ms, row.stamp) for row in rows]


def _found(pairs: DataFrame) -> dict[str, int]:
    wanted = F.broadcast(pairs.where(F.col("arrived_kind") == "released").select(F.col("arrived_cause").alias("place")))
    found: dict[str, int] = {}
    for side in _SIDES:
        sides = pairs.where(F.col(f"{side}_offset").isNotNull())
        rows = sides.select(place_now(side).alias("place"), f"{side}_stamp").join(wanted, "place", "left_semi")
        found |= {row[0]: row[1] for row in rows.collect()}
    return found


def _apply(pairs: DataFrame, fates: Fates) -> DataFrame:
    rows, firsts = pairs.where(~F.col("arrived_kind").eqNullSafe("released")), _firsts(pairs, fates)
    for side in _SIDES:
        rows = _moved(rows, firsts, side)
    resolved = pairs.where((F.col("arrived_kind") == "released") & (F.col("arrived_cause") == RESOLVED))
    resolved = resolved.withColumnRenamed("origin_message_id", "held")
    marks = [
        *({"held": held, "fate": "passed"} for held in fates.passed),
        *({"held": held, "fate": "missing", "went_to": went_to} for held, went_to in fates.missing),
        *({"held": held, "fate": "stale"} for held in fates.stale),
        *({"held": row.held, "fate": "resolved"} for row in resolved.select("held").distinct().collect()),
    ]
    known = local_rows(pairs.sparkSession, marks, "held STRING, fate STRING, went_to STRING")
    rows = rows.join(F.broadcast(known), _held() == F.col("held"), "left").where("fate IS NULL OR fate != 'passed'")
    stale, missing = (F.coalesce(F.col("fate") == fate, F.lit(False)) for fate in ("stale", "missing"))
    in_lane = F.col("sent_offset").isNotNull()
    changed = {name: F.when(~stale, F.col(name)) for name in pairs.columns if name.startswith("arrived_")}
    kind = F.when(F.col("fate") == "resolved", "resolved").otherwise(F.col("arrived_kind"))
    changed["arrived_kind"] = F.when(~(stale | missing), kind)
    for side, is_there in (("sent", in_lane), ("inbox", ~in_lane)):
        name = f"{side}_released"
        changed[name] = F.when(missing & is_there, F.col("went_to")).otherwise(F.col(name))
    return rows.withColumns(changed).select(*pairs.columns)


def _firsts(pairs: DataFrame, fates: Fates) -> DataFrame:
    """Return the rows of send-backs that continue elsewhere, by their new place."""
    moved = [{"source": source, "moved_to": now} for source, now in fates.moves]
    moves = local_rows(pairs.sparkSession, moved, "source STRING, moved_to STRING")
    quarantined = pairs.where(F.col("arrived_kind") == "quarantine")
    quarantined = quarantined.withColumn("source", F.coalesce(*map(place_now, _SIDES)))
    kept = [name for name in pairs.columns if name == "copy" or name.startswith(("sent_", "inbox_"))]
    named = quarantined.select("source", *(F.col(name).alias(f"first_{name}") for name in kept))
    return named.join(F.broadcast(moves), "source", "right")


def _moved(rows: DataFrame, firsts: DataFrame, side: str) -> DataFrame:
    """Return the rows whose record on this side was written anew, with the values of the first send-back."""
    moved, known = F.col("moved_to").isNotNull(), F.col(f"first_{side}_offset").isNotNull()
    changed = {
        f"{side}_{name}": F.when(known, F.col(f"first_{side}_{name}")).otherwise(F.col(f"{side}_{name}"))
        for name in _AS_SENT_BACK[side]
    }
    changed[f"{side}_released"] = F.when(moved, F.col("moved_to")).otherwise(F.col(f"{side}_released"))
    changed["copy"] = F.least("copy", "first_copy")
    if side == "sent":
        none = moved & F.col("inbox_offset").isNull()
        changed |= {
            name: F.when(none, F.col(f"first_{name}")).otherwise(F.col(name))
            for name in rows.columns
            if name.startswith("inbox_")
        }
    joined = rows.join(F.broadcast(firsts), place_now(side) == F.col("moved_to"), "left")
    return joined.withColumns(changed).select(*rows.columns)


def _held() -> Column:
    return place_of(*(f"arrived_{name}" for name in _PLACE))
