"""The group's registration and its retry topic, before a consumer begins."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import TopicSettings
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.consumers.group_settings import GroupSettings
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, TopicNotReady

logger = SafeLogger(__name__)

T = TypeVar("T")

_AGAIN_SECONDS: Final = 2.0


def wait_for_kafka(ask: Callable[[], T], stop: threading.Event) -> T | None:
    """Ask until a broker answers, and log the wait; None after a stop."""
    while not stop.is_set():
        try:
            return ask()
        except KafkaNotReachable as error:
            if not stop.is_set():
                logger.warning("waiting for Kafka: %s", error)
            stop.wait(_AGAIN_SECONDS)
    return None


def check_group_consumes(group: str, groups: Groups, *, broadcasting: bool = False) -> None:
    """Check that the group may consume, and warn if it has no retries.

    Raises:
        KafkaRefused: the group's `consumeEnable` is false, or it broadcasts and `consumeBroadcastEnable` is.
        SubscriptionGroupNotExist: the group must be registered first.
    """
    config = groups.find(group)
    if not config.consume_enable:
        raise KafkaRefused(
            f"group {group!r} may not consume: its consumeEnable is false in the GROUPS topic; allow it: "
            f"reconsume groups set {shlex.quote(group)} --consume-enable"
        )
    if broadcasting and not config.consume_broadcast_enable:
        raise KafkaRefused(
            f"group {group!r} may not broadcast: its consumeBroadcastEnable is false in the GROUPS topic; "
            f"use MessageModel.CLUSTERING, or allow it: reconsume groups set {shlex.quote(group)} "
            "--consume-broadcast-enable"
        )
    if config.retry_queue_nums <= 0:
        logger.warning(
            "group %s has retryQueueNums %d: failed messages are dropped, neither retried nor dead-lettered",
            group,
            config.retry_queue_nums,
        )


def make_delay_topics(settings: GroupSettings, groups: Groups, stop: threading.Event) -> None:
    """Create the delay topics of the process's own level table, if it has one; wait for a broker.

    Without them, send-backs would go through the inbox and wait by the cluster's table.

    Raises:
        TopicNotReady: this client may not create them.
    """
    if (table := settings.own_table) is None:
        return
    names, admin = settings.names, KafkaAdmin(settings.base, settings.client_id, stop=stop)
    maker = TopicMaker(admin, names, TopicSettings(), lambda: groups)
    lanes = {names.delay(delay_ms): delay_ms for delay_ms in table.distinct_delays_ms()}

    def make() -> None:
        for topic in lanes.keys() - admin.partitions(lanes).keys():
            if maker.make(maker.delay_topic(lanes[topic])):
                logger.info("delay topic created topic=%s", topic)

    try:
        wait_for_kafka(make, stop)
    except KafkaRefused as error:
        raise TopicNotReady(
            f"delay_levels '{table}': its delay topics must exist, and this client cannot create them ({error}); "
            f"run: RECONSUME_MESSAGE_DELAY_LEVEL='{table}' reconsume topics apply"
        ) from error


def make_retry_topic(settings: GroupSettings, groups: Groups, stop: threading.Event) -> None:
    """Create the retry topic before the first retry; if that fails, the scheduler creates it later.

    This waits for a broker. If the cluster answers and does not create the topic, for example because a broker for its
    replicas is missing, the consumer starts anyway.
    """
    topic, admin = settings.retry_topic, KafkaAdmin(settings.base, settings.client_id, stop=stop)
    maker = TopicMaker(admin, settings.names, TopicSettings(), lambda: groups)
    try:
        existing = wait_for_kafka(lambda: admin.partitions([topic]), stop)
        if existing is not None and topic not in existing:
            maker.make(maker.retry_topic(settings.group, groups))
    except ReconsumeError as error:
        logger.info("the scheduler will create %s: %s", topic, error)


def with_known_partitions(
    consume_from: ConsumeFrom, settings: GroupSettings, subscriptions: Subscriptions, stop: threading.Event
) -> ConsumeFrom:
    """Return the start with the current ids and numbers of partitions of the subscribed topics.

    This waits for a broker. A topic that this client may not describe counts as missing.
    """
    if consume_from.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return consume_from
    admin = KafkaAdmin(settings.base, settings.client_id, stop=stop)
    known = wait_for_kafka(lambda: subscriptions.existing(admin, {}), stop)
    ids = wait_for_kafka(lambda: admin.topic_ids(known or (), {}), stop)
    return replace(consume_from, known=known, ids=ids or {})
