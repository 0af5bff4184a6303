"""Every metric of the project: name, kind, unit, labels and what to do about it. All metrics are made from here.

`docs/metrics.md`, dashboards and alerts are made from the same entries, so none names a metric that does not exist.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from reconsume.bridge.metrics.spec import MetricKind, MetricSpec
from reconsume.delay_levels.wire.withdrawals import MOST_WITHDRAWALS

MOST_GROUPS: Final = 1_000
"""The maximum of groups with a label of their own: headers of clients must not fill the memory."""
OTHER_GROUPS: Final = "(other)"
LATENESS_BUCKETS_MS: Final = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 15_000, 60_000, 300_000)
_OUTCOMES: Final = (
    "delivered, dead_lettered, sent_back (taken from the inbox), rolled (to another delay topic), quarantined "
    "(look at the topic), parked (its group is paused), dropped (its group has no retry queues), cancelled"
)
_OF_MESSAGES: Final = ("group", "topic", "physical_topic")

_counter: Final = partial(MetricSpec, MetricKind.COUNTER)
_gauge: Final = partial(MetricSpec, MetricKind.GAUGE)
_histogram: Final = partial(MetricSpec, MetricKind.HISTOGRAM)
_info: Final = partial(MetricSpec, MetricKind.INFO)


_SCHEDULER: Final = (
    _histogram(
        "reconsume_delivery_lateness_seconds",
        "seconds",
        ("level",),
        "Delay of a delivery after its due time; above 1 s add workers or check the brokers",
        tuple(bound / 1000 for bound in LATENESS_BUCKETS_MS),
    ),
    _counter("reconsume_scheduler_records", "records", ("outcome", "group"), f"Records moved, by outcome: {_OUTCOMES}"),
    _gauge(
        "reconsume_scheduler_backlog_records",
        "records",
        ("level",),
        "Waiting records in this worker's partitions, due or not; those beyond its read-ahead are counted by "
        "offsets every 15 s, which also count transaction markers. Waiting is normal: do not alert on it",
    ),
    _gauge(
        "reconsume_scheduler_parked_records",
        "records",
        ("group",),
        "Due records of a paused group that wait in its parked topic, in this worker's partitions; those beyond its "
        "read-ahead are counted by offsets every 15 s. Falls to 0 when the pause is lifted",
    ),
    _gauge(
        "reconsume_scheduler_overdue_records",
        "records",
        ("level",),
        "Waiting records that are due. Under load it is never 0 for long",
    ),
    _gauge(
        "reconsume_scheduler_overdue_seconds",
        "seconds",
        ("level",),
        "Age of the most overdue record; up to 1 s is normal. Above 30 s for minutes, add workers, or check "
        "the worker's log and the brokers. It also grows if the worker hangs",
    ),
    _counter(
        "reconsume_scheduler_aborted_batches",
        "batches",
        (),
        "Batches that were aborted and are delivered again; steady growth means that brokers refuse something",
    ),
    _gauge(
        "reconsume_scheduler_partitions",
        "partitions",
        (),
        "Partitions that this worker schedules from; 0 on all workers means that nothing is delivered",
    ),
    _gauge(
        "reconsume_scheduler_refused_partitions",
        "partitions",
        (),
        "Partitions that this worker owns and does not schedule from, because of a wrong topic setting: "
        "`reconsume doctor` says how to fix it",
    ),
    _gauge(
        "reconsume_scheduler_withdrawals",
        "withdrawals",
        (),
        f"Withdrawals of delayed messages in memory, some 25 bytes each; at {MOST_WITHDRAWALS:,} further ones are not "
        "obeyed. Those whose messages were dropped leave after an hour, so growth means ids of messages that are not "
        "waiting",
    ),
    _info(
        "reconsume_level_table_info",
        "",
        ("table",),
        "The level table that this process uses; two tables at once for more than a minute mean that one process has "
        "a setting of its own",
    ),
    _info("reconsume_build_info", "", ("version",), "The running version; there are two during a rolling upgrade"),
)
_CONSUMER: Final = (
    _counter(
        "reconsume_consumer_ok",
        "messages",
        _OF_MESSAGES,
        "Messages that listeners acknowledged; its rate is RocketMQ's CONSUME_OK_TPS",
    ),
    _counter(
        "reconsume_consumer_failed",
        "messages",
        _OF_MESSAGES,
        "Messages that listeners failed on; its rate is RocketMQ's CONSUME_FAILED_TPS. Look at the log",
    ),
    _histogram(
        "reconsume_consumer_rt_seconds",
        "seconds",
        _OF_MESSAGES,
        "Duration of a call of the listener; a batch counts once for each of its topics: RocketMQ's CONSUME_RT. "
        "At consume_timeout its messages are sent back",
        (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0),
    ),
    _gauge(
        "reconsume_consumer_in_flight",
        "messages",
        _OF_MESSAGES,
        "Messages that listeners are processing; if it stays at consume_thread_nums, all threads are busy",
    ),
    _counter(
        "reconsume_consumer_sent_back",
        "messages",
        (*_OF_MESSAGES, "target", "level"),
        "Send-backs that did not fail, by where they went and the level they wait on, 0 for none: "
        "RocketMQ's SNDBCK_PUT_NUMS",
    ),
    _counter(
        "reconsume_consumer_dead_letters",
        "messages",
        _OF_MESSAGES,
        "Messages that became dead letters: RocketMQ's SNDBCK2DLQ_TIMES. Look at the dead-letter topic",
    ),
    _counter(
        "reconsume_consumer_send_backs_failed",
        "messages",
        _OF_MESSAGES,
        "Send-backs that failed; the listener is called again and the offset waits. Look at the brokers",
    ),
    _gauge(
        "reconsume_consumer_waiting_ratio",
        "ratio",
        ("group",),
        "What waits to be retried as a share of the group's maxWaiting, as this consumer knows it; no value without a "
        "limit. From 1 on, new failures are not sent back",
    ),
    _gauge(
        "reconsume_circuit_breaker_state",
        "0, 1, 2",
        ("group",),
        "0 closed, 1 half-open, 2 open; above 0 for minutes means that a dependency of the listener does not answer",
    ),
    _counter(
        "reconsume_circuit_breaker_openings",
        "times",
        ("group",),
        "How often it opened, again after failed probes too",
    ),
)
_SIDECAR: Final = (
    _counter(
        "reconsume_sidecar_requests",
        "requests",
        ("route", "status"),
        "Requests to the API, by route and status; 503 means that Kafka does not answer, 4xx a wrong call",
    ),
    _histogram(
        "reconsume_sidecar_request_duration_seconds",
        "seconds",
        ("route",),
        "Duration of a request, including Kafka's acknowledgement",
        (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    ),
    _counter(
        "reconsume_sidecar_send_backs",
        "records",
        ("group", "outcome"),
        "Records sent back through the API, by group and outcome",
    ),
    _gauge(
        "reconsume_sidecar_waiting_send_backs",
        "records",
        (),
        "Send-backs that Kafka has not acknowledged yet; steady growth means that it does not answer",
    ),
    _counter(
        "reconsume_push_deliveries",
        "requests",
        ("group", "outcome"),
        "Requests to the app, by the meaning of their answers: ack, retry, dead_letter, drop, hold, missing_route",
    ),
    _histogram(
        "reconsume_push_delivery_duration_seconds",
        "seconds",
        ("group",),
        "Time from the request to the app's answer",
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900),
    ),
    _gauge("reconsume_push_in_flight", "requests", ("group",), "Requests that the app has not answered yet"),
    _counter(
        "reconsume_push_unknown_statuses",
        "answers",
        ("group",),
        "2xx answers with an unknown status; the message was sent back. Fix the app",
    ),
    _counter(
        "reconsume_push_discarded_messages",
        "messages",
        ("group",),
        "Messages that the app dropped and `drop: discard` acknowledged",
    ),
    _counter(
        "reconsume_push_redirects",
        "answers",
        ("group",),
        "3xx answers; they are never followed: the URL or the route in the settings is wrong",
    ),
    _gauge(
        "reconsume_push_app_down_since_timestamp_seconds",
        "seconds",
        ("group",),
        "Start of the time in which the app is unreachable; 0 if it is reachable. Messages are held meanwhile",
    ),
)
_CONSOLE: Final = (
    _counter(
        "reconsume_console_requests",
        "requests",
        ("page", "status"),
        "Requests of browsers, by page and status; 503 is Kafka that does not answer, 403 a right that is missing or a "
        "form that was refused",
    ),
    _histogram(
        "reconsume_console_request_duration_seconds",
        "seconds",
        ("page",),
        "Duration of a page, most of it Kafka's answers",
        (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    ),
    _counter(
        "reconsume_console_job_records",
        "records",
        ("outcome",),
        "Dead letters that jobs in this console have handled, by outcome: sent, resolved_now, or a reason "
        "(superseded, replayed, resolved, capped, damaged, expired, too_large, no_origin, no_target, not_allowed)",
    ),
    _gauge(
        "reconsume_oldest_open_dead_letter_timestamp_seconds",
        "seconds",
        ("group",),
        "When the oldest open dead letter was stored; nothing for a group without one, and for all groups while the "
        "index cannot follow. Look at it, then send it again or resolve it",
    ),
)
BY_ROLE: Final = {"scheduler": _SCHEDULER, "consumer": _CONSUMER, "sidecar": _SIDECAR, "console": _CONSOLE}
"""The metrics that the processes of each role export."""
CATALOGUE: Final[tuple[MetricSpec, ...]] = (*_SCHEDULER, *_CONSUMER, *_SIDECAR, *_CONSOLE)
_BY_NAME: Final = {one.name: one for one in CATALOGUE}


def metric(name: str) -> MetricSpec:
    """Return the entry with that name; KeyError if it does not exist."""
    return _BY_NAME[name]
