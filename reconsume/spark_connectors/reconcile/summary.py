"""Figures of a reconciliation as plain values, for JSON and the report."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from reconsume.spark_connectors.headers import moment
from reconsume.spark_connectors.reconcile.verdicts import FINDINGS, NOTES

LATENESS_LIMITS_MS: Final = (0, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 600_000)
"""Upper ends of the bars of a distribution; one more bar has the rest."""
_STATES: Final = ("waiting", "moved", "dead", "quarantined", "dropped", "expired", "lost")
_CAUSES: Final = 10
_NUMBERS: Final = r"\b[0-9a-fA-F]{8}[0-9a-fA-F-]*|[0-9]+"
_MINUTE_MS: Final = 60_000
_MOST_BARS: Final = 100


def conservation(ledger: DataFrame) -> DataFrame:
    """Count by group and hour the send-backs and the states they must add up to.

    `missing` has those without a state: `sent_back - waiting - moved - dead - quarantined - dropped - expired`.
    """
    sent = F.col("sent_offset").isNotNull() | F.col("inbox_offset").isNotNull()
    hour = F.date_trunc("hour", _sent()).alias("hour")
    return (
        ledger.where(sent)
        .groupBy("group", hour)
        .agg(
            F.count(F.lit(1)).alias("sent_back"),
            *(F.count_if(F.col("outcome") == state).alias(state) for state in _STATES[:-1]),
            F.count_if(F.col("outcome") == "lost").alias("missing"),
            F.count_if("consumed").alias("consumed"),
            F.count_if(~F.col("consumed")).alias("unread"),
        )
        .orderBy("hour", "group")
    )


def summarise(ledger: DataFrame, now: dt.datetime, since: dt.datetime | None) -> dict[str, Any]:
    """Return `verdict`, `attempts`, a count for each outcome, `findings` and `notes` by kind, and the report's figures.

    Further keys: `since`, `until`, `groups` (conservation), `levels` (with lateness), `times` (by minute, hour or day),
    `tries` (successes by number of retries), `causes` (of dead letters).
    """
    counts = _counts(ledger)
    groups = _groups(counts)
    findings, notes = _kinds(ledger)
    return {
        "verdict": "findings" if findings else "ok",
        "since": None if since is None else since.isoformat(),
        "until": now.isoformat(),
        "attempts": sum(group["sent_back"] for group in groups),
        **{outcome: sum(group[outcome] for group in groups) for outcome in _STATES},
        "unexplained": sum(row["count"] for row in counts if row.outcome == "unexplained"),
        "findings": findings,
        "notes": notes,
        "groups": groups,
        "levels": _levels(ledger, counts),
        "times": _times(ledger, counts),
        "tries": _tries(counts),
        "causes": _causes(ledger),
    }


def _counts(ledger: DataFrame) -> list[Row]:
    """Count the rows of each sort; the other figures are sums of these."""
    counted = F.col("sent_offset").isNotNull() | F.col("inbox_offset").isNotNull()
    keys = ("group", "replay_times", "attempt", "level", "delay_ms", "dead", "outcome")
    return (
        ledger.groupBy(*keys, counted.alias("counted"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.count_if(F.col("copy") == 0).alias("first"),
            F.min(_sent_ms()).alias("begin_ms"),
            F.max(_sent_ms()).alias("end_ms"),
            F.count_if("consumed").alias("consumed"),
            F.count_if(~F.col("consumed")).alias("unread"),
        )
        .collect()
    )


def _groups(counts: Iterable[Row]) -> list[dict[str, Any]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in counts:
        if row.counted:
            group = found[row.group or ""]
            group["sent_back"] += row["count"]
            group[row.outcome] += row["count"]
            group["consumed"] += row.consumed
            group["unread"] += row.unread
    keys = ("sent_back", *_STATES, "consumed", "unread")
    return [{"group": name, **{key: found[name][key] for key in keys}} for name in sorted(found)]


def _levels(ledger: DataFrame, counts: Iterable[Row]) -> list[dict[str, Any]]:
    """Count by duration the send-backs and their lateness."""
    sent: Counter[int] = Counter()
    for row in counts:
        if row.counted and row.delay_ms is not None:
            sent[row.delay_ms] += row["count"]
    late = F.col("lateness_ms")
    bars = F.array_min(F.filter(F.array(*map(F.lit, LATENESS_LIMITS_MS)), lambda limit: limit >= late))
    rows = (
        ledger.where(late.isNotNull() & F.col("outcome").isin("moved", "dead"))
        .groupBy("delay_ms")
        .agg(
            F.percentile_approx(late, [0.5, 0.99], 1000).alias("percentiles"),
            F.min(late).alias("min"),
            F.max(late).alias("max"),
            *(F.count_if(bars.eqNullSafe(F.lit(limit))).alias(f"bar_{limit}") for limit in (*LATENESS_LIMITS_MS, None)),
        )
        .collect()
    )
    found: dict[int, dict[str, Any]] = {delay: {"delay_ms": delay, "sent_back": sent[delay]} for delay in sorted(sent)}
    for row in rows:
        if row.delay_ms in found:
            p50, p99 = row.percentiles
            found[row.delay_ms] |= {"p50": p50, "p99": p99, "min": row["min"], "max": row["max"]}
            found[row.delay_ms]["bars"] = [row[f"bar_{limit}"] for limit in (*LATENESS_LIMITS_MS, None)]
    return list(found.values())


def _times(ledger: DataFrame, counts: Iterable[Row]) -> dict[str, Any]:
    """Count send-backs, and dead letters among them, by time, in steps that suit a chart."""
    known = [(row.begin_ms, row.end_ms) for row in counts if row.begin_ms is not None]
    if not known:
        return {"step_ms": _MINUTE_MS, "bars": []}
    span = max(end for _, end in known) - min(begin for begin, _ in known)
    step = next((step for step in (_MINUTE_MS, 60 * _MINUTE_MS) if span <= _MOST_BARS * step), 1_440 * _MINUTE_MS)
    at = (F.floor(_sent_ms() / step) * step).alias("at_ms")
    rows = (
        ledger.where(_sent_ms().isNotNull())
        .groupBy(at)
        .agg(F.count(F.lit(1)).alias("sent_back"), F.count_if("dead").alias("dead"))
        .orderBy("at_ms")
        .collect()
    )
    return {"step_ms": step, "bars": [row.asDict() for row in rows]}


def _sent_ms() -> Column:
    return F.unix_millis(_sent())


def _sent() -> Column:
    """Return when an attempt was sent back; null if a producer's clock gave a time that Python cannot represent."""
    return F.coalesce(*(moment(F.unix_millis(name)) for name in ("appended", "asked")))


