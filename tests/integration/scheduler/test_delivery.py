"""The scheduler on a real Kafka: what goes through, what goes to the quarantine, and nothing early."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, murmur2

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.bridge.scheduler.topic_checks import TopicChecks
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.properties import Header, is_ours
from tests.integration.installation import Installation, Record, installation, scheduler, settings_for
from tests.support.brokers.fatal import fail_fatally
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(1)]

USER_HEADERS: list[Header] = [("b", b"1"), ("a", None), ("b", b"\xff\x00"), ("empty", b""), ("b", b"1")]
WIDE = "wide"


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers, [SubscriptionGroupConfig(group_name=WIDE, retry_queue_nums=4)]) as one:
        yield one


def inbox(group: str, **properties: str) -> list[Header]:
    named = {"REAL_TOPIC": f"%RETRY%{group}", "RETRY_TOPIC": "orders"} | properties
    return [(name, value.encode()) for name, value in named.items()]


def arrived(here: Installation, group: str, count: int) -> list[Record]:
    def look() -> list[Record] | None:
        records = here.retries(group)
        return records if len(records) >= count else None

    return wait_until(look, f"{count} retries of {group}") or []


@pytest.mark.rule("SC-03", "SC-05", "SC-06", "DP-05", "T-21", "T-23", "T-41")
def test_a_record_comes_back_byte_for_byte_and_never_early(here: Installation) -> None:
    group = here.name("bytes")
    sent: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"v\x00"),
        (None, b"no key"),
        (b"", b"empty key"),
        (b"t", None),
    ]
    for key, value in sent:
        here.produce(here.settings.names.send_back, value, key=key, headers=[*USER_HEADERS, *inbox(group)])
    back = arrived(here, group, len(sent))
    assert {(one.key, one.value) for one in back} == set(sent)
    waited = {one["ORIGIN_MESSAGE_ID"]: one.timestamp for one in here.waiting(1_000, group)}
    for one in back:
        assert [header for header in one.headers if not is_ours(header[0])] == USER_HEADERS
        assert (one["RECONSUME_TIME"], one["DELAY"], one["RETRY_TOPIC"]) == ("1", "3", "orders")
        assert one.timestamp - waited[one["ORIGIN_MESSAGE_ID"]] >= 1_000


@pytest.mark.rule("BR-05", "BR-06", "T-17", "T-33")
def test_a_key_lands_on_the_partition_that_a_java_client_would_choose(here: Installation) -> None:
    keys = [b"k%d" % number for number in range(12)]
    for key in keys:
        here.produce(here.settings.names.send_back, b"v", key=key, headers=inbox(WIDE))
    arrived(here, WIDE, len(keys))
    topic = here.settings.names.retry(WIDE)
    assert here.admin.partitions([topic]) == {topic: 4}
    ends = here.admin.end_offsets((topic, number) for number in range(4))
    expected = {murmur2(key, 4) for key in keys}
    assert {number for (_, number), end in ends.items() if end > 0} == expected


@pytest.mark.rule("BR-13", "BR-17", "HR-07", "T-03", "T-04")
def test_a_dead_letter_says_where_it_came_from_and_why(here: Installation) -> None:
    group = here.name("dead")
    headers = inbox(group, RECONSUME_TIME="16", ORIGIN_MESSAGE_ID="orders/3/42")
    here.produce(here.settings.names.send_back, b"v", headers=[*headers, ("__dlq.errors.message", b"no stock")])
    dead = wait_until(lambda: here.dead_letters(group), "the dead letter")[0]
    shown = {name: dead["__dlq.errors." + name] for name in ("topic", "partition", "offset", "group", "message")}
    assert shown == {"topic": "orders", "partition": "3", "offset": "42", "group": group, "message": "no stock"}
    assert (dead["RECONSUME_TIME"], dead["DELAY"], dead["__dlq.errors.delivery.count"]) == ("17", "0", "17")
    assert here.retries(group) == []


@pytest.mark.rule("SC-19", "T-26")
def test_what_cannot_be_delivered_is_quarantined_alone_with_its_reason(here: Installation) -> None:
    group = here.name("good")
    own = here.settings.names.groups
    bad: list[tuple[str, list[Header], str]] = [
        ("SEND_BACK", [], "REAL_TOPIC is missing"),
        ("SEND_BACK", [("REAL_TOPIC", b"%RETRY%g")], "RETRY_TOPIC is missing"),
        ("SEND_BACK", inbox("g", RECONSUME_TIME="many"), "RECONSUME_TIME must be a whole number"),
        ("SEND_BACK", inbox("g", DELAY="3.5"), "DELAY must be a whole number"),
        ("SEND_BACK", inbox("g", MAX_RECONSUME_TIMES="-1"), "MAX_RECONSUME_TIMES must be 0 or more"),
        ("SEND_BACK", inbox("g" * 240), "249"),
        ("DELAY.0s", [("REAL_TOPIC", b"payments")], "nor allowed by allowed_real_topics"),
        ("DELAY.0s", [("REAL_TOPIC", own.encode())], "nor allowed by allowed_real_topics"),
        ("DELAY.0s", [("REAL_TOPIC", b"\xff")], "REAL_TOPIC is not UTF-8"),
        ("DELAY.0s", [("REAL_TOPIC", None)], "REAL_TOPIC is missing"),
    ]
    prefix = here.settings.topic_prefix
    for number, (topic, headers, _) in enumerate(bad):
        here.produce(here.settings.names.send_back, b"good%d" % number, headers=inbox(group))
        here.produce(prefix + topic, b"bad%d" % number, key=b"k", headers=[*USER_HEADERS, *headers])
    good = arrived(here, group, len(bad))
    assert len({one.value for one in good}) == len(bad)
    kept = wait_until(lambda: _all_there(here, len(bad)), "all of them in the quarantine") or []
    by_value = {one.value: one for one in kept}
    for number, (_, headers, reason) in enumerate(bad):
        one = by_value[b"bad%d" % number]
        assert reason in (one["QUARANTINE_REASON"] or "")
        assert one.headers[: len(USER_HEADERS) + len(headers)] == [*USER_HEADERS, *headers]
        assert one.key == b"k"


def _all_there(here: Installation, count: int) -> list[Record] | None:
    kept = [one for one in here.read(here.settings.names.quarantine) if (one.value or b"").startswith(b"bad")]
    return kept if len(kept) == count else None


@pytest.mark.rule("DP-07", "T-26")
def test_a_record_too_large_for_its_target_is_quarantined_and_the_others_arrive(here: Installation) -> None:
    group = here.name("small")
    topic = here.settings.names.retry(group)
    here.admin.create(topic, 1, -1, {"max.message.bytes": "20000", "message.timestamp.type": "LogAppendTime"})
    for number in range(5):
        here.produce(here.settings.names.send_back, b"x" * (30_000 if number == 2 else 100), headers=inbox(group))
    assert len(arrived(here, group, 4)) == 4
    quarantine = here.settings.names.quarantine
    wait_until(lambda: any(len(one.value or b"") == 30_000 for one in here.read(quarantine)), "the large one")


def test_a_header_may_name_a_topic_that_is_allowed(bootstrap_servers: str) -> None:
    settings = settings_for(bootstrap_servers)
    orders = f"orders.{settings.topic_prefix}allowed"
    one = Installation(settings.model_copy(update={"allowed_real_topics": [r"orders\..*allowed"]}))
    one.make_topics()
    one.admin.create(orders, 1, -1, {})
    with scheduler(one.settings):
        one.produce(one.settings.names.delay(0), b"v", headers=[("REAL_TOPIC", orders.encode())])
        assert wait_until(lambda: one.read(orders), "the record on its topic")[0].value == b"v"


def test_a_topic_with_the_clock_of_its_producers_is_refused_and_the_others_go_on(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = Installation(settings_for(bootstrap_servers))
    wrong = one.settings.names.delay(2_000)
    one.admin.create(wrong, 1, -1, {"message.timestamp.type": "CreateTime"})
    one.make_topics()
    one.write_groups()
    group = one.name("g")
    with caplog.at_level(logging.ERROR), scheduler(one.settings):
        one.produce(wrong, b"early?", headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
        one.produce(one.settings.names.delay(0), b"fine", headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
        assert [record.value for record in arrived(one, group, 1)] == [b"fine"]
    refusal = next(text for text in caplog.messages if "not scheduling from" in text)
    assert wrong in refusal
    assert "--add-config message.timestamp.type=LogAppendTime" in refusal


def test_a_scheduler_without_its_topics_says_how_to_make_them(bootstrap_servers: str) -> None:
    with pytest.raises(TopicNotReady, match="reconsume topics apply"):
        SchedulerService(settings_for(bootstrap_servers)).run(threading.Event())


def test_a_worker_that_cannot_know_which_groups_are_paused_does_not_start(bootstrap_servers: str) -> None:
    with installation(bootstrap_servers) as one:
        topic, checks = one.settings.names.groups, TopicChecks(one.settings, one.admin, one.admin)
        checks.check()
        one.delete(topic)
        wait_until(lambda: not one.admin.partitions([topic]), "the topic is gone")
        with pytest.raises(TopicNotReady, match=f"missing topics: {re.escape(topic)}; create them: reconsume topics"):
            checks.check()


def at_least_once(bootstrap_servers: str) -> Installation:
    settings: Settings = settings_for(bootstrap_servers)
    mode = SchedulerSettings(instance_id=settings.topic_prefix, delivery="at_least_once")
    one = Installation(settings.model_copy(update={"scheduler": mode}))
    one.make_topics()
    one.write_groups()
    return one


@pytest.mark.rule("SC-15")
def test_at_least_once_mode_delivers_without_transactions(bootstrap_servers: str) -> None:
    one = at_least_once(bootstrap_servers)
    group = one.name("g")
    with scheduler(one.settings):
        for number in range(20):
            one.produce(one.settings.names.send_back, b"%d" % number, headers=inbox(group))
        assert sorted(int(record.value or b"-1") for record in arrived(one, group, 20)) == list(range(20))


def test_at_least_once_mode_goes_on_after_a_fatal_error_of_its_producer(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Producer):
        """The first one has a fatal error with its third record."""

        made = taken = 0

        def __init__(self, settings: dict[str, Any]) -> None:
            super().__init__(settings)
            type(self).made += 1

        def produce(self, *args: Any, **kwargs: Any) -> None:
            super().produce(*args, **kwargs)
            type(self).taken += 1
            if (type(self).made, type(self).taken) == (1, 3):
                fail_fatally(self)

    monkeypatch.setattr(
        "reconsume.bridge.scheduler.delivery.at_least_once_writer.make_producer",
        lambda settings: Failing(dict(settings)),
    )
    one = at_least_once(bootstrap_servers)
    group = one.name("g")
    with scheduler(one.settings):
        for number in range(20):
            one.produce(one.settings.names.send_back, b"%d" % number, headers=inbox(group))
        wait_until(lambda: {int(record.value or b"-1") for record in one.retries(group)} == set(range(20)), "all came")
    assert Failing.made == 2
    assert "restarting the consumer: delivering a batch" in caplog.text


def test_records_that_were_deleted_while_no_worker_ran_are_told_once(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    group, topic = one.name("deleted"), one.settings.names.send_back
    with scheduler(one.settings):
        one.produce(topic, b"0", headers=inbox(group))
        arrived(one, group, 1)
    one.produce(topic, *(b"%d" % number for number in range(1, 6)), headers=inbox(group))
    ((partition, committed),) = [
        (where[1], offset)
        for where, offset in one.all_committed(one.settings.names.scheduler_group).items()
        if where[0] == topic
    ]
    end = one.admin.end_offsets([(topic, partition)])[topic, partition]
    one.admin.delete_before({(topic, partition): end - 1})
    told = f"{topic}-{partition}: up to {end - 1 - committed} offsets were deleted before they were read"
    with caplog.at_level(logging.WARNING), scheduler(one.settings):
        arrived(one, group, 2)
        wait_until(lambda: told in caplog.text, "the deletion is told")
    assert [record.value for record in one.retries(group)] == [b"0", b"5"]
    assert caplog.text.count(told) == 1
