"""The measures for judging attempts: times, tolerances, level tables, the schedulers' progress."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalName, IllegalSetting
from reconsume.delay_levels.foreign_values import of_type
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import RetryPolicy, parse_retry_policy
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY, TopicNames
from reconsume.spark_connectors.reconcile.records.deleted import ExpiredLanes, First, Partition
from reconsume.spark_connectors.session import local_rows, looked_up
from reconsume.spark_connectors.source import TopicSource

Committed = Mapping[str, Mapping[Partition, int]]
"""By consumer group: the next offset to read on each (Kafka topic, partition)."""

SETTLED_MS: Final = 30_000
"""Twice the longest transaction: a record of an earlier transaction is visible by now, or never will be."""
_FOLLOWED_MS: Final = 60_000
"""After this time every process has read a changed level table."""
_OWN: Final = (
    "own_group STRING, own_policy STRUCT<since_ms BIGINT, delays ARRAY<BIGINT>>, own_drops BOOLEAN, own_drops_ms BIGINT"
)
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, RecursionError)
"""Such a record leaves the defaults; `reconsume doctor` names it."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The tolerances of a judgement.

    Attributes:
        late: a delivery or a waiting record may exceed its due time by this much.
    """

    late: dt.timedelta = dt.timedelta(minutes=1)

    def __post_init__(self) -> None:
        of_type(self.late, "late", dt.timedelta)
        if self.late < dt.timedelta(0):
            raise IllegalSetting(f"late must be 0 or more, not {self.late}")

    @property
    def late_ms(self) -> int:
        """Return `late` in milliseconds."""
        return self.late // dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class LevelTables:
    """The duration of each level, and since when it holds.

    Attributes:
        table: the table of all groups.
        since_ms: when it was set; 0 means always.
        of_group: groups with a record: the retry policy, or the table of all groups, and since when.
        dropping: groups with a record: whether their send-backs are dropped (`retryQueueNums` ≤ 0), and since when.
        topics_ms: the durations of the existing delay topics; records of a removed level keep their delay.
    """

    table: RetryPolicy
    since_ms: int = 0
    of_group: Mapping[str, tuple[RetryPolicy, int]] = field(default_factory=dict)
    dropping: Mapping[str, tuple[bool, int]] = field(default_factory=dict)
    topics_ms: Sequence[int] = ()

    @property
    def longest_ms(self) -> int:
        """Return the longest duration, also of levels that were removed."""
        policies = [self.table, *(policy for policy, _ in self.of_group.values())]
        return max(*(max(policy.distinct_delays_ms()) for policy in policies), 0, *self.topics_ms)

    def with_topics(self, names: TopicNames, partitions: Iterable[Partition]) -> LevelTables:
        """Return the tables with the durations of the delay topics among these partitions."""
        found = set[int]()
        for topic in {topic for topic, _ in partitions}:
            with suppress(IllegalName):  # a parked topic
                found.add(names.delay_ms(topic))
        return replace(self, topics_ms=sorted(found))

    def with_policies(self, pairs: DataFrame) -> DataFrame:
        """Add `own_policy`, `own_drops` and `own_drops_ms` of each pair's group; null without a record in GROUPS.

        They are a broadcast table: a condition for each group would be a tree too deep for Spark's optimizer.
        """
        if not (self.of_group or self.dropping):
            return pairs
        rows: dict[str, dict[str, Any]] = {}
        for name, (policy, since_ms) in self.of_group.items():
            own = {"since_ms": _followed_ms(since_ms), "delays": _delays_ms(policy)}
            rows[name] = {"own_group": name, "own_policy": own, "own_drops": None, "own_drops_ms": None}
        for name, (drops, since_ms) in self.dropping.items():
            known = rows.setdefault(name, {"own_group": name, "own_policy": None})
            known |= {"own_drops": drops, "own_drops_ms": _followed_ms(since_ms)}
        policies = local_rows(pairs.sparkSession, list(rows.values()), _OWN)
        return pairs.join(F.broadcast(policies), F.col("group") == F.col("own_group"), "left").drop("own_group")

    def wanted_ms(self, level: Column, sent: Column) -> Column:
        """Return the duration of the level; null if it is unknown, or may have changed since then.

        If groups have policies, the pairs must be those of `with_policies`.
        """
        common = _wanted(F.array(*map(F.lit, _delays_ms(self.table))), F.lit(_followed_ms(self.since_ms)), level, sent)
        if not self.of_group:
            return common
        own = F.col("own_policy")
        return F.when(own.isNull(), common).otherwise(_wanted(own["delays"], own["since_ms"], level, sent))

    def is_dropping(self, asked_ms: Column) -> Column:
        """Return whether the group dropped send-backs of that time; null if that may have changed since.

        The pairs must be those of `with_policies`.
        """
        if not self.dropping:
            return F.lit(False)
        known = F.coalesce(asked_ms >= F.col("own_drops_ms"), F.lit(True))
        return F.when(known, F.coalesce("own_drops", F.lit(False)))


def _delays_ms(policy: RetryPolicy) -> list[int]:
    return [policy.delay_ms(level) for level in range(1, policy.max_level + 1)]


def _followed_ms(since_ms: int) -> int:
    return since_ms + _FOLLOWED_MS if since_ms else 0


def _wanted(delays: Column, since_ms: Column, level: Column, sent: Column) -> Column:
    # An unknown level lasts -1 ms, so every topic is wrong for it.
    lasts = F.coalesce(F.get(delays, F.try_subtract(level, F.lit(1))), F.lit(-1)).cast("bigint")
    return F.when(F.unix_millis(sent) >= since_ms, lasts)


def read_level_tables(source: TopicSource, own: str | None) -> LevelTables:
    """Return the current contents of GROUPS; RocketMQ's table if the topic has none.

    Args:
        source: the topics.
        own: a level table that replaces all levels in the topic; None uses the topic's.
    """
    # One task: the topic is small.
    raw = source.of_clients().with_options(minPartitions="1").raw(pattern=source.names.groups.replace(".", r"\."))
    records = raw.select("partition", "offset", F.unix_millis("timestamp").alias("set_at"), "key", "value").collect()
    records.sort(key=lambda row: row.offset)
    tables, dropping = _tables({_name(row): row for row in records}), _dropping(records)
    return replace(tables, dropping=dropping) if own is None else LevelTables(DelayLevels.parse(own), dropping=dropping)


def _name(row: Any) -> str:
    return (row.key or b"").decode(errors="replace")


def _tables(newest: Mapping[str, Any]) -> LevelTables:
    table, since_ms = DelayLevels.parse(DEFAULT_LEVEL_TABLE), 0
    of_group: dict[str, tuple[RetryPolicy, int]] = {}
    # The common table first: it is that of groups without a policy, also of those that had one.
    for name, row in sorted(newest.items(), key=lambda one: one[0] != SYSTEM_KEY):
        if name == ALLOWED_TOPICS_KEY:
            continue
        with suppress(*_UNREADABLE):
            if name == SYSTEM_KEY:
                settings = {} if row.value is None else json.loads(row.value)
                table = DelayLevels.parse(settings.get("messageDelayLevel", DEFAULT_LEVEL_TABLE))
                since_ms = row.set_at
                continue
            policy, _ = _settings(row)
            of_group[name] = (table, max(since_ms, row.set_at)) if policy is None else (policy, row.set_at)
    return LevelTables(table, since_ms, of_group)


def _settings(row: Any) -> tuple[RetryPolicy | None, bool]:
    """Return a group's own retry policy, and whether its send-backs are dropped."""
    settings = {} if row.value is None else json.loads(row.value)
    policy = settings.get("groupRetryPolicy")
    return None if policy is None else parse_retry_policy(policy), settings.get("retryQueueNums", 1) <= 0