def _tries(counts: Iterable[Row]) -> list[dict[str, int]]:
    """Return the successes by try: messages with another send-back after their k-th return did not succeed."""
    came_back: Counter[int] = Counter()
    again: Counter[int] = Counter()
    for row in counts:
        if row.attempt is None or row.replay_times:
            continue
        if row.outcome == "moved":
            came_back[row.attempt] += row.first
        if row.counted:
            again[row.attempt - 1] += row.first
    return [
        {"retries": times, "messages": max(0, came_back[times] - again[times])}
        for times in sorted(came_back)
        if came_back[times] > again[times]
    ]


def _causes(ledger: DataFrame) -> list[dict[str, Any]]:
    """Return each cause once, regardless of numbers and ids in its text."""
    rows = (
        ledger.where((F.col("outcome") == "dead") & F.col("cause").isNotNull())
        .groupBy(F.regexp_replace("cause", _NUMBERS, "…").alias("cause"))
        .count()
        .orderBy(F.desc("count"), "cause")
        .limit(_CAUSES)
        .collect()
    )
    return [{"cause": row.cause, "count": row["count"]} for row in rows]


def _kinds(ledger: DataFrame) -> tuple[dict[str, int], dict[str, int]]:
    kinds = ledger.select(F.explode(F.concat("findings", "notes")).alias("kind"))
    found = {row.kind: row["count"] for row in kinds.groupBy("kind").count().collect()}
    findings, notes = ({kind: found[kind] for kind in wanted if kind in found} for wanted in (FINDINGS, NOTES))
    return findings, notes


def first_findings(findings: DataFrame, notes: DataFrame, of_a_kind: int) -> list[dict[str, Any]]:
    """Return findings and notes as dictionaries, a limited number of each kind, in the order of time."""
    order = Window.partitionBy("kind").orderBy(
        F.coalesce("appended", "asked", "delivered"), "origin_message_id", "attempt"
    )
    both = findings.unionByName(notes)
    rows = (
        both.withColumn("place", F.row_number().over(order)).where(F.col("place") <= of_a_kind).orderBy("kind", "place")
    )
    return [row.asDict() for row in rows.drop("place").collect()]
