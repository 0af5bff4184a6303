"""A message as listeners see it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from reconsume.consumers.message import KafkaRecord, Message
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.send_back_copy import Position
from tests.unit.consumers.doubles import APPENDED_MS, RETRY_TOPIC, message_at

USERS: list[Header] = [("trace", b"1"), ("trace", b"2"), ("none", None), ("binary", b"\xff\x00"), ("TAGS", b"late")]
OURS: list[Header] = [
    ("RETRY_TOPIC", b"flights"),
    ("ORIGIN_MESSAGE_ID", b"flights/3/42"),
    ("RECONSUME_TIME", b"2"),
    ("MAX_RECONSUME_TIMES", b"5"),
    ("DELAY", b"4"),
    ("REAL_TOPIC", b"%RETRY%departures"),
    ("REAL_QID", b"0"),
    ("BORN_TIMESTAMP", b"1600000000000"),
    ("__dlq.errors.message", b"no dep_time"),
]


def retry(headers: list[Header] | None = None, topic: str = RETRY_TOPIC) -> Message:
    return message_at(7, topic=topic, headers=[*USERS, *OURS] if headers is None else headers)


def without(name: str, *more: Header) -> list[Header]:
    return [header for header in OURS if header[0] != name] + list(more)


@pytest.mark.rule("TN-02", "T-10")
def test_a_retry_shows_its_origin() -> None:
    message = retry()
    assert message.is_retry
    assert message.topic == "flights"
    assert message.origin == Position("flights", 3, 42)
    assert (message.reconsume_times, message.delay_time_level, message.born_timestamp) == (2, 4, 1_600_000_000_000)


@pytest.mark.rule("TN-04")
def test_where_it_was_polled_is_shown_too() -> None:
    assert retry().kafka == KafkaRecord(RETRY_TOPIC, 0, 7, APPENDED_MS)


@pytest.mark.rule("TN-03", "TN-05", "T-10")
@pytest.mark.parametrize("topic", ["reconsume.RETRY.arrivals", "reconsume.DLQ.departures", "flights-copy"])
def test_a_record_of_another_topic_keeps_its_topic_and_has_no_past(topic: str) -> None:
    message = retry(topic=topic)
    assert not message.is_retry
    assert message.topic == topic
    assert message.origin == Position(topic, 0, 7)
    assert (message.reconsume_times, message.delay_time_level, message.born_timestamp) == (0, 0, APPENDED_MS)


@pytest.mark.rule("SC-06")
@pytest.mark.parametrize(("real_topic", "level"), [(b"orders", 4), (b"flights", 0), (b"%RETRY%orders", 0), (None, 0)])
def test_a_record_that_was_sent_with_a_delay_shows_its_level_where_it_was_sent_to(
    real_topic: bytes | None, level: int
) -> None:
    headers: list[Header] = [("DELAY", b"4"), ("REAL_TOPIC", real_topic), ("REAL_QID", b"0")]
    assert retry(headers, topic="orders").delay_time_level == level


@pytest.mark.rule("TN-03")
@pytest.mark.parametrize("more", [[], [("RETRY_TOPIC", b"")], [("RETRY_TOPIC", None)], [("RETRY_TOPIC", b"\xff")]])
@pytest.mark.parametrize(
    ("identity", "topic"), [(b"flights/3/42", "flights"), (b"AC1A0A65", RETRY_TOPIC), (b"", RETRY_TOPIC)]
)
def test_a_retry_without_a_readable_origin_topic_has_that_of_its_id_or_keeps_the_retry_topic(
    more: list[Header], identity: bytes, topic: str
) -> None:
    others = [one for one in without("RETRY_TOPIC", *more) if one[0] != "ORIGIN_MESSAGE_ID"]
    assert retry([*others, ("ORIGIN_MESSAGE_ID", identity)]).topic == topic


@pytest.mark.rule("T-40", "T-41")
def test_headers_are_exactly_the_users() -> None:
    assert retry().headers == USERS
    assert message_at(0).headers == []
    assert message_at(0, headers=USERS).headers == USERS


@pytest.mark.rule("SC-06")
def test_properties_show_rocketmqs_too() -> None:
    properties = retry().properties
    assert properties["DELAY"] == "4"
    assert properties["REAL_TOPIC"] == "%RETRY%departures"
    assert properties["trace"] == "2", "of duplicates the last"
    assert "none" not in properties
    assert properties["binary"] == "\ufffd\x00"


@pytest.mark.parametrize("count", [b"two", b"", b"-1", b"1.5", b"\xff", b"9" * 30, None])
def test_a_malformed_count_is_0_and_the_log_names_the_record(
    count: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    message = retry(without("RECONSUME_TIME", ("RECONSUME_TIME", count)))
    assert message.reconsume_times == 0
    assert message.topic == "flights"
    assert "reconsume.RETRY.departures/0/7: header RECONSUME_TIME" in caplog.text


@pytest.mark.rule("SB-08", "SB-12", "T-08")
@pytest.mark.parametrize("header", [("RECONSUME_TIME", b"two"), ("BORN_TIMESTAMP", b"-1")])
def test_one_malformed_header_does_not_cost_the_origin(header: Header) -> None:
    message = retry(without(header[0], header))
    assert message.origin == Position("flights", 3, 42)
    assert message.msg_id == "flights/3/42"


@pytest.mark.parametrize("level", [b"four", b"", b"1.5", None])
def test_a_malformed_level_is_0(level: bytes | None) -> None:
    assert retry(without("DELAY", ("DELAY", level))).delay_time_level == 0


@pytest.mark.parametrize("identity", [b"AC1A0A6500002A9F", b"\xff"])
def test_an_origin_id_of_another_form_is_kept_and_gives_no_position(identity: bytes) -> None:
    message = retry(without("ORIGIN_MESSAGE_ID", ("ORIGIN_MESSAGE_ID", identity)))
    assert message.origin == Position(RETRY_TOPIC, 0, 7)
    if identity.isascii():
        assert message.msg_id == identity.decode()


@pytest.mark.rule("SB-12")
def test_the_message_id_is_the_same_over_all_retries() -> None:
    first = message_at(42, partition=3)
    assert first.msg_id == "flights/3/42" == retry().msg_id
    assert retry([*OURS, ("UNIQ_KEY", b"7F00")]).msg_id == "7F00"
    assert message_at(42, headers=[("UNIQ_KEY", b"7F00")]).msg_id == "7F00"


def test_tags_and_keys_are_the_producers() -> None:
    message = message_at(0, headers=[("TAGS", b"late"), ("KEYS", b"UA1545 EWR"), ("KEYS", b"UA1546")])
    assert (message.tags, message.keys) == ("late", "UA1546")
    assert (message_at(0).tags, message_at(0).keys) == (None, None)
    assert message_at(0, headers=[("TAGS", b"\xff")]).tags is None


def test_a_tombstone_and_a_missing_key_are_none() -> None:
    message = message_at(0, key=None, body=None)
    assert (message.key, message.body) == (None, None)
    assert message_at(0, key=b"", body=b"").key == b""


@pytest.mark.rule("CC-11", "BR-18", "T-12")
def test_a_local_failure_raises_what_the_listener_sees_and_not_what_is_stored() -> None:
    again = retry().failed_again_locally().failed_again_locally()
    assert again.reconsume_times == 4
    assert again.stored.reconsume_times == 2
    assert (again.topic, again.key, again.body, again.kafka) == ("flights", b"key", b"body", retry().kafka)
    assert message_at(0).failed_again_locally().reconsume_times == 1


@pytest.mark.rule("TN-10")
def test_its_topic_is_without_the_namespace_on_a_retry_and_after_a_local_failure_too() -> None:
    polled = message_at(7, topic="shop.25flights")._polled
    first = Message(polled, RETRY_TOPIC, namespace_prefix="shop.25")
    assert (first.topic, first.kafka.topic, first.origin.topic) == ("flights", "shop.25flights", "shop.25flights")
    headers = without("RETRY_TOPIC", ("RETRY_TOPIC", b"shop.25flights"))
    again = Message(retry(headers)._polled, RETRY_TOPIC, namespace_prefix="shop.25").failed_again_locally()
    assert (again.topic, again.stored.origin_topic) == ("flights", "shop.25flights")
    other = Message(message_at(7, topic="other.25flights")._polled, RETRY_TOPIC, namespace_prefix="shop.25")
    assert other.topic == "other.25flights"


def test_its_repr_says_where_it_stood() -> None:
    assert repr(retry()) == "<Message reconsume.RETRY.departures-0@7>"


FORKED = """
import os, threading
from reconsume.bridge.librdkafka import undecodable
from reconsume.consumers.message import Message
from tests.unit.consumers.doubles import message_at
message = message_at(7, headers=[("trace", b"1")])
taken, forked = threading.Event(), threading.Event()
def hold():
    for lock in undecodable._DECODING:
        lock.acquire()
    taken.set()
    forked.wait()
