"""Every metric of the project: name, kind, unit, labels and what to do about it. All are made from here.

`docs/metrics.md`, dashboards and alerts are made from the same entries, so none names a metric that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reconsume.bridge.metrics.spec import Kind, MetricSpec, RocketMqName
from reconsume.delay_levels.wire.withdrawals import MOST_WITHDRAWALS

__all__ = [
    "CATALOGUE",
    "LATENESS_BUCKETS_MS",
    "MOST_GROUPS",
    "OTHER_GROUPS",
    "ROCKETMQ_NAMES",
    "RT_BUCKETS_SECONDS",
    "Kind",
    "MetricSpec",
    "RocketMqName",
    "metric",
]

LATENESS_BUCKETS_MS: Final = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 15_000, 60_000, 300_000)
RT_BUCKETS_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0)

MOST_GROUPS: Final = 1_000
"""Groups that have a label of their own in a scheduler; what clients write in a header must not fill the memory."""
OTHER_GROUPS: Final = "(other)"


def metric(name: str) -> MetricSpec:
    """The entry with that name; KeyError if there is none."""
    return _BY_NAME[name]


_CONSUMER: Final = ("group", "topic", "physical_topic")
_OUTCOMES: Final = (
    "delivered, dead_lettered, sent_back (taken from the inbox), rolled (to another delay topic), quarantined "
    "(look at the topic), dropped (its group has no retry queues), cancelled"
)


def _scheduler() -> Iterator[MetricSpec]:
    role = "scheduler"
    yield MetricSpec(
        "reconsume_delivery_lateness_seconds",
        Kind.HISTOGRAM,
        role,
        "seconds",
        ("level",),
        "How long after its due time a record was delivered; above 1 s add workers or look at the brokers",
        tuple(bound / 1000 for bound in LATENESS_BUCKETS_MS),
    )
    yield MetricSpec(
        "reconsume_scheduler_records",
        Kind.COUNTER,
        role,
        "records",
        ("outcome", "group"),
        f"Records moved, by outcome: {_OUTCOMES}",
    )
    yield MetricSpec(
        "reconsume_scheduler_backlog_records",
        Kind.GAUGE,
        role,
        "records",
        ("level",),
        "Records that wait in this worker's partitions, due or not; those beyond its read-ahead are counted by "
        "offsets every 15 s, so rather too high where transactions write them. Waiting is what they are for: no alert",
    )
    yield MetricSpec(
        "reconsume_scheduler_overdue_records",
        Kind.GAUGE,
        role,
        "records",
        ("level",),
        "Of these the ones whose time has come; what to scale workers by. Some are always there under load",
    )
    yield MetricSpec(
        "reconsume_scheduler_overdue_seconds",
        Kind.GAUGE,
        role,
        "seconds",
        ("level",),
        "How long the record that is most overdue waits for its delivery already; up to 1 s is nothing, above 30 s for "
        "minutes add workers, or look at the log of the worker and at the brokers. Grows also if the worker hangs",
    )
    yield MetricSpec(
        "reconsume_scheduler_aborted_batches",
        Kind.COUNTER,
        role,
        "batches",
        (),
        "Batches that were not committed and are delivered again; steady growth means brokers refuse something",
    )
    yield MetricSpec(
        "reconsume_scheduler_partitions",
        Kind.GAUGE,
        role,
        "partitions",
        (),
        "Partitions that this worker schedules from; 0 on all workers means that nothing moves",
    )
    yield MetricSpec(
        "reconsume_scheduler_refused_partitions",
        Kind.GAUGE,
        role,
        "partitions",
        (),
        "Partitions that this worker has and does not schedule from, because their topic is set up wrongly: "
        "`reconsume doctor` says how to mend it",
    )
    yield MetricSpec(
        "reconsume_scheduler_withdrawals",
        Kind.GAUGE,
        role,
        "withdrawals",
        (),
        f"Withdrawals of delayed messages in memory, some 25 bytes each; at {MOST_WITHDRAWALS:,} further ones are not "
        "obeyed. Those whose messages were dropped leave after an hour, so growth means ids of messages that are not "
        "waiting",
    )
    yield MetricSpec(
        "reconsume_level_table_info",
        Kind.INFO,
        role,
        "",
        ("table",),
        "The level table that this process uses; two tables at once for more than a minute mean that one process has "
        "a setting of its own",
    )
    yield MetricSpec(
        "reconsume_build_info",
        Kind.INFO,
        role,
        "",
        ("version",),
        "The version that runs; during a rolling upgrade there are two",
    )


def _consumer() -> Iterator[MetricSpec]:
    role = "consumer"
    yield MetricSpec(
        "reconsume_consumer_ok",
        Kind.COUNTER,
        role,
        "messages",
        _CONSUMER,
        "Messages that listeners acknowledged; its rate is RocketMQ's CONSUME_OK_TPS",
    )
    yield MetricSpec(
        "reconsume_consumer_failed",
        Kind.COUNTER,
        role,
        "messages",
        _CONSUMER,
        "Messages that listeners failed on; its rate is RocketMQ's CONSUME_FAILED_TPS. Look at the log",
    )
    yield MetricSpec(
        "reconsume_consumer_rt_seconds",
        Kind.HISTOGRAM,
        role,
        "seconds",
        _CONSUMER,
        "How long a call of the listener took, a batch counted once for each of its topics: RocketMQ's CONSUME_RT. "
        "At consume_timeout its messages are sent back",
        RT_BUCKETS_SECONDS,
    )
    yield MetricSpec(
        "reconsume_consumer_in_flight",
        Kind.GAUGE,
        role,
        "messages",
        _CONSUMER,
        "Messages that listeners have now; all threads are taken where it stays at consume_thread_nums",
    )
    yield MetricSpec(
        "reconsume_consumer_sent_back",
        Kind.COUNTER,
        role,
        "messages",
        (*_CONSUMER, "target", "level"),
        "Send-backs that did not fail, by where they went and the level they wait on, 0 for none: "
        "RocketMQ's SNDBCK_PUT_NUMS",
    )
    yield MetricSpec(
        "reconsume_consumer_dead_letters",
        Kind.COUNTER,
        role,
        "messages",
        _CONSUMER,
        "Messages that were given up for dead: RocketMQ's SNDBCK2DLQ_TIMES. Look at the dead-letter topic",
    )
    yield MetricSpec(
        "reconsume_consumer_send_backs_failed",
        Kind.COUNTER,
        role,
        "messages",
        _CONSUMER,
        "Send-backs that failed; the listener is called again and the offset waits. Look at the brokers",
    )
    yield MetricSpec(
        "reconsume_circuit_breaker_state",
        Kind.GAUGE,
        role,
        "0, 1, 2",
        ("group",),
        "0 closed, 1 half-open, 2 open; above 0 for minutes means that what the listener needs does not answer",
    )
    yield MetricSpec(
        "reconsume_circuit_breaker_openings",
        Kind.COUNTER,
        role,
        "times",
        ("group",),
        "How often it opened, again after failed probes too",
    )


def _sidecar() -> Iterator[MetricSpec]:
    role = "sidecar"
    yield MetricSpec(
        "reconsume_sidecar_requests",
        Kind.COUNTER,
        role,
        "requests",
        ("route", "status"),
        "Requests to the API, by route and status; 503 is Kafka that does not answer, 4xx a caller to be mended",
    )
    yield MetricSpec(
        "reconsume_sidecar_request_duration_seconds",
        Kind.HISTOGRAM,
        role,
        "seconds",
        ("route",),
        "How long a request took, the wait for Kafka's acknowledgement with it",
        (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    )
    yield MetricSpec(
        "reconsume_sidecar_send_backs",
        Kind.COUNTER,
        role,
        "records",
        ("group", "outcome"),
        "Records sent back through the API, by group and outcome",
    )
    yield MetricSpec(
        "reconsume_sidecar_waiting_send_backs",
        Kind.GAUGE,
        role,
        "records",
        (),
        "Send-backs that Kafka has not acknowledged yet; steady growth means that it does not answer",
    )
    yield MetricSpec(
        "reconsume_push_deliveries",
        Kind.COUNTER,
        role,
        "requests",
        ("group", "outcome"),
        "Requests to the app by what their answers meant: ack, retry, dead_letter, drop, hold, missing_route",
    )
    yield MetricSpec(
        "reconsume_push_delivery_duration_seconds",
        Kind.HISTOGRAM,
        role,
        "seconds",
        ("group",),
        "From the request to the app's answer",
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900),
    )
    yield MetricSpec(
        "reconsume_push_in_flight",
        Kind.GAUGE,
        role,
        "requests",
        ("group",),
        "Requests that the app has and has not answered",
    )
    yield MetricSpec(
        "reconsume_push_unknown_statuses",
        Kind.COUNTER,
        role,
        "answers",
        ("group",),
        "2xx answers with a status that the contract does not have; the message was sent back. Mend the app",
    )
    yield MetricSpec(
        "reconsume_push_discarded_messages",
        Kind.COUNTER,
        role,
        "messages",
        ("group",),
        "Messages that the app dropped and that `drop: discard` let go",
    )
    yield MetricSpec(
        "reconsume_push_redirects",
        Kind.COUNTER,
        role,
        "answers",
        ("group",),
        "3xx answers; they are never followed: the URL or the route in the settings is wrong",
    )
    yield MetricSpec(
        "reconsume_push_app_down_since_timestamp_seconds",
        Kind.GAUGE,
        role,
        "seconds",
        ("group",),
        "Since when the app could not be asked; 0 if it can. Messages are held meanwhile: look at the app",
    )


def _console() -> Iterator[MetricSpec]:
    role = "console"
    yield MetricSpec(
        "reconsume_console_requests",
        Kind.COUNTER,
        role,
        "requests",
        ("page", "status"),
        "Requests of browsers, by page and status; 503 is Kafka that does not answer, 403 a right that is missing or a "
        "form that was refused",
    )
    yield MetricSpec(
        "reconsume_console_request_duration_seconds",
        Kind.HISTOGRAM,
        role,
        "seconds",
        ("page",),
        "How long a page took, most of it Kafka's answers",
        (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    )
    yield MetricSpec(
        "reconsume_console_resent_records",
        Kind.COUNTER,
        role,
        "records",
        ("outcome",),
        "Dead letters that somebody wanted to send again, by what became of it: send (it was sent), superseded, "
        "replayed, capped, damaged",
    )
    yield MetricSpec(
        "reconsume_oldest_open_dead_letter_timestamp_seconds",
        Kind.GAUGE,
        role,
        "seconds",
        ("group",),
        "When the oldest dead letter of the last 6 days (6/7 of retention_days) was stored that nobody has sent again; "
        "nothing for a group without one. Look at it, then send it again or delete it",
    )


CATALOGUE: Final[tuple[MetricSpec, ...]] = (*_scheduler(), *_consumer(), *_sidecar(), *_console())
_BY_NAME: Final = {one.name: one for one in CATALOGUE}


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
