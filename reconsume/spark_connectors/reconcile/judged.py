"""The measures for attempts: the moments, the tolerances, the level tables, the schedulers' progress."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import of_type
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import RetryPolicy, parse_retry_policy
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY
from reconsume.spark_connectors.reconcile.records.deleted import ExpiredLanes, First, Partition
from reconsume.spark_connectors.session import looked_up
from reconsume.spark_connectors.source import TopicSource

Committed = Mapping[str, Mapping[Partition, int]]
"""By consumer group: the offset that it will read next on each (Kafka topic, partition)."""

SETTLED_MS: Final = 30_000
"""Twice the longest transaction: whatever was written in one before is visible, or never will be."""
_FOLLOWED_MS: Final = 60_000
"""Everybody has read a changed table by then."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The tolerances of a judgement.

    Attributes:
        late: a delivery is late, and a waiting record overdue, by more than this.
    """

    late: dt.timedelta = dt.timedelta(minutes=1)

    def __post_init__(self) -> None:
        of_type(self.late, "late", dt.timedelta)
        if self.late < dt.timedelta(0):
            raise IllegalSetting(f"late must be 0 or more, not {self.late}")

    @property
    def late_ms(self) -> int:
        """In milliseconds."""
        return self.late // dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class LevelTables:
    """How long each level lasts, and since when that holds.

    Attributes:
        table: of all groups.
        since_ms: when it was set, 0 forever.
        of_group: policy of the groups that have their own, and since when.
        without_retries: groups whose send-backs are dropped (`retryQueueNums` ≤ 0).
    """

    table: RetryPolicy
    since_ms: int = 0
    of_group: Mapping[str, tuple[RetryPolicy, int]] = field(default_factory=dict)
    without_retries: Sequence[str] = ()

    @property
    def longest_ms(self) -> int:
        """The longest wait there is."""
        policies = [self.table, *(policy for policy, _ in self.of_group.values())]
        return max(max(policy.distinct_delays_ms()) for policy in policies)

    def wanted_ms(self, group: Column, level: Column, sent: Column) -> Column:
        """Return the duration of the level; null if it is unknown, or was perhaps changed since then."""
        found = _wanted(self.table, self.since_ms, level, sent)
        for name, (policy, since_ms) in self.of_group.items():
            found = F.when(group == name, _wanted(policy, since_ms, level, sent)).otherwise(found)
        return found


def _wanted(policy: RetryPolicy, since_ms: int, level: Column, sent: Column) -> Column:
    delays = F.array(*(F.lit(policy.delay_ms(one)) for one in range(1, policy.max_level + 1)))
    # A level that no table has lasts -1 ms, so no topic is right for it.
    lasts = F.coalesce(F.get(delays, level - 1), F.lit(-1)).cast("bigint")
    return F.when(F.unix_millis(sent) >= (since_ms + _FOLLOWED_MS if since_ms else 0), lasts)


def read_level_tables(source: TopicSource, own: str | None) -> LevelTables:
    """Return the current contents of the GROUPS topic; RocketMQ's own table where it has none.

    Args:
        source: what is read.
        own: the level table in place of all that the topic says of levels; None takes that.
    """
    # One task: the topic is small.
    raw = source.of_clients().with_options(minPartitions="1").raw(pattern=source.names.groups.replace(".", r"\."))
    records = raw.select("partition", "offset", F.unix_millis("timestamp").alias("set_at"), "key", "value").collect()
    newest = {(row.key or b"").decode(errors="replace"): row for row in sorted(records, key=lambda row: row.offset)}
    tables = _tables(newest)
    return tables if own is None else LevelTables(DelayLevels.parse(own), 0, {}, tables.without_retries)


def _tables(newest: Mapping[str, Any]) -> LevelTables:
    table, since_ms = DelayLevels.parse(DEFAULT_LEVEL_TABLE), 0
    of_group: dict[str, tuple[RetryPolicy, int]] = {}
    without: list[str] = []
    for name, row in newest.items():
        if row.value is None or name == ALLOWED_TOPICS_KEY:
            continue
        try:
            settings = json.loads(row.value)
            if name == SYSTEM_KEY:
                table = DelayLevels.parse(settings.get("messageDelayLevel", DEFAULT_LEVEL_TABLE))
                since_ms = row.set_at
                continue
            if (policy := settings.get("groupRetryPolicy")) is not None:
                of_group[name] = (parse_retry_policy(policy), row.set_at)
            if settings.get("retryQueueNums", 1) <= 0:
                without.append(name)
        except (ValueError, TypeError, AttributeError):
            continue  # the defaults hold; `reconsume doctor` names it
    return LevelTables(table, since_ms, of_group, tuple(without))


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """The facts of one reading.

    Attributes:
        handled: for each partition that schedulers read, the offset before which all was handled.
        surplus: deliveries that no send-back explains.
        releases: marks of records that were released from the quarantine.
        firsts: the first record that was read of each partition of the delay topics.
        quarantined: records in the quarantine.
        lanes: until when deliveries may have lost their send-back.
    """

    handled: Mapping[Partition, int]
    surplus: int
    releases: int = 0
    firsts: Mapping[Partition, First] = field(default_factory=dict)
    quarantined: int = 0
    lanes: ExpiredLanes = field(default_factory=ExpiredLanes)

    def with_handled(self, marks: Mapping[Partition, int]) -> AttemptFacts:
        """With what is known from elsewhere."""
        known = {place: max(mark, self.handled.get(place, 0)) for place, mark in marks.items()}
        return replace(self, handled={**self.handled, **known})

    def is_handled(self, place: Column) -> Column:
        """Whether a scheduler has gone past a record, by its `<topic>/<partition>/<offset>`."""
        marks = {f"{topic}/{partition}": mark for (topic, partition), mark in self.handled.items()}
        mark = looked_up(marks, F.substring_index(place, "/", 2))
        return F.coalesce(F.substring_index(place, "/", -1).cast("bigint") < mark, F.lit(False))


def gather_facts(pairs: DataFrame, topic_prefix: str, committed: Committed, now_ms: int) -> AttemptFacts:
    """One look at all pairs.

    All before the offset that the schedulers have committed was handled. Where that is not known a delivery says so of
    what is before it, unless it was one that overtook a flood. It has to be older than a transaction may last: of one
    that has just ended not everything may be visible.
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
    # In place of what deliveries say: where records overtake, one of those says nothing of what is before it.
    handled.update(committed.get(topic_prefix + "scheduler", {}))
    return AttemptFacts(handled, surplus, releases, firsts, quarantined)


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
        F.count_if(kind == "quarantine").alias("quarantined"),
        F.count_if(~is_sent & kind.isin("retry", "dead_letter")).alias("surplus"),
        F.count_if(kind == "released").alias("releases"),
    )
    return summary.collect()
