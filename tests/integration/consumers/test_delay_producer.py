"""Delayed messages on a real Kafka: at their moment, never early, once; withdrawn ones not at all."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from reconsume.bridge.process.settings import Settings
from reconsume.consumers import DelayProducer
from reconsume.delay_levels.errors import IllegalSetting, KafkaNotReachable, TopicNotReady
from reconsume.delay_levels.progress.done_ahead import decode_done
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, Record, scheduler, settings_for
from tests.integration.scheduler.test_faults import worker_process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

LATE_MS = 5_000
"""On a machine that does other things too; the benchmark measures how late it is on an idle one."""
USER_HEADERS: list[Header] = [("b", b"1"), ("a", None), ("b", b"\xff\x00"), ("b", b"1")]


def allowing(bootstrap_servers: str) -> Installation:
    """An installation whose schedulers may write to topics called orders."""
    settings = settings_for(bootstrap_servers)
    pattern = f"{settings.topic_prefix[:-1]}-orders.*"
    one = Installation(settings.model_copy(update={"allowed_real_topics": [pattern]}))
    one.make_topics()
    one.write_groups()
    return one


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    one = allowing(bootstrap_servers)
    with scheduler(one.settings), producing(one) as producer:
        topic = orders(one, "begins")
        producer.send(topic, b"the worker is at work", delay=timedelta(milliseconds=1))
        arrived(one, topic, 1)
        yield one


@pytest.fixture
def producer(here: Installation) -> Iterator[DelayProducer]:
    with producing(here) as one:
        yield one


def producing(here: Installation, **more: Any) -> DelayProducer:
    settings = here.settings
    return DelayProducer(bootstrap_servers=settings.bootstrap_servers, topic_prefix=settings.topic_prefix, **more)


def orders(here: Installation, name: str, partitions: int = 1, allowed: str = "orders") -> str:
    topic = f"{here.settings.topic_prefix[:-1]}-{allowed}-{name}"
    here.admin.create(topic, partitions, -1, {"message.timestamp.type": "LogAppendTime"})
    return topic


def arrived(here: Installation, topic: str, count: int) -> list[Record]:
    def look() -> list[Record] | None:
        records = here.read(topic)
        return records if len(records) >= count else None

    return wait_until(look, f"{count} messages on {topic}") or []


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.rule("TM-01", "TM-04")
def test_each_message_comes_at_its_own_moment_and_never_early(here: Installation, producer: DelayProducer) -> None:
    topic = orders(here, "moments")
    due = {}
    for delay_ms in (9_250, 300, 3_456, 1_700, 4_100, -10_000, 1, 2_499):
        body = b"%d" % delay_ms
        due[body] = now_ms() + delay_ms
        producer.send(topic, body, deliver_at=datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=due[body]))
    back = arrived(here, topic, len(due))
    assert Counter(one.value for one in back) == Counter(list(due))
    for one in back:
        assert one["TIMER_DELIVER_MS"] == str(due[one.value or b""])
        late = one.timestamp - due[one.value or b""]
        assert 0 <= late < LATE_MS + (10_000 if one.value == b"-10000" else 0), one
    rolls = {one.value: int(one["TIMER_ROLL_TIMES"] or -1) for one in back}
    assert (rolls[b"300"], rolls[b"-10000"]) == (0, 0)
    assert 2 <= rolls[b"9250"] <= 6, "2 s each, perhaps 1 s, and the last stretch; fewer where a hop comes late"


@pytest.mark.rule("TM-01", "TM-02", "TM-07")
@pytest.mark.parametrize(
    ("asking", "longest_ms"),
    [
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "86400000", "TIMER_DELIVER_MS": "9"}, 1_000),
        ({"TIMER_DELAY_MS": "600", "TIMER_DELIVER_MS": "9"}, 600),
        ({"DELAY": "1", "TIMER_DELAY_SEC": "86400"}, 1_000),
        ({}, 0),
    ],
)
def test_a_plain_client_asks_for_a_delay_in_the_inbox(
    here: Installation, asking: dict[str, str], longest_ms: int
) -> None:
    topic = orders(here, f"plain-{longest_ms}-{len(asking)}")
    headers = [(name, text.encode()) for name, text in ({"REAL_TOPIC": topic} | asking).items()]
    here.produce(here.settings.names.send_back, topic.encode(), key=b"k", headers=[*USER_HEADERS, *headers])
    (one,) = arrived(here, topic, 1)
    stored = next(record for record in here.read(here.settings.names.send_back) if record.value == topic.encode())
    assert longest_ms <= one.timestamp - stored.timestamp < longest_ms + LATE_MS
    assert (one["TIMER_DELAY_SEC"], one["TIMER_DELAY_MS"]) == (None, None)
    assert one["DELAY"] == asking.get("DELAY")


def test_a_target_that_is_not_allowed_shows_in_the_quarantine_at_once(here: Installation) -> None:
    """A client in another language may write what DelayProducer refuses."""
    topic = orders(here, "far", allowed="payments")
    asking = [("REAL_TOPIC", topic.encode()), ("TIMER_DELAY_MS", str(30 * 86_400_000).encode())]
    here.produce(here.settings.names.send_back, topic.encode(), headers=asking)

    def found() -> list[Record]:
        return [one for one in here.read(here.settings.names.quarantine) if one.value == topic.encode()]

    (one,) = wait_until(found, "the message in the quarantine")
    assert "allowed_real_topics" in (one["QUARANTINE_REASON"] or "")


@pytest.mark.rule("TM-03", "TM-05", "TM-10")
@pytest.mark.parametrize(
    ("lane", "asking", "reason"),
    [
        ("SEND_BACK", {"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC must be a whole number"),
        ("SEND_BACK", {"TIMER_DELAY_MS": "-5"}, "TIMER_DELAY_MS must be 0 or more"),
        ("SEND_BACK", {"TIMER_DELIVER_MS": "99999999999999"}, "at most 40 days"),
        ("DELAY.0s", {"TIMER_DELIVER_MS": "99999999999999"}, "at most 40 days"),
        ("DELAY.1s", {"TIMER_DELIVER_MS": "1.5"}, "TIMER_DELIVER_MS must be a whole number"),
    ],
)
def test_a_malformed_delay_is_quarantined_with_its_reason(
    here: Installation, lane: str, asking: dict[str, str], reason: str
) -> None:
    topic = orders(here, "malformed")
    body = f"{lane} {asking}".encode()
    headers = [(name, text.encode()) for name, text in ({"REAL_TOPIC": topic} | asking).items()]
    here.produce(here.settings.topic_prefix + lane, body, headers=headers)

    def found() -> list[Record]:
        return [one for one in here.read(here.settings.names.quarantine) if one.value == body]

    assert reason in (wait_until(found, "it in the quarantine")[0]["QUARANTINE_REASON"] or "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delay": timedelta(days=41)}, "at most 40 days"),
        ({"deliver_at": datetime.now(UTC) + timedelta(days=41)}, "at most 40 days"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is the point
        ({"delay": timedelta(1), "delay_level": 1}, "give one of"),
        ({"headers": [("REAL_TOPIC", b"other")]}, "written by the producer itself"),
        ({"topic": "%RETRY%g"}, "only schedulers write"),
        ({"topic": "not legal"}, "illegal in Kafka"),
        ({"selector": lambda _queues, _arg: None}, "must return one of"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    here: Installation, producer: DelayProducer, arguments: dict[str, Any], message: str
) -> None:
    topic = orders(here, "refused")
    with pytest.raises(IllegalSetting, match=message):
        producer.send(**({"topic": topic, "body": b"v"} | arguments))
    assert here.read(topic) == []


def test_a_target_that_does_not_exist_or_is_ours_is_refused(here: Installation, producer: DelayProducer) -> None:
    with pytest.raises(TopicNotReady, match="does not exist"):
        producer.send("no-such-topic", b"v", delay_level=1)
    with pytest.raises(TopicNotReady, match="sending to no-such-topic: the topic does not exist"):
        producer.send("no-such-topic", b"v")
    assert not here.admin.partitions(["no-such-topic"])
    with pytest.raises(IllegalSetting, match="one of reconsume's own"):
        producer.send(here.settings.names.groups, b"v")


def test_an_idle_producer_lets_no_broker_make_a_topic_of_reconsume_again(bootstrap_servers: str) -> None:
    """It would have its producers' timestamps, and no scheduler would read it."""
    one = allowing(bootstrap_servers)
    with scheduler(one.settings):
        one.wait_until_published()
    lane, topic, ages = one.settings.names.delay(1_000), orders(one, "idle"), list[int]()

    def heard(statistics: str) -> None:
        if (known := json.loads(statistics)["topics"].get(lane)) is not None:
            ages.append(known["metadata_age"])

    def refreshes() -> int:
        return sum(later < earlier for earlier, later in pairwise(ages))

    conf = {"topic.metadata.refresh.interval.ms": 500, "statistics.interval.ms": 100, "stats_cb": heard}
    with producing(one, conf=conf) as idle:
        idle.send(topic, b"v", delay_level=1)
        one.delete(lane)
        before = refreshes()
        wait_until(lambda: refreshes() >= before + 4, "it asks for its topics again")
        assert not one.admin.partitions([lane])


