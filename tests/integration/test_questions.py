"""Threads that ask by one client for questions, while one of them replaces it as after no answer."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.admin import KafkaAdmin

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROUNDS = 50


def in_a_thread(work: Callable[[], int]) -> Future[int]:
    """One that holds nobody up if it hangs."""
    done: Future[int] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def test_every_question_is_answered_though_clients_come_and_go(bootstrap_servers: str) -> None:
    """The client that is let go may have open questions of others, whose answers librdkafka loses at times."""
    admin = KafkaAdmin({"bootstrap.servers": bootstrap_servers})
    topic = f"questions-{uuid.uuid4().hex[:8]}"
    admin.create(topic, 1, 1, {})
    stop = threading.Event()

    def replace() -> int:
        times = 0
        while not stop.wait(0.005):
            admin._explain(KafkaException(KafkaError(KafkaError._TIMED_OUT)), "asking")
            times += 1
        return times

    def ask() -> int:
        for _ in range(ROUNDS):
            assert admin.end_offsets([(topic, 0)]) == {(topic, 0): 0}
            assert admin.partitions([topic]) == {topic: 1}
            assert admin.settings([topic])[topic]["cleanup.policy"] == "delete"
        return ROUNDS

    replaced, asking = in_a_thread(replace), [in_a_thread(ask) for _ in range(2)]
    try:
        assert [one.result(200) for one in asking] == [ROUNDS, ROUNDS]
    finally:
        stop.set()
    assert replaced.result(30) > ROUNDS