def _dropping(records: Sequence[Any]) -> dict[str, tuple[bool, int]]:
    """Return by group whether send-backs are dropped, and since when; 0 means always.

    Compaction may have removed earlier records of a group. It counts as one that dropped nothing then, because a loss
    must not be excused by a change of another field.
    """
    found: dict[str, tuple[bool, int]] = {}
    for row in records:
        drops = False
        with suppress(*_UNREADABLE):
            _, drops = _settings(row)
        before = found.get(_name(row), (False, 0))
        found[_name(row)] = before if before[0] == drops else (drops, row.set_at)
    return found


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """Facts from one reading of the topics.

    Attributes:
        handled: for each partition that schedulers read, the offset before which all records were handled.
        surplus: number of deliveries without a send-back.
        releases: number of marks of records that were released from the quarantine.
        firsts: the first record read of each partition of the delay topics.
        quarantined: number of records in the quarantine.
        lanes: times until which retention may have deleted the send-back of a delivery.
    """

    handled: Mapping[Partition, int]
    surplus: int
    releases: int = 0
    firsts: Mapping[Partition, First] = field(default_factory=dict)
    quarantined: int = 0
    lanes: ExpiredLanes = field(default_factory=ExpiredLanes)

    def with_handled(self, marks: Mapping[Partition, int]) -> AttemptFacts:
        """Return the facts with additional progress from elsewhere."""
        known = {place: max(mark, self.handled.get(place, 0)) for place, mark in marks.items()}
        return replace(self, handled={**self.handled, **known})

    def is_handled(self, place: Column) -> Column:
        """Return whether a scheduler has passed a record, by its `<topic>/<partition>/<offset>`."""
        marks = {f"{topic}/{partition}": mark for (topic, partition), mark in self.handled.items()}
        mark = looked_up(marks, F.substring_index(place, "/", 2))
        return F.coalesce(F.substring_index(place, "/", -1).cast("bigint") < mark, F.lit(False))