def test_a_send_that_nobody_answers_ends_after_all_its_tries() -> None:
    patience = {"send_msg_timeout": timedelta(milliseconds=300), "retry_times_when_send_failed": 1}
    with (
        DelayProducer(bootstrap_servers="127.0.0.1:1", **patience) as nobody,  # type: ignore[arg-type]
        pytest.raises(KafkaNotReachable, match="sending to t"),
    ):
        nobody.send("t", b"v")


def wait_for_done_ahead(here: Installation, send: Callable[[], None]) -> None:
    """Send until a message has left the last lane before one that came in front of it."""
    lane = here.settings.names.delay(0)
    group = here.settings.topic_prefix + "scheduler"
    settings: dict[str, Any] = here.settings.client_settings() | {"group.id": group}
    consumer = Consumer(settings)

    def remembered() -> bool:
        send()
        (one,) = consumer.committed([TopicPartition(lane, 0)], 10)
        return one.offset >= 0 and bool(decode_done(one.offset, one.metadata))

    wait_until(remembered, "something done out of turn")
    consumer.close()


def at_least_once(settings: Settings) -> Settings:
    mode = settings.scheduler.model_copy(update={"delivery": "at_least_once"})
    return settings.model_copy(update={"scheduler": mode})


def test_a_worker_that_is_killed_in_mid_cascade_loses_and_repeats_nothing(bootstrap_servers: str) -> None:
    one = allowing(bootstrap_servers)
    topic = orders(one, "killed")
    due: dict[bytes, int] = {}
    with producing(one) as producer:

        def send(wait_ms: int | None = None) -> None:
            body = b"%d" % len(due)
            due[body] = now_ms() + (1_200 + (len(due) * 7_919) % 3_500 if wait_ms is None else wait_ms)
            producer.send(topic, body, deliver_at=due[body])

        with worker_process(one.settings, "first", one.settings.allowed_real_topics) as first:
            send(0)
            arrived(one, topic, 1)
            for _ in range(200):
                send()
            wait_for_done_ahead(one, send)
            first.send_signal(signal.SIGKILL)
            first.wait()
        with worker_process(one.settings, "second", one.settings.allowed_real_topics):
            arrived(one, topic, len(due))
            # What comes twice would have come by then: it is behind in no lane.
            producer.send(topic, b"end", delay=timedelta(seconds=4))
            back = arrived(one, topic, len(due) + 1)
    assert Counter(record.value for record in back) == Counter([*due, b"end"])
    assert min(record.timestamp - due[record.value] for record in back if record.value in due) >= 0


