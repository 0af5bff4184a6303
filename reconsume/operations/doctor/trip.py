"""One record through the shortest level: what a send-back does, and whose clock says what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import make_producer
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.human_text import counted
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.wire.names import DOCTOR_GROUP
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored, send_back_copy
from reconsume.operations.doctor.inspection import Inspector
from reconsume.operations.doctor.report import Report

__all__ = ["Stamp", "check_clock", "send_through"]

_PATIENCE_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.05
_SKEW_MS: Final = 500
_SAME_TIME: Final = "let all follow the same time server: chronyc tracking, timedatectl set-ntp true"


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a broker stored a record, by its clock, and between which moments of ours that was; milliseconds."""

    broker: int
    before_ms: float
    stored_ms: int
    after_ms: float

    @property
    def ahead_ms(self) -> float:
        """How far the broker's clock is ahead of ours at least; negative if it is behind, 0 if nothing tells."""
        if self.stored_ms > self.after_ms:
            return self.stored_ms - self.after_ms
        return min(0.0, self.stored_ms - self.before_ms)


def check_clock(stamps: Sequence[Stamp], report: Report) -> None:
    """Records are due by the brokers' clocks, so these must agree; this machine's counts for little."""
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
    """The two brokers whose clocks differ most, if that is too much for what one stores and the other delivers."""
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


def send_through(settings: Settings, admin: Inspector, groups: Groups, report: Report, clock: Clock) -> list[Stamp]:
    """One record for each broker that leads a partition of the shortest level; gives when they were stored."""
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
    delay_ms, retry = groups.table.delay_ms(level), settings.names.retry(DOCTOR_GROUP)
    lane = settings.names.delay(delay_ms)
    leaders = admin.leaders(lane)
    before = _end(admin, retry)
    stamps = [
        _send(settings, lane, partition, broker, _headers(settings, groups, level, number, clock), clock)
        for number, (broker, partition) in enumerate(sorted(leaders.items()))
    ]
    deadline = time.monotonic() + delay_ms / 1000 + _PATIENCE_SECONDS
    while (arrived := _records(admin, retry, before)) < len(stamps) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    if arrived < len(stamps):
        report.problem(
            "record",
            f"a record that was put on {lane} did not come to {retry} within "
            f"{format_duration(delay_ms)} and {_PATIENCE_SECONDS:.0f} s",
            "look at the log of the workers, then at what they could not deliver: kafka-console-consumer.sh "
            f"--bootstrap-server {settings.bootstrap_servers} --topic {settings.names.quarantine} --from-beginning "
            "--property print.headers=true",
        )
    else:
        report.passed.append(f"record: {len(stamps)} came through {lane}")
    return stamps


def _headers(settings: Settings, groups: Groups, level: int, number: int, clock: Clock) -> list[tuple[str, bytes]]:
    now = int(clock())
    origin = Position(settings.names.retry(DOCTOR_GROUP), 0, now * 1_000 + number)
    request = SendBackRequest(DOCTOR_GROUP, [], Stored.first_copy(origin, now), delay_level=level)
    copy = send_back_copy(request, settings.names, groups.table)
    return [(name, value) for name, value in copy.headers if value is not None]


def _send(
    settings: Settings, lane: str, partition: int, broker: int, headers: list[tuple[str, bytes]], clock: Clock
) -> Stamp:
    limit = {"message.timeout.ms": int(_PATIENCE_SECONDS * 1_000), "linger.ms": 0, "enable.idempotence": False}
    producer = make_producer(producer_settings(settings.client_settings(), "reconsume-doctor") | limit)
    outcome: list[KafkaError | Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        outcome.append(message if error is None else error)

    try:
        before = clock()
        producer.produce(lane, value=b"", partition=partition, headers=list(headers), on_delivery=on_delivery)
        producer.flush()
        after = clock()
    except KafkaException as error:
        raise translate(error, f"writing to {lane}") from error
    finally:
        producer.close()
    [stored] = outcome
    if isinstance(stored, KafkaError):
        raise translate(stored, f"writing to {lane}-{partition}")
    return Stamp(broker, before, stored.timestamp()[1], after)


def _end(admin: Inspector, topic: str) -> dict[tuple[str, int], int]:
    count = admin.partitions([topic]).get(topic, 0)
    return admin.end_offsets([(topic, one) for one in range(count)])


def _records(admin: Inspector, topic: str, before: dict[tuple[str, int], int]) -> int:
    """At most so many records came since; transactions' marks count too, which only ends the wait too early."""
    try:
        return sum(end - before.get(where, 0) for where, end in _end(admin, topic).items())
    except KafkaNotReachable:
        return 0  # a topic that was made a moment ago