def gather_facts(pairs: DataFrame, topic_prefix: str, committed: Committed, now_ms: int) -> AttemptFacts:
    """Gather the facts in one pass over all pairs.

    All records before the schedulers' committed offset were handled. If that offset is unknown, a delivery proves it
    for the records before it, unless it overtook a flood. The delivery must be older than the longest transaction: the
    records of a transaction that has just ended may not all be visible.
    """
    handled: dict[Partition, int] = {}
    firsts: dict[Partition, First] = {}
    surplus = releases = quarantined = 0
    for row in _collect(pairs, now_ms):
        surplus += row.surplus
        releases += row.releases
        quarantined += row.quarantined
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
    # Replaces the deliveries: where records overtake, a delivery proves nothing about earlier records.
    handled.update(committed.get(topic_prefix + "scheduler", {}))
    return AttemptFacts(handled, surplus, releases, firsts, quarantined)


def _collect(pairs: DataFrame, now_ms: int) -> list[Any]:
    """Return a row for each pair of partitions, of the inbox and of a delay topic, that attempts went through."""
    settled = F.timestamp_millis(F.lit(now_ms - SETTLED_MS))
    kind, is_sent = F.col("arrived_kind"), F.col("sent_offset").isNotNull()
    arrived_settled = (F.col("arrived_appended") < settled) & ~F.col("arrived_by_producer")
    sent_settled = F.when(is_sent, (F.col("sent_appended") < settled) & ~F.col("sent_by_producer"))
    summary = pairs.groupBy("sent_topic", "sent_partition", "inbox_topic", "inbox_partition").agg(
        F.max(F.when(arrived_settled, F.col("sent_offset"))).alias("sent_mark"),
        F.max(F.when(F.coalesce(sent_settled, arrived_settled), F.col("inbox_offset"))).alias("inbox_mark"),
        F.min("sent_offset").alias("first_offset"),
        F.min(F.unix_millis("sent_appended")).alias("first_ms"),
        F.count_if(kind == "quarantine").alias("quarantined"),
        F.count_if(~is_sent & kind.isin("retry", "dead_letter")).alias("surplus"),
        F.count_if(kind == "released").alias("releases"),
    )
    return summary.collect()