def test_without_transactions_messages_come_at_their_moments_too(bootstrap_servers: str) -> None:
    one = allowing(bootstrap_servers)
    one = dataclasses.replace(one, settings=at_least_once(one.settings))
    topic = orders(one, "plain")
    with scheduler(one.settings), producing(one) as producer:
        producer.send(topic, b"the worker is at work", delay=timedelta(milliseconds=1))
        arrived(one, topic, 1)
        due = {b"%d" % delay_ms: now_ms() + delay_ms for delay_ms in (2_900, 200, 1_900, 900)}
        for body, deliver_ms in due.items():
            producer.send(topic, body, deliver_at=deliver_ms)
        back = arrived(one, topic, 1 + len(due))[1:]
    assert [record.value for record in back] == [b"200", b"900", b"1900", b"2900"]
    assert min(record.timestamp - due[record.value or b""] for record in back) >= 0


@pytest.mark.rule("TM-13")
def test_a_withdrawal_outlives_the_schedulers(bootstrap_servers: str) -> None:
    one = allowing(bootstrap_servers)
    topic = orders(one, "nobody-there")
    with producing(one) as producer:
        gone = producer.send(topic, b"gone", delay=timedelta(seconds=2))
        producer.send(topic, b"stays", delay=timedelta(seconds=2))
        producer.cancel(gone.msg_id)
        due_ms = int(gone.msg_id[:12], 16)
        wait_until(lambda: now_ms() > due_ms, "the moment to pass while no scheduler runs")
        with scheduler(one.settings):
            arrived(one, topic, 1)
            producer.send(topic, b"end", delay=timedelta(seconds=1))
            wait_until(lambda: len(one.read(topic)) >= 2, "the end")
    assert [record.value for record in one.read(topic)] == [b"stays", b"end"]


def test_the_program_of_the_documentation_runs(here: Installation) -> None:
    topic = orders(here, "documented", 4)
    page = Path(__file__).parents[3] / "docs" / "delayed-messages.md"
    (program,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    servers = here.settings.bootstrap_servers
    program = program.replace('"localhost:9092"', f'"{servers}", topic_prefix="{here.settings.topic_prefix}"')
    exec(compile(program.replace('"orders"', f'"{topic}"'), str(page), "exec"), {})  # noqa: S102 - our own page
    assert {one.value for one in arrived(here, topic, 5)} >= {b"placed", b"picked", b"packed", b"sent"}
