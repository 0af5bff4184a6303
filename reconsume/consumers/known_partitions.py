"""The partitions that are there when a subscription begins."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.consumers.consume_settings import ConsumeSettings
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere
from reconsume.consumers.sending.retry_topic import wait_for_kafka
from reconsume.consumers.subscriptions.subscription import Subscriptions

__all__ = ["with_known_partitions"]


def with_known_partitions(
    settings: ConsumeSettings, base: Mapping[str, Any], subscriptions: Subscriptions, stop: threading.Event
) -> ConsumeSettings:
    """Return the settings with how many partitions each subscribed topic has now.

    Waits for a broker. A topic that this client may not look at counts as one that is not there.

    Args:
        settings: of the consumer.
        base: librdkafka's settings for any client.
        subscriptions: of the consumer.
        stop: ends the wait.
    """
    consume_from = settings.consume_from
    if consume_from.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return settings
    admin = KafkaAdmin(base, settings.client_id)

    def ask() -> dict[str, int]:
        existing = admin.topics() if subscriptions.has_patterns else admin.partitions(subscriptions, {})
        return {topic: existing[topic] for topic in subscriptions.among(existing)}

    return replace(settings, consume_from=replace(consume_from, known=wait_for_kafka(ask, stop)))
