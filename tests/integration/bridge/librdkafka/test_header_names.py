"""Headers whose names are not UTF-8: the record comes back, with all headers, and nothing crashes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.brokers.raw_headers import produce_raw
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

RAW = [(b"first", b"1"), (b"\xff\xfename", b"2"), (b"last", b"3")]
ESCAPED = [("first", b"1"), ("\\xff\\xfename", b"2"), ("last", b"3")]
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
TWO = [(b"\xff", b"1"), (b"\xfe", b"2"), (b"last", b"3")]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def produce(here: Installation, topic: str, headers: list[tuple[bytes, bytes]]) -> None:
    produce_raw(here.settings.bootstrap_servers, topic, b"key", b"value", headers)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [(RAW, ESCAPED), (TWO, [(UNKNOWN, b"1"), (UNKNOWN, b"2"), ("last", b"3")])],
    ids=["one name", "two names, which confluent-kafka does not tell"],
)
def test_a_failed_message_comes_back_with_all_its_headers(
    here: Installation,
    raw: list[tuple[bytes, bytes]],
    shown: list[tuple[str, bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = here.topic(f"flights{len(raw[0][0])}")
    group = topic + "-group"
    listener = Deliveries(lambda messages, _: LATER if messages[0].reconsume_times == 0 else SUCCESS)
    produce(here, topic, raw)
    with caplog.at_level(logging.WARNING), here.consumer(group, topic, listener):
        wait_until(lambda: len(listener.messages) == 2, "the retry")
    assert [(one.key, one.body, one.headers) for one in listener.messages] == [(b"key", b"value", shown)] * 2
    assert any(f"{topic}-0@0: header names are not UTF-8" in text for text in caplog.messages)


def test_a_drop_in_that_had_confluent_kafkas_error_sends_back_all_the_same(here: Installation) -> None:
    topic = here.topic("drop-in")
    consumer = drop_in(here, topic + "-group")
    consumer.subscribe([topic])
    produce(here, topic, RAW)
    reading = Reading(consumer)
    (message,) = reading.until(1)
    with pytest.raises(SystemError) as error:
        message.headers()
    consumer.send_message_back(message, cause=error.value)
    (retry,) = reading.until(1)
    consumer.close()
    assert (retry.key(), retry.value()) == (b"key", b"value")
    assert retry.headers() == [("first", b"1"), (UNKNOWN, b"2"), ("last", b"3")]


@pytest.mark.parametrize("target", ["retry", "quarantine"])
def test_a_scheduler_takes_on_what_a_plain_client_wrote(here: Installation, target: str) -> None:
    group = here.name(target)
    own = [(b"REAL_TOPIC", b"%RETRY%" + group.encode()), (b"RETRY_TOPIC", b"flights")]
    produce(here, here.settings.names.send_back, [*RAW, *(own if target == "retry" else [])])
    topic = here.settings.names.retry(group) if target == "retry" else here.settings.names.quarantine
    record = wait_until(lambda: here.read(topic), f"the record on {topic}")[0]
    assert (record.key, record.value, record.headers[:3]) == (b"key", b"value", ESCAPED)
