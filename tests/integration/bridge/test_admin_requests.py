"""Questions to the cluster while their client is replaced by other threads, and after the broker was restarted."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

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
    replaced = itertools.count(1)
    enough = threading.Event()

    def replace() -> int:
        while not stop.wait(0.005):
            admin._explain(KafkaException(KafkaError(KafkaError._TIMED_OUT)), "asking")
            if next(replaced) > ROUNDS:
                enough.set()
        return ROUNDS

    def ask() -> int:
        rounds = 0
        while rounds < ROUNDS or not enough.is_set():
            assert admin.end_offsets([(topic, 0)]) == {(topic, 0): 0}
            assert admin.partitions([topic]) == {topic: 1}
            assert admin.settings([topic])[topic]["cleanup.policy"] == "delete"
            rounds += 1
        return rounds

    replacing, asking = in_a_thread(replace), [in_a_thread(ask) for _ in range(2)]
    try:
        assert min(one.result(PATIENCE) for one in asking) >= ROUNDS
    finally:
        stop.set()
    assert replacing.result(PATIENCE) == ROUNDS


def test_offsets_are_told_as_soon_as_a_restarted_broker_answers_others() -> None:
    """An admin client of librdkafka goes on asking with the leader epoch of before the restart, for 10 s or more."""
    with kafka_to_kill() as kafka:
        base = {"bootstrap.servers": kafka.bootstrap_servers}
        admin = KafkaAdmin(base, patience=5.0)
        admin.create("asked", 1, 1, {})
        assert admin.end_offsets([("asked", 0)]) == {("asked", 0): 0}
        kafka.shut_down()
        kafka.start()

        def answers_others() -> bool:
            try:
                return KafkaAdmin(base, patience=1.0).end_offsets([("asked", 0)]) == {("asked", 0): 0}
            except KafkaNotReachable:
                return False

        wait_until(answers_others, "a new client is told")
        assert admin.end_offsets([("asked", 0)]) == {("asked", 0): 0}
