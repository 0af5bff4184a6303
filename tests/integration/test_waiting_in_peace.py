"""A writer whose broker does not answer waits; it does not keep a core busy."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from confluent_kafka import KafkaException, Producer

from reconsume.bridge.kafka.client_settings import transactional_settings
from tests.integration.installation import Installation, settings_for
from tests.support.kafka import kafka_to_kill

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


WAIT_SECONDS = 3.0
RECORDS, SPREAD_OVER_SECONDS = 300, 0.03


@pytest.mark.skipif(sys.platform != "linux", reason="the broker's process is found on Linux only")
def test_a_transaction_without_an_answer_costs_no_cpu() -> None:
    with kafka_to_kill() as kafka:
        topic = Installation(settings_for(kafka.bootstrap_servers)).topic("quiet")
        producer = Producer(transactional_settings({"bootstrap.servers": kafka.bootstrap_servers}, "quiet", 15_000))
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"first")
        producer.flush(30)
        broker = kafka.java_pid
        assert broker is not None
        os.kill(broker, signal.SIGSTOP)
        try:
            began, cpu = time.monotonic(), time.process_time()
            for number in range(RECORDS):
                producer.produce(topic, b"%d" % number)
                while time.monotonic() < began + SPREAD_OVER_SECONDS * number / RECORDS:
                    producer.poll(0.001)
            with pytest.raises(KafkaException):
                producer.commit_transaction(WAIT_SECONDS)
            assert time.process_time() - cpu < WAIT_SECONDS / 3
        finally:
            os.kill(broker, signal.SIGCONT)
        producer.purge()
