"""The metrics of a scheduler worker."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.metrics.spec import MetricKind, MetricSpec
from reconsume.delay_levels.wire.withdrawals import MOST_WITHDRAWALS

__all__ = ["LATENESS_BUCKETS_MS", "SCHEDULER"]

LATENESS_BUCKETS_MS: Final = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 15_000, 60_000, 300_000)
_OUTCOMES: Final = (
    "delivered, dead_lettered, sent_back (taken from the inbox), rolled (to another delay topic), quarantined "
    "(look at the topic), dropped (its group has no retry queues), cancelled"
)

SCHEDULER: Final = (
    MetricSpec(
        "reconsume_delivery_lateness_seconds",
        MetricKind.HISTOGRAM,
        "scheduler",
        "seconds",
        ("level",),
        "How long after its due time a record was delivered; above 1 s add workers or look at the brokers",
        tuple(bound / 1000 for bound in LATENESS_BUCKETS_MS),
    ),
    MetricSpec(
        "reconsume_scheduler_records",
        MetricKind.COUNTER,
        "scheduler",
        "records",
        ("outcome", "group"),
        f"Records moved, by outcome: {_OUTCOMES}",
    ),
    MetricSpec(
        "reconsume_scheduler_backlog_records",
        MetricKind.GAUGE,
        "scheduler",
        "records",
        ("level",),
        "Records that wait in this worker's partitions, due or not; those beyond its read-ahead are counted by "
        "offsets every 15 s, so rather too high where transactions write them. Waiting is what they are for: no alert",
    ),
    MetricSpec(
        "reconsume_scheduler_overdue_records",
        MetricKind.GAUGE,
        "scheduler",
        "records",
        ("level",),
        "Of these the ones whose time has come; what to scale workers by. Some are always there under load",
    ),
    MetricSpec(
        "reconsume_scheduler_overdue_seconds",
        MetricKind.GAUGE,
        "scheduler",
        "seconds",
        ("level",),
        "How long the record that is most overdue waits for its delivery already; up to 1 s is nothing, above 30 s for "
        "minutes add workers, or look at the log of the worker and at the brokers. Grows also if the worker hangs",
    ),
    MetricSpec(
        "reconsume_scheduler_aborted_batches",
        MetricKind.COUNTER,
        "scheduler",
        "batches",
        (),
        "Batches that were not committed and are delivered again; steady growth means brokers refuse something",
    ),
    MetricSpec(
        "reconsume_scheduler_partitions",
        MetricKind.GAUGE,
        "scheduler",
        "partitions",
        (),
        "Partitions that this worker schedules from; 0 on all workers means that nothing moves",
    ),
    MetricSpec(
        "reconsume_scheduler_refused_partitions",
        MetricKind.GAUGE,
        "scheduler",
        "partitions",
        (),
        "Partitions that this worker has and does not schedule from, because their topic is set up wrongly: "
        "`reconsume doctor` says how to mend it",
    ),
    MetricSpec(
        "reconsume_scheduler_withdrawals",
        MetricKind.GAUGE,
        "scheduler",
        "withdrawals",
        (),
        f"Withdrawals of delayed messages in memory, some 25 bytes each; at {MOST_WITHDRAWALS:,} further ones are not "
        "obeyed. Those whose messages were dropped leave after an hour, so growth means ids of messages that are not "
        "waiting",
    ),
    MetricSpec(
        "reconsume_level_table_info",
        MetricKind.INFO,
        "scheduler",
        "",
        ("table",),
        "The level table that this process uses; two tables at once for more than a minute mean that one process has "
        "a setting of its own",
    ),
    MetricSpec(
        "reconsume_build_info",
        MetricKind.INFO,
        "scheduler",
        "",
        ("version",),
        "The version that runs; during a rolling upgrade there are two",
    ),
)
