"""What a PushConsumer is told at its construction, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses
from reconsume.consumers.message_model import MessageModel
from reconsume.consumers.partitions.consume_from import ConsumeFrom
from reconsume.consumers.partitions.flow_control import Limits
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_range, check_types
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.namespaces import Namespace

__all__ = ["ConsumeSettings", "kafka_settings", "limits_of"]

_BEGINNING: Final = ("earliest", "beginning", "smallest")
_END: Final = ("latest", "end", "largest")
_MAX_POLL_INTERVAL_MS: Final = 300_000
"""Kafka's default."""
_LEAVE_SHARE: Final = 0.8
"""Of `max.poll.interval.ms`, so that waiting for a listener does not cost the membership."""
_SETTLE_SHARE: Final = 0.1
"""The same for send-backs on their way, after the listener."""
_SETTLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ConsumeSettings:
    """The arguments of a PushConsumer that its parts need; see there."""

    group: str
    names: TopicNames
    conf: Mapping[str, Any]
    consume_from: ConsumeFrom
    namespace: Namespace
    message_model: MessageModel
    offset_store: Path | None
    max_reconsume_times: int | None
    batch_size: int
    threads: int
    limits: Limits
    own_table: DelayLevels | None
    exactly_once: bool
    circuit_breaker: CircuitBreaker | None = None
    dead_letter_on: ExceptionClasses = ()

    @property
    def client_id(self) -> str:
        """Shown in the brokers' logs."""
        return str(self.conf.get("client.id", f"reconsume-{self.group}"))


def limits_of(
    conf: Mapping[str, Any],
    *,
    pull_threshold_for_queue: int,
    pull_threshold_size_for_queue: int,
    consume_concurrently_max_span: int,
    consume_timeout: timedelta,
    await_termination_when_shutdown: timedelta,
) -> Limits:
    """Flow control and timeouts; raises `IllegalSetting`."""
    check_types(locals(), consume_timeout=timedelta, await_termination_when_shutdown=timedelta)
    if consume_timeout <= timedelta(0):
        raise IllegalSetting(f"consume_timeout must be longer than 0, not {consume_timeout}")
    mebibytes = check_range("pull_threshold_size_for_queue", pull_threshold_size_for_queue, 1, 1_024)
    try:
        max_poll_interval_ms = int(conf.get("max.poll.interval.ms", _MAX_POLL_INTERVAL_MS))
    except (TypeError, ValueError):
        raise IllegalSetting(
            f"max.poll.interval.ms must be a number of milliseconds, not {conf['max.poll.interval.ms']!r}"
        ) from None
    return Limits(
        queue_records=check_range("pull_threshold_for_queue", pull_threshold_for_queue, 1, 65_535),
        queue_bytes=mebibytes * 1024 * 1024,
        max_span=check_range("consume_concurrently_max_span", consume_concurrently_max_span, 1, 65_535),
        timeout_ms=consume_timeout.total_seconds() * 1000,
        await_termination_seconds=await_termination_when_shutdown.total_seconds(),
        leave_seconds=max_poll_interval_ms / 1000 * _LEAVE_SHARE,
        settle_seconds=min(_SETTLE_SECONDS, max_poll_interval_ms / 1000 * _SETTLE_SHARE),
    )


def kafka_settings(conf: Mapping[str, Any] | None, bootstrap_servers: str) -> tuple[dict[str, Any], bool | None]:
    """The user's librdkafka settings, and whether they start a topic without an offset at its beginning, if they say.

    Raises:
        IllegalSetting: one that would break a guarantee.
    """
    checked = dict(conf or {}) | {"bootstrap.servers": bootstrap_servers}
    reset = checked.pop("auto.offset.reset", None)
    if reset is not None and reset not in _BEGINNING + _END:
        raise IllegalSetting(f"auto.offset.reset {reset!r}: use earliest or latest")
    if checked.get("isolation.level", "read_committed") != "read_committed":
        raise IllegalSetting("isolation.level must be read_committed: retries are delivered in transactions")
    strategy = checked.get("partition.assignment.strategy", "cooperative-sticky")
    if strategy != "cooperative-sticky":
        raise IllegalSetting(f"partition.assignment.strategy {strategy!r}: only cooperative-sticky, or group.protocol")
    for forbidden in ("group.id", "enable.auto.commit"):
        if forbidden in checked:
            raise IllegalSetting(f"{forbidden} is decided by the consumer itself; leave it out of conf")
    return checked, None if reset is None else reset in _BEGINNING