threading.Thread(target=hold, daemon=True).start()
taken.wait()
if (child := os.fork()) == 0:
    os._exit(0 if message.all_headers == [("trace", b"1")] else 1)
for _ in range(300):
    if (ended := os.waitpid(child, os.WNOHANG))[0]:
        break
    forked.wait(0.1)
else:
    os.kill(child, 9)
    ended = os.waitpid(child, 0)
forked.set()
assert ended[1] == 0, "the child waits for a thread that only its parent has"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_reads_headers_though_a_thread_of_its_parent_was_reading_some() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)


ASKED_AT_ONCE = """
import gc, threading, time, psutil
from concurrent.futures import ThreadPoolExecutor
from confluent_kafka import Consumer, Producer
from reconsume.consumers.message import Message
wanted = [(f"name-{number}", b"x") for number in range(200)]
producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
while not (ports := [one.laddr.port for one in psutil.Process().net_connections() if one.status == "LISTEN"]):
    producer.poll(0.1)
for _ in range(20):
    producer.produce("flights", b"", headers=wanted)
while producer.flush(1):
    pass
consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{ports[0]}", "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["flights"])
polled = []
while len(polled) < 20:
    polled += [one for one in consumer.consume(20, 1) if one.error() is None]
gc.set_threshold(20)
gc.callbacks.append(lambda phase, info: time.sleep(0.0002))  # another thread may go on during a collection
def headers_of(message, line):
    line.wait(300)
    return message.all_headers
for one in polled:
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(headers_of, [Message(one, "retry")] * 3, [threading.Barrier(3)] * 3))
    assert found == [wanted] * 3
"""


def test_threads_may_ask_for_the_headers_of_a_message_at_once() -> None:
    """In a process of its own, because confluent-kafka's defect ends it."""
    subprocess.run([sys.executable, "-c", ASKED_AT_ONCE], check=True, timeout=120)
