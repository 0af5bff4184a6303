"""Prometheus metrics of PushConsumers: RocketMQ's consumer statistics, with both topics of a retry."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

from reconsume.bridge.metrics.catalogue import metric
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    SendBackTarget,
    SendMessageBackContext,
)

OTHERS: Final = "(other)"
_MOST_LABELS: Final = 200


class Labels:
    """Label values that come from outside; after 200, new ones share `(other)`, so they never fill the memory."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """Return the label value for a name."""
        if name not in self._known:
            if len(self._known) >= _MOST_LABELS:
                return OTHERS
            self._known.add(name)
        return name


class ConsumerMetrics(ConsumeMessageHook):
    """Register one instance with all consumers of a process: their groups are a label.

    `topic` is the origin topic, `physical_topic` the Kafka topic that was read. RocketMQ counts retries under their
    retry topic alone, so its statistics do not show the failures of a topic (better than RocketMQ: ST-02).

    Args:
        registry: the Prometheus registry; it can hold one ConsumerMetrics.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._topics, self._physical = Labels(), Labels()
        self._limited: set[str] = set()
        self._ok = metric("reconsume_consumer_ok").counter(registry)
        self._failed = metric("reconsume_consumer_failed").counter(registry)
        self._rt = metric("reconsume_consumer_rt_seconds").histogram(registry)
        self._in_flight = metric("reconsume_consumer_in_flight").gauge(registry)
        self._sent_back = metric("reconsume_consumer_sent_back").counter(registry)
        self._dead_letters = metric("reconsume_consumer_dead_letters").counter(registry)
        self._refused = metric("reconsume_consumer_send_backs_failed").counter(registry)
        self._waiting = metric("reconsume_consumer_waiting_ratio").gauge(registry)

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Count messages in flight."""
        for labels, number in self._tally(context.group, context.messages).items():
            self._in_flight.labels(*labels).inc(number)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """Count successes and failures; calls that a shutdown has cut off count as neither."""
        everything = self._tally(context.group, context.messages)
        for labels, number in everything.items():
            self._in_flight.labels(*labels).dec(number)
        if context.return_type is None:
            return
        for labels in everything:
            self._rt.labels(*labels).observe(context.elapsed_ms / 1000)
        for labels, number in self._tally(context.group, context.messages[: context.acknowledged]).items():
            self._ok.labels(*labels).inc(number)
        for labels, number in self._tally(context.group, context.messages[context.acknowledged :]).items():
            self._failed.labels(*labels).inc(number)

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        """Count a send-back."""
        labels = self._labels(context.group, context.message)
        if (share := context.waiting_share()) > 0 or context.group in self._limited:
            self._limited.add(context.group)
            waiting = self._waiting.labels(context.group)
            waiting.set_function(context.waiting_share)
            waiting.set(share)  # the files of Prometheus' multiprocess mode hold values, not functions
        if context.error is not None:
            self._refused.labels(*labels).inc()
            return
        # A requested level may be any number.
        level = 0 if context.target is SendBackTarget.UNDECIDED else context.delay_level
        self._sent_back.labels(*labels, context.target.value, str(level)).inc()
        if context.target is SendBackTarget.DEAD_LETTER:
            self._dead_letters.labels(*labels).inc()

    def _tally(self, group: str, messages: tuple[Message, ...]) -> Tally[tuple[str, str, str]]:
        return Tally(self._labels(group, message) for message in messages)

    def _labels(self, group: str, message: Message) -> tuple[str, str, str]:
        physical = message.kafka.topic
        # A group has one retry topic, which the recording rules look for by its name.
        return group, self._topics.of(message.topic), physical if message.is_retry else self._physical.of(physical)
