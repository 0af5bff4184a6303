"""What librdkafka's fatal errors come as, and that no report of a delivery is lost with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.librdkafka.fatal_errors import fatal_error, fatal_error_of, wait_for_reports
from tests.support.brokers.fatal import fail_fatally
from tests.support.waiting import PATIENCE

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
RECORDS = 5
TRIES = 20


class Reports:
    """Of a producer that reaches nobody."""

    def __init__(self) -> None:
        self.told: list[KafkaError | None] = []
        self.producer = Producer(producer_settings(NOWHERE, "reports"))
        for _ in range(RECORDS):
            self.producer.produce("t", b"x", on_delivery=self.hear)

    def hear(self, error: KafkaError | None, message: Message) -> None:
        message.timestamp()
        self.told.append(error)


@pytest.fixture
def reports() -> Iterator[Reports]:
    one = Reports()
    yield one
    one.producer.purge()
    wait_for_reports(one.producer, 10)
    one.producer.close()


def test_a_fatal_error_is_raised_and_all_reports_follow(reports: Reports) -> None:
    fail_fatally(reports.producer)
    reports.producer.purge()
    with pytest.raises(KafkaException) as raised:
        wait_for_reports(reports.producer, 10)
    assert fatal_error(raised.value) == "OUT_OF_ORDER_SEQUENCE_NUMBER: test_fatal_error: planted"
    assert wait_for_reports(reports.producer, 10) == 0
    assert [error and error.code() for error in reports.told] == [KafkaError._PURGE_QUEUE] * RECORDS


def test_flush_loses_reports_after_a_fatal_error() -> None:
    """Why `wait_for_reports` is there; should this fail one day, `flush` will do. It loses none if it is the slower."""
    assert any(map(_are_lost_by_flush, range(TRIES)))


def _are_lost_by_flush(_number: int) -> bool:
    reports = Reports()
    fail_fatally(reports.producer)
    reports.producer.purge()
    with pytest.raises(SystemError):
        reports.producer.flush(PATIENCE)
    wait_for_reports(reports.producer, 10)
    reports.producer.close()
    return len(reports.told) < RECORDS


def test_it_says_how_many_reports_are_not_there_in_time(reports: Reports) -> None:
    # The refused connection, and that no broker is left, count as well if they have not been told yet.
    assert RECORDS <= wait_for_reports(reports.producer, 0.05) <= RECORDS + 2
    assert reports.told == []


class _ServedElsewhere:
    """A producer whose reports another thread takes, so that a `poll` here waits for its whole time."""

    def __init__(self) -> None:
        self.left = 1
        self.polled = threading.Event()
        self.never = threading.Event()

    def __len__(self) -> int:
        return self.left

    def poll(self, seconds: float) -> int:
        self.polled.set()
        self.never.wait(seconds)
        return 0


def test_reports_that_another_thread_takes_end_the_wait() -> None:
    producer, missing = _ServedElsewhere(), list[int]()
    waiting = threading.Thread(target=lambda: missing.append(wait_for_reports(cast("Producer", producer), 60)))
    waiting.start()
    assert producer.polled.wait(PATIENCE)
    producer.left = 0
    waiting.join(PATIENCE)
    in_time = list(missing)
    producer.never.set()
    waiting.join(PATIENCE)
    assert in_time == [0]


def test_an_error_that_is_not_fatal_is_raised_again() -> None:
    error = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(KafkaException) as raised:
        fatal_error(error)
    assert raised.value is error


def _hidden(cause: BaseException | None) -> SystemError:
    error = SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")
    error.__cause__ = cause
    return error


def test_the_fatal_error_that_a_system_error_comes_from_is_taken() -> None:
    cause = KafkaException(KafkaError(KafkaError._FENCED, "", fatal=True))
    assert fatal_error_of(_hidden(cause)) is cause


def test_one_that_a_callback_has_cleared_is_fatal_all_the_same() -> None:
    told = fatal_error_of(_hidden(None)).args[0]
    assert (told.code(), told.fatal()) == (KafkaError._FATAL, True)
    assert "returned NULL" in told.str()
