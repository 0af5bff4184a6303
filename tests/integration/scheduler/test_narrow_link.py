"""A scheduler whose brokers take less in a transaction's time than its largest batch holds."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import Producer

from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.brokers.kafka_tools import limit_producer
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(2)]

RECORDS = 4_000
BYTES = 1_000
BYTES_PER_SECOND = 200_000


def test_a_batch_that_cannot_be_written_in_time_is_followed_by_smaller_ones(bootstrap_servers: str) -> None:
    """The whole backlog needs 20 s, and a transaction ends after 5 s."""
    one = Installation(settings_for(bootstrap_servers))
    short = one.settings.scheduler.model_copy(update={"transaction_timeout_ms": 3_000})
    one = Installation(one.settings.model_copy(update={"scheduler": short}))
    one.make_topics()
    one.write_groups()
    names, group = one.settings.names, one.name("g")
    one.admin.create(names.retry(group), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    client_id = f"{one.settings.topic_prefix}scheduler-{short.instance_id}"
    limit_producer(bootstrap_servers, client_id, BYTES_PER_SECOND)
    producer = Producer(one.settings.client_settings() | {"linger.ms": 5})
    for _ in range(RECORDS):
        # Compression would make the link wide again.
        producer.produce(names.delay(0), os.urandom(BYTES), headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
    assert producer.flush(PATIENCE) == 0
    producer.close()
    retry = names.retry(group), 0
    with scheduler(one.settings):
        source = names.delay(0)
        wait_until(lambda: one.finished(one.settings.topic_prefix + "scheduler", source) == RECORDS, "all are done")
    written = one.admin.end_offsets([retry], uncommitted=True)[retry]
    assert len(one.retries(group)) == RECORDS
    assert written < 5 * RECORDS, "aborted records are few"
