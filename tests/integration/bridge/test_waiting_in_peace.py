"""A writer whose broker does not answer waits; it does not keep a core busy."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.integration.installation import Installation, settings_for
from tests.support.brokers.kafka import kafka_to_kill

pytestmark = pytest.mark.kafka

WAIT_SECONDS: Final = 3.0
_WRITER: Final = """
import os, signal, sys, time
from confluent_kafka import KafkaException, Producer
from reconsume.bridge.kafka.client_settings import transactional_settings

servers, topic, broker, wait = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
producer = Producer(transactional_settings({"bootstrap.servers": servers}, "quiet", 15_000))
producer.init_transactions(60)
producer.begin_transaction()
producer.produce(topic, b"first")
assert producer.flush(300) == 0
os.kill(broker, signal.SIGSTOP)
try:
    began, cpu = time.monotonic(), time.process_time()
    for number in range(300):
        producer.produce(topic, b"%d" % number)
        while time.monotonic() < began + 0.03 * number / 300:
            producer.poll(0.001)
    try:
        producer.commit_transaction(wait)
    except KafkaException:
        print(time.process_time() - cpu)
finally:
    os.kill(broker, signal.SIGCONT)
producer.purge()
"""
"""A process of its own, because the clients of earlier tests would count, too."""


@pytest.mark.skipif(sys.platform != "linux", reason="the broker's process is found on Linux only")
def test_a_transaction_without_an_answer_costs_no_cpu() -> None:
    with kafka_to_kill() as kafka:
        topic = Installation(settings_for(kafka.bootstrap_servers)).topic("quiet")
        writer = subprocess.run(
            [sys.executable, "-c", _WRITER, kafka.bootstrap_servers, topic, str(kafka.java_pid), str(WAIT_SECONDS)],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert writer.returncode == 0, writer.stderr
    assert float(writer.stdout) < WAIT_SECONDS / 3
