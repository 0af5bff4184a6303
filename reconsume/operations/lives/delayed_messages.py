"""Withdrawal and early delivery of delayed messages, by hand."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.bridge.writing.exclusive_writer import Acknowledged, ExclusiveWriter
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.wire.properties import (
    ORIGIN_UNIQ_KEY,
    REAL_TOPIC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    Header,
    Headers,
    text_property,
)
from reconsume.delay_levels.wire.withdrawals import RANDOM_BYTES, make_uniq_key, requested_withdrawal, withdrawal_id
from reconsume.operations.waiting import WaitingRecord, check_withdrawable, read_waiting, withdrawal_headers

SOONEST_MS: Final = 10_000
"""A message that is due sooner is not touched: it may be on its way."""
_IN_TIME_MS: Final = 5_000
"""The time before the due moment by which a withdrawal must be stored: schedulers need a second, clocks differ."""
_MOST: Final = 500
_MOST_BYTES: Final = 64 * 1024 * 1024


def cancel_delayed(cluster: Cluster, places: Sequence[str]) -> list[WaitingRecord]:
    """Withdraw waiting delayed messages; the schedulers drop them at their next hop.

    All of them are withdrawn, or none. Nobody withdraws or delivers one of them by hand at the same time.

    Args:
        cluster: the installation.
        places: `TOPIC/PARTITION/OFFSET`, as a list shows them.

    Raises:
        IllegalSetting: a place is invalid, or its record no longer waits, is not a delayed message, has no `UNIQ_KEY`,
            is due in over 40 days, or was withdrawn or delivered early before.
        RecordNotFound: no record is at a place.
        KafkaNotReachable: an answer is missing; repeat the call, which withdraws them or reports that it has.
    """
    with _one_at_a_time(cluster, "withdrawing delayed messages") as writer:
        chosen = [one for _, one in read_waiting(cluster, dict.fromkeys(places))]
        for one in chosen:
            check_withdrawable(one, cluster.clock())
        _check_withdrawn(cluster, chosen)
        writer.write_records(_withdrawals(cluster, chosen))
    return chosen


def deliver_now(cluster: Cluster, places: Sequence[str]) -> list[WaitingRecord]:
    """Deliver waiting delayed messages at once; all of them or none.

    One transaction writes a copy to `DELAY.0s` and withdraws the waiting message. The copy has a new `UNIQ_KEY`,
    because the old one is withdrawn, and the old one as `ORIGIN_UNIQ_KEY`.

    Guarantees: each message is delivered once, also with a crash at any moment, and with other operators at the same
    time or later. One transaction at a time reads earlier withdrawals, and is aborted unless the brokers have stored
    its own some seconds before the message is due. Schedulers compare with the end of CANCEL, and wait for open
    transactions there. Test: tests/integration/operations/test_deliver_now.py.

    Args:
        cluster: the installation.
        places: `TOPIC/PARTITION/OFFSET`, as a list shows them.

    Returns:
        The messages that waited there.

    Raises:
        IllegalSetting: a place is invalid, or its record no longer waits, is not a delayed message, has no `UNIQ_KEY`,
            is due within seconds or in over 40 days, or was withdrawn or delivered early before; or they are more than
            500 or 64 MiB.
        RecordNotFound: no record is at a place.
        KafkaNotReachable: an answer is missing; repeat the call, which delivers them or reports that it has.
    """
    if not 0 < len(set(places)) <= _MOST:
        raise IllegalSetting(f"{len(places)} delayed messages are named; name between 1 and {_MOST}")
    names = cluster.names
    lane, groups = cluster.require(names.delay(0)), read_groups(cluster)
    choose = partial(LanePartitions(lambda: groups).choose, lane, cluster.admin.partitions([lane])[lane])
    with _one_at_a_time(cluster, "delivering delayed messages now") as writer:
        chosen: list[tuple[ReadRecord, WaitingRecord]] = []
        for read, one in read_waiting(cluster, dict.fromkeys(places)):
            _check(one, names.send_back, cluster.clock())
            chosen.append((read, one))
            if sum(held.size for held, _ in chosen) > _MOST_BYTES:
                raise IllegalSetting(f"the named delayed messages have more than {_MOST_BYTES >> 20} MiB; name fewer")
        _check_withdrawn(cluster, [one for _, one in chosen])

        def copies(stored: Acknowledged) -> Iterator[NewRecord]:
            for read, one in chosen:
                if stored.until_ms > (one.due_ms or 0) - _IN_TIME_MS:
                    raise IllegalSetting(
                        f"{one.place} is due too soon, because Kafka was slow; leave it: it is delivered on time"
                    )
                target = text_property(read.headers, REAL_TOPIC) or ""
                yield NewRecord(lane, read.value, read.key, choose(target, read.key), _headers(read, cluster.clock()))

        writer.write_after(_withdrawals(cluster, [one for _, one in chosen]), copies)
    return [one for _, one in chosen]


@contextmanager
def _one_at_a_time(cluster: Cluster, doing: str) -> Iterator[ExclusiveWriter]:
    """Yield a writer; from here on no other transaction of a person with delayed messages can be committed."""
    cluster.require(cluster.names.cancel)
    with ExclusiveWriter(cluster, f"{cluster.names.prefix}deliver-now", doing) as writer:
        writer.take_over()
        yield writer


def _withdrawals(cluster: Cluster, chosen: Iterable[WaitingRecord]) -> list[NewRecord]:
    names = cluster.names
    return [NewRecord(names.cancel, None, None, ANY_PARTITION, withdrawal_headers(one, names)) for one in chosen]


def _check(one: WaitingRecord, inbox: str, now_ms: float) -> None:
    if one.kind in ("retry", "dead letter"):
        raise IllegalSetting(
            f"{one.place} is a {one.kind} of group {one.target!r} and cannot be withdrawn, so it would be delivered "
            "twice; leave it: it is delivered when it is due"
        )
    check_withdrawable(one, now_ms)
    if one.place.topic == inbox:
        raise IllegalSetting(
            f"{one.place} is still in the inbox; run the command again in a moment, with its place in a delay topic"
        )
    if one.due_ms is None or one.due_ms < now_ms + SOONEST_MS:
        raise IllegalSetting(f"{one.place} is due within {SOONEST_MS // 1000} seconds; leave it: it is delivered then")


def _check_withdrawn(cluster: Cluster, chosen: Collection[WaitingRecord]) -> None:
    """Refuse messages that were withdrawn, which includes those delivered early."""
    wanted = {withdrawal_id(one.uniq_key or ""): one for one in chosen}
    if len(wanted) < len(chosen):
        raise IllegalSetting("two of these records have the same UNIQ_KEY; they are one message, so name one of them")
    admin, topic = cluster.admin, cluster.names.cancel
    partitions = all_partitions(admin.partitions([topic]))
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions, uncommitted=True)
    with RangeReader(cluster.base, topic) as reader:
        for read in reader.records({where: (starts[where], ends[where]) for where in partitions}):
            try:
                withdrawal, _ = requested_withdrawal(read.headers, read.stored_ms)
            except MalformedProperty:
                continue
            if withdrawal in wanted:
                one = wanted[withdrawal]
                raise IllegalSetting(f"{one.place} was withdrawn or delivered early already")


def _headers(read: ReadRecord, now_ms: float) -> Headers:
    ours = {TIMER_DELIVER_MS, UNIQ_KEY, ORIGIN_UNIQ_KEY}
    old = next(value for name, value in reversed(read.headers) if name == UNIQ_KEY)
    new = make_uniq_key(int(now_ms), secrets.token_bytes(RANDOM_BYTES)).encode()
    kept: list[Header] = [header for header in read.headers if header[0] not in ours]
    return [*kept, (UNIQ_KEY, new), (ORIGIN_UNIQ_KEY, old)]
