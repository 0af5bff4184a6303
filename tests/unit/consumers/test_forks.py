"""Clients in a forked child, as under `gunicorn --preload`: they say so, and never wait for the parent's threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from reconsume.consumers import DelayProducer, PushConsumer
from reconsume.delay_levels.errors import IllegalSetting
from tests.support.waiting import wait_until

NOBODY = "127.0.0.1:1"
_SECONDS = 10.0

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_a_child(call: Callable[[], object]) -> int | None:
    """Return the exit code of a child that does this: 0 if it returned, 1 if it raised; None if it hung."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException:  # noqa: BLE001 - the test's process must not go on twice
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def refused(call: Callable[[], object]) -> Callable[[], None]:
    def told() -> None:
        with pytest.raises(IllegalSetting, match=r"created before a fork.* create a new one in each process"):
            call()

    return told


def test_a_producer_of_the_parent_is_refused_at_once_and_closed_without_a_wait() -> None:
    with DelayProducer(bootstrap_servers=NOBODY, send_msg_timeout=timedelta(milliseconds=100)) as producer:
        assert in_a_child(refused(lambda: producer.send("flights", b"UA1545"))) == 0
        assert in_a_child(producer.close) == 0


def test_a_consumer_of_the_parent_is_shut_down_without_a_wait() -> None:
    """At the exit of a worker, for example."""
    consumer = PushConsumer("departures", bootstrap_servers=NOBODY).subscribe("flights")
    consumer.register_message_listener(lambda _messages, _context: None)
    starting = threading.Thread(target=consumer.start)
    starting.start()
    wait_until(lambda: consumer._follower is not None, "it starts")
    assert in_a_child(consumer.shutdown) == 0
    consumer.shutdown()
    starting.join()
