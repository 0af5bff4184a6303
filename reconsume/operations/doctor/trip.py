"""Sends one record through the shortest level, and compares clocks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.kafka.single_records import write_at_once
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.human_text import counted
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.wire.names import DOCTOR_GROUP
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored, send_back_copy
from reconsume.operations.doctor.inspection import InspectedCluster
from reconsume.operations.doctor.report import Report

_PATIENCE_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.2
_LONGEST_MS: Final = 60_000
"""The report waits for the record, and `helm test` for the report."""
_SKEW_MS: Final = 500
_SAME_TIME: Final = "let all follow the same time server: chronyc tracking, timedatectl set-ntp true"


@dataclass(frozen=True, slots=True)
class Stamp:
    """A broker's append time, and the moments of our clock before and after; milliseconds."""

    broker: int
    before_ms: float
    stored_ms: int
    after_ms: float

    @property
    def ahead_ms(self) -> float:
        """Return the minimum by which the broker's clock is ahead of ours; negative if behind, 0 if unknown."""
        if self.stored_ms > self.after_ms:
            return self.stored_ms - self.after_ms
        return min(0.0, self.stored_ms - self.before_ms)


def check_clock(stamps: Sequence[Stamp], report: Report) -> None:
    """Compare the brokers' clocks: they decide when records are due. This machine's clock matters little."""
    skewed = [one for one in stamps if abs(one.ahead_ms) > _SKEW_MS]
    for one in skewed:
        way, effect = ("ahead of", "late") if one.ahead_ms > 0 else ("behind", "early")
        report.warning(
            "clock",
            f"the clock of broker {one.broker} is {abs(one.ahead_ms):,.0f} ms {way} this machine's: a worker here with "
            f"delivery = at_least_once delivers {effect} by as much until its first delivery is acknowledged",
            _SAME_TIME,
        )
    apart = _furthest_apart(stamps)
    if apart is not None:
        report.problem("clock", apart, _SAME_TIME)
    if stamps and not skewed and apart is None:
        report.passed.append(f"clock: {counted(len(stamps), 'broker')} within {_SKEW_MS} ms of this machine")


def _furthest_apart(stamps: Sequence[Stamp]) -> str | None:
    """Return the two brokers whose clocks differ most, if by too much."""
    if not stamps:
        return None
    first = max(stamps, key=lambda one: one.stored_ms - one.after_ms)
    last = min(stamps, key=lambda one: one.stored_ms - one.before_ms)
    apart_ms = (first.stored_ms - first.after_ms) - (last.stored_ms - last.before_ms)
    if apart_ms <= _SKEW_MS:
        return None
    return (
        f"the clock of broker {first.broker} is {apart_ms:,.0f} ms ahead of broker {last.broker}'s: "
        "a record that the one stores may be delivered early or late by as much"
    )


def send_through(cluster: InspectedCluster, groups: Groups, report: Report) -> list[Stamp]:
    """Send one record through each broker that leads a partition of the shortest level; return the stamps.

    Send none if that level takes over a minute.
    """
    try:
        groups.find(DOCTOR_GROUP)
    except ReconsumeError:
        report.warning(
            "record",
            "no record was sent: unknown groups are refused, and the doctor's is not registered",
            f"reconsume groups set {DOCTOR_GROUP}",
        )
        return []
    level = min(range(1, groups.table.max_level + 1), key=groups.table.delay_ms)
    delay_ms, retry = groups.table.delay_ms(level), cluster.names.retry(DOCTOR_GROUP)
    if delay_ms > _LONGEST_MS:
        report.skipped.append(f"record and clock: the shortest level, {format_duration(delay_ms)}, takes too long")
        return []
    lane = cluster.names.delay(delay_ms)
    before = _end(cluster, retry)
    stamps, sent = list[Stamp](), dict[Partition, int]()
    for number, (broker, partition) in enumerate(sorted(cluster.admin.leaders(lane).items())):
        headers = _headers(cluster, groups, level, number)
        stamp, sent[lane, partition] = _send(cluster, lane, partition, broker, headers)
        stamps.append(stamp)
    time.sleep(delay_ms / 1000)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (lacking := _undelivered(cluster, retry, before, sent)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    if lacking:
        some = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(lacking))
        report.problem(
            "record",
            f"no test record came from {some} to {retry} within "
            f"{format_duration(delay_ms)} and {_PATIENCE_SECONDS:.0f} s",
            "look at the logs of the workers, then at undeliverable records: kafka-console-consumer.sh "
            f"--bootstrap-server {cluster.settings.bootstrap_servers} --topic {cluster.names.quarantine} "
            "--from-beginning --property print.headers=true",
        )
    else:
        report.passed.append(f"record: {len(stamps)} came through {lane}")
    return stamps


def _headers(cluster: InspectedCluster, groups: Groups, level: int, number: int) -> list[tuple[str, bytes]]:
    now = int(cluster.clock())
    origin = Position(cluster.names.retry(DOCTOR_GROUP), 0, now * 1_000 + number)
    request = SendBackRequest(DOCTOR_GROUP, [], Stored.first_copy(origin, now), delay_level=level)
    copy = send_back_copy(request, cluster.names, groups.table)
    return [(name, value) for name, value in copy.headers if value is not None]


def _send(
    cluster: InspectedCluster, lane: str, partition: int, broker: int, headers: list[tuple[str, bytes]]
) -> tuple[Stamp, int]:
    before_ms = cluster.clock()
    [(*_, offset, stored_ms)] = write_at_once(cluster, "reconsume-doctor", lane, [(b"", None, partition, headers)])
    return Stamp(broker, before_ms, stored_ms, cluster.clock()), offset


def _undelivered(
    cluster: InspectedCluster, retry: str, before: Mapping[Partition, int], sent: Mapping[Partition, int]
) -> list[Partition]:
    """Return the partitions whose record the workers have not passed, or all if too few records have arrived."""
    done = cluster.admin.committed(cluster.names.scheduler_group, sent)
    behind = [where for where, offset in sent.items() if done.get(where, 0) <= offset]
    return behind or (list(sent) if _records(cluster, retry, before) < len(sent) else [])


def _end(cluster: InspectedCluster, topic: str) -> dict[Partition, int]:
    return cluster.admin.end_offsets(all_partitions(cluster.admin.partitions([topic])))


def _records(cluster: InspectedCluster, topic: str, before: Mapping[Partition, int]) -> int:
    """Return the maximum of new records: transaction markers and records of other doctors count too."""
    try:
        return sum(end - before.get(where, 0) for where, end in _end(cluster, topic).items())
    except KafkaNotReachable:
        return 0  # a topic that was created a moment ago
