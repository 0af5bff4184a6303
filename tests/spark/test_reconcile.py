"""Reconcile agrees with a count made in plain Python, and calls each fault by its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile.summary import conservation, summarise
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.spark.copies import Copied, Copy, take, write
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

MESSAGES = 400
GROUPS = ("paris/a.b", "berlin")
Wrong = set[tuple[str, str | None, str | None, int | None]]


@dataclass
class Lived:
    """A finished history: real consumers, a real scheduler, two groups, an inbox."""

    installation: Installation
    groups: tuple[str, ...]

    @property
    def prefix(self) -> str:
        return self.installation.settings.topic_prefix

    @property
    def bootstrap_servers(self) -> str:
        return self.installation.settings.bootstrap_servers


def body_of(message: Any) -> int:
    return int(message.body)


@pytest.fixture(scope="module")
def lived(bootstrap_servers: str) -> Iterator[Lived]:
    """Message n fails n % 4 times in each group; whatever fails three times is a dead letter."""
    with installation(bootstrap_servers) as one:
        topic = one.topic("flights", 2)
        groups = tuple(map(one.name, GROUPS))
        seen = Deliveries(
            lambda messages, _context: SUCCESS if messages[0].reconsume_times >= body_of(messages[0]) % 4 else LATER
        )
        consumers = [one.consumer(group, topic, seen, max_reconsume_times=2) for group in groups]
        for number in range(MESSAGES):
            one.produce(topic, str(number).encode(), key=str(number).encode())
        plain = [("REAL_TOPIC", f"%RETRY%{groups[0]}".encode()), ("RETRY_TOPIC", topic.encode())]
        one.produce(one.settings.names.send_back, b"0", key=b"inbox", headers=plain)
        one.produce(one.settings.names.send_back, b"0", key=b"broken", headers=[*plain, ("RECONSUME_TIME", b"\xff")])
        for consumer in consumers:
            consumer.start()
        wait_until(lambda: all(len(one.dead_letters(group)) == MESSAGES // 4 for group in groups), 120, "dead letters")
        wait_until(lambda: one.read(one.settings.names.quarantine), 60, "the broken record")
        for consumer in consumers:
            consumer.shutdown()
        yield Lived(one, groups)


def told(spark: SparkSession, bootstrap_servers: str, prefix: str, **more: Any) -> Wrong:
    """The findings by kind and attempt."""
    found = reconcile(spark, bootstrap_servers, topic_prefix=prefix, **more)
    rows = found.findings.collect()
    found.close()
    assert all(row.commands for row in rows)
    return {(row.kind, row.group, row.origin_message_id, row.attempt) for row in rows}


def groups_of(spark: SparkSession, lived: Lived, **more: Any) -> list[dict[str, Any]]:
    """The conservation table."""
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, **more)
    groups: list[dict[str, Any]] = summarise(found.ledger, found.now, found.since)["groups"]
    found.close()
    return groups


def test_a_clean_history_agrees_with_a_count_made_without_spark(spark: SparkSession, lived: Lived) -> None:
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=lived.prefix)
    figures = summarise(found.ledger, found.now, found.since)
    everything = take(lived.bootstrap_servers, lived.prefix, lambda _record: True)
    waits = [one for one in everything.records if one.topic.startswith("DELAY.")]
    assert figures["verdict"] == "ok"
    assert figures["notes"] == {"QUARANTINED": 1}
    assert figures["attempts"] == len(waits) + 1  # the record that was quarantined never waited
    expected = Counter((one["REAL_TOPIC"], one.topic, int(one["DELAY"])) for one in waits)
    rows = found.ledger.where("sent_offset is not null").groupBy("group", "dead", "sent_topic", "level").count()
    counted = {
        (("%DLQ%" if row.dead else "%RETRY%") + row.group, row.sent_topic.removeprefix(lived.prefix), row.level): row[
            "count"
        ]
        for row in rows.collect()
    }
    assert counted == dict(expected)
    for row in figures["groups"]:
        moved = sum(one["REAL_TOPIC"] == "%RETRY%" + row["group"] for one in everything.of("RETRY."))
        dead = sum(one["REAL_TOPIC"] == "%DLQ%" + row["group"] for one in everything.of("DLQ."))
        assert (row["moved"], row["dead"], row["waiting"], row["lost"]) == (moved, dead, 0, 0)
        assert row["sent_back"] == moved + dead + row["quarantined"]
    quarter = MESSAGES // 4 * len(lived.groups)
    assert figures["tries"] == [{"retries": 1, "messages": quarter + 1}, {"retries": 2, "messages": quarter}]
    hourly = conservation(found.ledger).collect()
    assert sum(row.sent_back for row in hourly) == figures["attempts"]
    assert all(row.sent_back == row.moved + row.dead + row.quarantined for row in hourly)
    found.close()


def test_offsets_of_the_groups_tell_what_was_consumed(spark: SparkSession, lived: Lived) -> None:
    committed = {group: lived.installation.admin.committed(group) for group in lived.groups}
    scheduler = lived.prefix + "scheduler"
    committed[scheduler] = lived.installation.admin.committed(scheduler)
    del committed[lived.groups[1]]
    first, second = sorted(
        groups_of(spark, lived, committed=committed), key=lambda row: row["group"] == lived.groups[1]
    )
    assert (first["consumed"], first["unread"]) == (first["moved"], 0)
    assert (second["consumed"], second["unread"]) == (0, 0)  # nobody says


@pytest.fixture(scope="module")
def taken(lived: Lived) -> Copy:
    """A part of the history: 40 messages, all their attempts."""

    def keep(record: Copied) -> bool:
        return record.key is not None and record.key.isdigit() and int(record.key) < 40

    return take(lived.bootstrap_servers, lived.prefix, keep)


Fault = Callable[[Copy, str, str], Wrong]


def somewhere(copy: Copy, group: str, attempt: int) -> Copied:
    """The delay record of an attempt in the middle of the history."""
    there = copy.of("DELAY.", where=lambda one: (one.attempt[0], one.attempt[2]) == (group, attempt))
    return there[len(there) // 2]


def back(copy: Copy, sent: Copied) -> Copied:
    return copy.one("DLQ." if sent["REAL_TOPIC"].startswith("%DLQ%") else "RETRY.", *sent.attempt)


def nothing(_copy: Copy, _group: str, _other: str) -> Wrong:
    return set()


def transactions_between(copy: Copy, _group: str, _other: str) -> Wrong:
    copy.aborts = [topic for topic in copy.partitions if copy.of(topic) and topic != "GROUPS"]
    assert len(copy.aborts) >= 6
    return set()


def never_delivered(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 1)
    copy.records.remove(back(copy, sent))
    return {("LOST", *sent.attempt)}


def delivered_twice(copy: Copy, group: str, _other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    copy.swap(retry, retry, retry.changed(later_ms=3))
    return {("DUPLICATE", *retry.attempt)}


def dead_twice(copy: Copy, group: str, _other: str) -> Wrong:
    dead = back(copy, somewhere(copy, group, 3))
    copy.swap(dead, dead, dead.changed(later_ms=3))
    return {("DUPLICATE", *dead.attempt)}


def delivered_early(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 1)
    retry = back(copy, sent)
    copy.swap(retry, retry.changed(later_ms=sent.timestamp + 900 - retry.timestamp))
    return {("EARLY", *sent.attempt)}


def delivered_late(copy: Copy, group: str, _other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    copy.swap(retry, retry.changed(later_ms=120_000))
    return {("LATE", *retry.attempt)}


def waits_on_another_level(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 1)
    retry = back(copy, sent)
    copy.swap(sent, sent.changed(topic="DELAY.2s"))
    copy.swap(retry, retry.changed(later_ms=1_000))
    return {("WRONG_LEVEL", *sent.attempt)}


def comes_with_another_level(copy: Copy, group: str, _other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    copy.swap(retry, retry.changed(DELAY=b"2"))
    return {("WRONG_LEVEL", *retry.attempt)}


def dead_letter_waits(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 3)
    dead = back(copy, sent)
    copy.swap(sent, sent.changed(topic="DELAY.1s"))
    copy.swap(dead, dead.changed(later_ms=1_000))
    return {("WRONG_LEVEL", *sent.attempt)}


def on_the_topic_of_another_group(copy: Copy, group: str, other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    topic = copy.of("RETRY.", where=lambda one: one.attempt[0] == other)[0].topic
    copy.records = [one for one in copy.records if one.attempt[1:] != retry.attempt[1:] or one.attempt[0] != other]
    copy.swap(retry, retry.changed(topic=topic))
    return {("WRONG_GROUP", *retry.attempt)}


def on_the_topic_of_a_group_that_has_it_too(copy: Copy, group: str, other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    topic = copy.of("RETRY.", where=lambda one: one.attempt[0] == other)[0].topic
    copy.swap(retry, retry.changed(topic=topic))
    return {("WRONG_GROUP", *retry.attempt)}


def renamed_to_another_group(copy: Copy, group: str, other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    topic = copy.of("RETRY.", where=lambda one: one.attempt[0] == other)[0].topic
    copy.swap(retry, retry.changed(topic=topic, REAL_TOPIC=f"%RETRY%{other}".encode()))
    return {("WRONG_GROUP", *retry.attempt)}


def counted_too_low(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 3)
    dead = back(copy, sent)
    copy.swap(dead, dead.changed(RECONSUME_TIME=b"1"))
    return {("WRONG_COUNT", *sent.attempt)}


def told_too_low(copy: Copy, group: str, _other: str) -> Wrong:
    dead = back(copy, somewhere(copy, group, 3))
    copy.swap(dead, dead.changed({"__dlq.errors.delivery.count": b"2"}))
    return {("WRONG_COUNT", *dead.attempt)}


def counted_too_low_from_the_start(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 3)
    for one in (sent, back(copy, sent)):
        copy.swap(one, one.changed({"__dlq.errors.delivery.count": b"1"}, RECONSUME_TIME=b"1"))
    return {("WRONG_COUNT", sent.attempt[0], sent.attempt[1], 1)}


def from_nowhere(copy: Copy, group: str, _other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    copy.swap(retry, retry, retry.changed(ORIGIN_MESSAGE_ID=b"never/0/1"))
    return {("ORPHAN", group, "never/0/1", 1)}


def waits_past_its_time(copy: Copy, _group: str, _other: str) -> Wrong:
    sent = max(copy.of("DELAY.2s"), key=lambda one: one.timestamp)
    copy.records.remove(back(copy, sent))
    return {("OVERDUE", *sent.attempt)}


def garbage_in_a_retry(copy: Copy, group: str, _other: str) -> Wrong:
    retry = back(copy, somewhere(copy, group, 1))
    copy.swap(retry, retry.changed(RECONSUME_TIME=b"\xff\x00"))
    return {("DAMAGED", *retry.attempt)}


def garbage_in_an_origin(copy: Copy, group: str, _other: str) -> Wrong:
    sent = somewhere(copy, group, 1)
    copy.swap(sent, sent.changed(ORIGIN_MESSAGE_ID=b"\xc3("))
    return {("DAMAGED", group, None, 1)}


def garbage_beside_the_name(copy: Copy, group: str, _other: str) -> Wrong:
    dead = back(copy, somewhere(copy, group, 3))
    copy.swap(dead, dead.changed(BORN_TIMESTAMP=b"yesterday"))
    return {("DAMAGED", *dead.attempt)}


FAULTS: list[Fault] = [
    *(nothing, transactions_between, never_delivered, delivered_twice, dead_twice, delivered_early, delivered_late),
    *(waits_on_another_level, comes_with_another_level, dead_letter_waits, on_the_topic_of_another_group),
    *(on_the_topic_of_a_group_that_has_it_too, renamed_to_another_group, counted_too_low, told_too_low),
    *(counted_too_low_from_the_start, from_nowhere, waits_past_its_time, garbage_in_a_retry, garbage_in_an_origin),
    garbage_beside_the_name,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_called_by_its_name_and_nothing_else_is(
    spark: SparkSession, lived: Lived, taken: Copy, fault: Fault
) -> None:
    copy = Copy(taken.partitions, list(taken.records))
    expected = fault(copy, *lived.groups)
    prefix = write(lived.bootstrap_servers, copy)
    shown = {
        # A record without a name goes by the place where it stands.
        (kind, group, None if (origin or "").startswith(prefix) else origin, number)
        for kind, group, origin, number in told(spark, lived.bootstrap_servers, prefix)
    }
    assert shown == expected
