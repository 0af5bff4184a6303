"""`reconsume status`: waiting records, and the retries and dead letters of each group."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.cli.output import clear_screen, print_error, print_json, print_line, print_table
from reconsume.delay_levels.errors import KafkaNotReachable, TopicNotReady
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.operations.quarantine.records import QuarantineCounter
from reconsume.operations.status import Status, collect_status

_EVERY_SECONDS: Final = 2.0


def watch_status(cluster: Cluster, *, as_json: bool, rest: Callable[[float], object] = time.sleep) -> None:
    """Print the status again and again until Ctrl-C; Kafka may be unreachable in between.

    Args:
        cluster: the installation.
        as_json: print JSON.
        rest: waits some seconds.

    Raises:
        KafkaNotReachable: no broker has answered yet.
    """
    shown, quarantine = False, QuarantineCounter()
    with suppress(KeyboardInterrupt):
        while True:
            try:
                status = collect_status(cluster, quarantine)
            except (KafkaNotReachable, TopicNotReady) as error:  # a broker that starts knows no topics for a moment
                if not shown:  # the address may be wrong, or the topics are missing
                    raise
                print_error(error)
            else:
                if not as_json:
                    clear_screen()
                _print(status, as_json=as_json)
                shown = True
            rest(_EVERY_SECONDS)


def show_status(cluster: Cluster, *, as_json: bool) -> None:
    """Print the status once."""
    _print(collect_status(cluster), as_json=as_json)


def _print(status: Status, *, as_json: bool) -> None:
    if as_json:
        print_json(status.as_json())
        return
    lanes = [(one.topic, one.waiting, one.overdue, _when(one.next_due_ms, status.at_ms)) for one in status.waiting]
    print_table("waiting", ("topic", "waiting", "overdue", "next due"), lanes)
    rows = [(one.group, one.parked, one.retry_lag, one.dead_letters) for one in status.groups]
    print_table("groups", ("group", "paused and due", "retries not consumed", "dead letters kept"), rows)
    print_line(f"quarantined: {status.quarantined}")
    if status.leaderless:
        print_line(f"not counted, because no broker leads them: {', '.join(status.leaderless)}")
    if not status.is_exact:
        print_line("~: estimated by offsets, which also count transaction markers")


def _when(due_ms: int | None, now: int) -> str:
    if due_ms is None:
        return ""
    left = (due_ms - now) // 1000 * 1000
    return f"in {format_duration(left)}" if left >= 0 else f"{format_duration(-left)} ago"
