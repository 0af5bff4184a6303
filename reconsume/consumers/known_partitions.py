"""The partitions that are there when a subscription begins."""

from __future__ import annotations

import threading
from dataclasses import replace

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.consumers.consume_settings import ConsumeSettings
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere
from reconsume.consumers.sending.retry_topic import wait_for_kafka
from reconsume.consumers.subscriptions.subscription import Subscriptions

__all__ = ["with_known_partitions"]


def with_known_partitions(
    settings: ConsumeSettings, subscriptions: Subscriptions, stop: threading.Event
) -> ConsumeSettings:
    """Return the settings with how many partitions each subscribed topic has now.

    Waits for a broker. A topic that this client may not look at counts as one that is not there.

    Args:
        settings: of the consumer.
        subscriptions: of the consumer.
        stop: ends the wait.
    """
    consume_from = settings.consume_from
    if consume_from.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return settings
    admin = KafkaAdmin(settings.base, settings.client_id)
    known = wait_for_kafka(lambda: subscriptions.existing(admin, {}), stop)
    return replace(settings, consume_from=replace(consume_from, known=known))
