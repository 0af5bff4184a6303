"""RocketMQ's metrics as PromQL over reconsume's metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ROCKETMQ_NAMES"]


class RocketMqName(NamedTuple):
    """A metric of RocketMQ 5 and its equivalent here.

    Attributes:
        name: RocketMQ's.
        expression: PromQL that gives the same; empty where nothing here does.
        note: how the two differ.
    """

    name: str
    expression: str
    note: str


def _of_rocketmq(expression: str, physical: bool = True) -> str:
    """RocketMQ's labels in place of ours: `consumer_group`, and `is_retry` by the topic that was read."""
    renamed = f'label_replace({expression}, "consumer_group", "$1", "group", "(.*)")'
    if not physical:
        return f"sum without (group) ({renamed})"
    flagged = f'label_replace({renamed}, "is_retry", "false", "", "")'
    flagged = f'label_replace({flagged}, "is_retry", "true", "physical_topic", ".*RETRY[.].*")'
    return f"sum by (consumer_group, topic, is_retry) ({flagged})"


ROCKETMQ_NAMES: Final[tuple[RocketMqName, ...]] = (
    RocketMqName(
        "rocketmq_send_to_dlq_messages_total",
        _of_rocketmq('sum by (group) (reconsume_scheduler_records_total{outcome="dead_lettered"})', physical=False),
        "counted when the dead letter is on its topic; label `consumer_group`",
    ),
    RocketMqName(
        "rocketmq_delay_message_latency_bucket",
        "sum by (level, le) (reconsume_delivery_lateness_seconds_bucket)",
        "lateness beyond the due moment; here in seconds and by level",
    ),
    RocketMqName(
        "rocketmq_timing_messages",
        "sum by (level) (reconsume_scheduler_backlog_records)",
        "by level, where RocketMQ has it by topic",
    ),
    RocketMqName(
        "rocketmq_timer_dequeue_lag",
        "sum(reconsume_scheduler_overdue_records)",
        "records whose time has come",
    ),
    RocketMqName(
        "rocketmq_timer_dequeue_latency",
        "max(reconsume_scheduler_overdue_seconds)",
        "in seconds; RocketMQ has milliseconds",
    ),
    RocketMqName(
        "rocketmq_timer_dequeue_total",
        'sum by (outcome) (reconsume_scheduler_records_total{outcome=~"delivered|dead_lettered|rolled"})',
        "by outcome, where RocketMQ has it by topic",
    ),
    RocketMqName(
        "rocketmq_consumer_inflight_messages",
        _of_rocketmq("reconsume_consumer_in_flight"),
        "messages that listeners have; labels `consumer_group`, `topic`, `is_retry`",
    ),
    RocketMqName(
        "rocketmq_messages_out_total",
        # A label keeps the two apart: `or` would drop one of two series with the same labels.
        _of_rocketmq(
            'label_replace(reconsume_consumer_ok_total, "said", "ok", "", "") or '
            'label_replace(reconsume_consumer_failed_total, "said", "failed", "", "")'
        ),
        "messages that listeners answered for, not those that were fetched",
    ),
    RocketMqName("rocketmq_consumer_lag_messages", "", "the lag of the group on its topics: any exporter of Kafka"),
    RocketMqName("rocketmq_consumer_ready_messages", "", "the same: no message is ready that is not in the topic"),
    RocketMqName("rocketmq_consumer_lag_latency", "", "not measured; Kafka's exporters estimate it"),
    RocketMqName("rocketmq_consumer_queueing_latency", "", "not measured; Kafka's exporters estimate it"),
    RocketMqName("rocketmq_messages_in_total", "", "the brokers' `kafka_server_brokertopicmetrics_messagesin_total`"),
)
