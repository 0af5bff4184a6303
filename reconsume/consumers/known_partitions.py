"""The partitions that a group knows when its subscription begins."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reconsume.bridge.admin import KafkaAdmin, Partition
from reconsume.consumers.consume_from import ConsumeFromWhere
from reconsume.consumers.consume_settings import ConsumeSettings
from reconsume.consumers.retry_topic import wait_for_kafka
from reconsume.consumers.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaRefused

__all__ = ["counts_of", "with_known_partitions"]

logger = logging.getLogger(__name__)


def with_known_partitions(
    settings: ConsumeSettings, base: Mapping[str, Any], subscriptions: Subscriptions, stop: threading.Event
) -> ConsumeSettings:
    """Return the settings with how many partitions of each subscribed topic the group knows.

    Waits for a broker. A topic that this client may not look at counts as one that is not there.

    Args:
        settings: of the consumer.
        base: librdkafka's settings for any client.
        subscriptions: of the consumer.
        stop: ends the wait.
    """
    consume_from, group = settings.consume_from, settings.group
    if consume_from.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return settings
    admin = KafkaAdmin(base, settings.client_id)

    def ask() -> dict[str, int]:
        existing = admin.topics() if subscriptions.has_patterns else admin.partitions(subscriptions, {})
        there = {topic: existing[topic] for topic in subscriptions.among(existing)}
        try:
            committed = admin.committed(group, [(topic, number) for topic in there for number in range(there[topic])])
        except KafkaRefused as error:
            logger.warning("%s; partitions that were added while the group was away may start at their end", error)
            committed = {}
        return counts_of(there, committed)

    return replace(settings, consume_from=replace(consume_from, known=wait_for_kafka(ask, stop)))


def counts_of(there: Mapping[str, int], committed: Iterable[Partition]) -> dict[str, int]:
    """Return the number of partitions that the group knows of each topic.

    Every partition that a consumer has started has an offset. So those after the last one with an offset were added
    later, unless the topic has no offset at all: then it is new to the group as a whole.

    Args:
        there: how many partitions each topic has.
        committed: the partitions with an offset of the group.
    """
    counts: defaultdict[str, int] = defaultdict(int)
    for topic, number in committed:
        counts[topic] = max(counts[topic], number + 1)
    return {topic: counts[topic] or number for topic, number in there.items()}
