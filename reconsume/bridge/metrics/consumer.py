"""The metrics of consumers."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.metrics.spec import MetricKind, MetricSpec

__all__ = ["CONSUMER", "RT_BUCKETS_SECONDS"]

RT_BUCKETS_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0)
_CONSUMER: Final = ("group", "topic", "physical_topic")

CONSUMER: Final = (
    MetricSpec(
        "reconsume_consumer_ok",
        MetricKind.COUNTER,
        "consumer",
        "messages",
        _CONSUMER,
        "Messages that listeners acknowledged; its rate is RocketMQ's CONSUME_OK_TPS",
    ),
    MetricSpec(
        "reconsume_consumer_failed",
        MetricKind.COUNTER,
        "consumer",
        "messages",
        _CONSUMER,
        "Messages that listeners failed on; its rate is RocketMQ's CONSUME_FAILED_TPS. Look at the log",
    ),
    MetricSpec(
        "reconsume_consumer_rt_seconds",
        MetricKind.HISTOGRAM,
        "consumer",
        "seconds",
        _CONSUMER,
        "How long a call of the listener took, a batch counted once for each of its topics: RocketMQ's CONSUME_RT. "
        "At consume_timeout its messages are sent back",
        RT_BUCKETS_SECONDS,
    ),
    MetricSpec(
        "reconsume_consumer_in_flight",
        MetricKind.GAUGE,
        "consumer",
        "messages",
        _CONSUMER,
        "Messages that listeners have now; all threads are taken where it stays at consume_thread_nums",
    ),
    MetricSpec(
        "reconsume_consumer_sent_back",
        MetricKind.COUNTER,
        "consumer",
        "messages",
        (*_CONSUMER, "target", "level"),
        "Send-backs that did not fail, by where they went and the level they wait on, 0 for none: "
        "RocketMQ's SNDBCK_PUT_NUMS",
    ),
    MetricSpec(
        "reconsume_consumer_dead_letters",
        MetricKind.COUNTER,
        "consumer",
        "messages",
        _CONSUMER,
        "Messages that were given up for dead: RocketMQ's SNDBCK2DLQ_TIMES. Look at the dead-letter topic",
    ),
    MetricSpec(
        "reconsume_consumer_send_backs_failed",
        MetricKind.COUNTER,
        "consumer",
        "messages",
        _CONSUMER,
        "Send-backs that failed; the listener is called again and the offset waits. Look at the brokers",
    ),
    MetricSpec(
        "reconsume_circuit_breaker_state",
        MetricKind.GAUGE,
        "consumer",
        "0, 1, 2",
        ("group",),
        "0 closed, 1 half-open, 2 open; above 0 for minutes means that what the listener needs does not answer",
    ),
    MetricSpec(
        "reconsume_circuit_breaker_openings",
        MetricKind.COUNTER,
        "consumer",
        "times",
        ("group",),
        "How often it opened, again after failed probes too",
    ),
)
