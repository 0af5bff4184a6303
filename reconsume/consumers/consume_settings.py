"""The checked arguments of a PushConsumer."""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any, Final

from reconsume.bridge.kafka.clients import clock_of
from reconsume.consumers.group_settings import GroupSettings, client_conf
from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses, exception_classes
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_range, check_types
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames, check_group
from reconsume.delay_levels.wire.namespaces import Namespace

_BEGINNING: Final = ("earliest", "beginning", "smallest")
_END: Final = ("latest", "end", "largest")
_MAX_POLL_INTERVAL_MS: Final = 300_000
"""Kafka's default."""
_LEAVE_SHARE: Final = 0.8
"""Fraction of `max.poll.interval.ms` to wait for listeners, so that the wait does not cost the membership."""
_SETTLE_SHARE: Final = 0.1
"""Fraction for send-backs in flight, after the listeners."""
LONGEST_SETTLE_SECONDS: Final = 5.0
"""Longest wait for them, also with what listeners have left of their fraction."""


class MessageModel(enum.Enum):
    """CLUSTERING shares the partitions among the members of a group; BROADCASTING gives all of them to each."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True)
class Limits:
    """Flow control and timeouts.

    Attributes:
        queue_records: maximum of unfinished messages per partition (`pull_threshold_for_queue`).
        queue_bytes: maximum size of their bodies, in bytes (`pull_threshold_size_for_queue`).
        max_span: maximum distance from the smallest unfinished offset to the newest (`consume_concurrently_max_span`).
        timeout_ms: maximum time of a listener (`consume_timeout`).
        await_termination_seconds: maximum wait for running listeners at shutdown.
        leave_seconds: maximum wait for running orderly listeners when their partition is revoked.
        settle_seconds: then, for send-backs in flight; both together are less than `max.poll.interval.ms`.
    """

    queue_records: int
    queue_bytes: int
    max_span: int
    timeout_ms: float
    await_termination_seconds: float
    leave_seconds: float = 200.0
    settle_seconds: float = 5.0


@dataclass(frozen=True, kw_only=True)
class ConsumeSettings(GroupSettings):
    """The arguments of a PushConsumer that its parts need; see `PushConsumer`."""

    consume_from: ConsumeFrom
    namespace: Namespace
    message_model: MessageModel
    offset_store: Path | None
    batch_size: int
    threads: int
    limits: Limits
    circuit_breaker: CircuitBreaker | None
    dead_letter_on: ExceptionClasses


def checked_settings(given: Mapping[str, Any]) -> ConsumeSettings:
    """Check the arguments of a PushConsumer and return its settings.

    Args:
        given: all arguments, by name.

    Raises:
        IllegalSetting: an invalid argument.
    """
    check_types(
        given,
        bootstrap_servers=str,
        conf=(Mapping, NoneType),
        message_model=MessageModel,
        offset_store=(str, os.PathLike, NoneType),
        consume_from_where=(ConsumeFromWhere, NoneType),
        consume_timestamp=(str, datetime, NoneType),
        exactly_once=bool,
        circuit_breaker=(CircuitBreaker, NoneType),
    )
    conf, from_beginning = kafka_settings(given["conf"], given["bootstrap_servers"])
    names, namespace = TopicNames(given["topic_prefix"]), Namespace(given["namespace"])
    group = namespace.wrap(check_group(given["group"]))
    names.retry(group)
    hopeless = exception_classes(given["dead_letter_on"])
    if given["message_model"] is MessageModel.BROADCASTING:
        if given["exactly_once"]:
            raise IllegalSetting("exactly_once needs CLUSTERING, because a broadcasting consumer sends nothing back")
        if hopeless:
            raise IllegalSetting("dead_letter_on needs CLUSTERING, because a broadcasting consumer has no dead letters")
    maximum, store, table = given["max_reconsume_times"], given["offset_store"], given["delay_levels"]
    where, timestamp = given["consume_from_where"], given["consume_timestamp"]
    return ConsumeSettings(
        group=group,
        names=names,
        conf=conf,
        consume_from=ConsumeFrom.of(where, timestamp, from_beginning, clock_of(conf)),
        namespace=namespace,
        message_model=given["message_model"],
        offset_store=None if store is None else Path(store),
        max_reconsume_times=None if maximum is None else _whole(given, "max_reconsume_times", 0, 2**31 - 1),
        batch_size=_whole(given, "consume_message_batch_max_size", 1, 1_024),
        threads=_whole(given, "consume_thread_nums", 1, 1_000),
        limits=_limits(given, conf),
        own_table=None if table is None else DelayLevels.parse(table),
        exactly_once=given["exactly_once"],
        circuit_breaker=given["circuit_breaker"],
        dead_letter_on=hopeless,
    )


def _limits(given: Mapping[str, Any], conf: Mapping[str, Any]) -> Limits:
    check_types(given, consume_timeout=timedelta, await_termination_when_shutdown=timedelta)
    consume_timeout: timedelta = given["consume_timeout"]
    if consume_timeout <= timedelta(0):
        raise IllegalSetting(f"consume_timeout must be longer than 0, not {consume_timeout}")
    await_termination: timedelta = given["await_termination_when_shutdown"]
    if await_termination < timedelta(0):
        raise IllegalSetting(f"await_termination_when_shutdown must be 0 or longer, not {await_termination}")
    try:
        max_poll_interval_ms = int(conf.get("max.poll.interval.ms", _MAX_POLL_INTERVAL_MS))
    except (TypeError, ValueError, OverflowError):
        raise IllegalSetting(
            f"max.poll.interval.ms must be a number of milliseconds, not {conf['max.poll.interval.ms']!r}"
        ) from None
    return Limits(
        queue_records=_whole(given, "pull_threshold_for_queue", 1, 65_535),
        queue_bytes=_whole(given, "pull_threshold_size_for_queue", 1, 1_024) * 1024 * 1024,
        max_span=_whole(given, "consume_concurrently_max_span", 1, 65_535),
        timeout_ms=consume_timeout.total_seconds() * 1000,
        await_termination_seconds=min(await_termination.total_seconds(), threading.TIMEOUT_MAX / 2),
        leave_seconds=max_poll_interval_ms / 1000 * _LEAVE_SHARE,
        settle_seconds=min(LONGEST_SETTLE_SECONDS, max_poll_interval_ms / 1000 * _SETTLE_SHARE),
    )


def _whole(given: Mapping[str, Any], name: str, low: int, high: int) -> int:
    return check_range(name, given[name], low, high)


def kafka_settings(conf: Mapping[str, Any] | None, bootstrap_servers: str) -> tuple[dict[str, Any], bool | None]:
    """Return the user's librdkafka settings, and whether they start at the beginning; None if they do not say.

    Raises:
        IllegalSetting: a setting would break a guarantee.
    """
    checked = client_conf(conf, bootstrap_servers)
    reset = checked.pop("auto.offset.reset", None)
    if reset is not None and reset not in _BEGINNING + _END:
        raise IllegalSetting(f"auto.offset.reset {reset!r}: use earliest or latest")
    if checked.get("isolation.level", "read_committed") != "read_committed":
        raise IllegalSetting("isolation.level must be read_committed: retries are delivered in transactions")
    strategy = checked.get("partition.assignment.strategy", "cooperative-sticky")
    if strategy != "cooperative-sticky":
        raise IllegalSetting(f"partition.assignment.strategy {strategy!r}: only cooperative-sticky, or group.protocol")
    for forbidden in ("group.id", "enable.auto.commit", "on_commit"):
        if forbidden in checked:
            raise IllegalSetting(f"{forbidden} is set by the consumer itself; leave it out of conf")
    return checked, None if reset is None else reset in _BEGINNING
