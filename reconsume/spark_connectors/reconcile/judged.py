"""What an attempt is judged by: the moments, the tolerances, the level tables, how far the schedulers have come."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import of_type
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import RetryPolicy, parse_retry_policy
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY
from reconsume.spark_connectors.source import TopicSource

__all__ = ["Committed", "LevelTables", "Tolerances", "read_level_tables"]

Committed = Mapping[str, Mapping[tuple[str, int], int]]
"""By consumer group: the offset that it will read next on each (Kafka topic, partition)."""

_FOLLOWED_MS: Final = 60_000
"""Everybody has read a changed table by then."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What is still taken for right.

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
        since_ms: when it was set, 0 for ever.
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
        """What the level lasts; null where it is not known, or was perhaps changed since then."""
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
    """What the GROUPS topic says now; RocketMQ's own table where it says nothing.

    Args:
        source: what is read.
        own: the level table in place of all that the topic says of levels; None takes that.
    """
    raw = source.of_clients().raw(pattern=source.names.groups.replace(".", r"\."))
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
