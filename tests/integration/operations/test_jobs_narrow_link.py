"""A job whose brokers take less in a transaction's time than its largest transaction holds."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

from reconsume.operations.dead_letter_states import resend_id
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import JobDraft, create
from tests.integration.installation import Installation, installation
from tests.integration.operations.test_dlq import headers_of
from tests.support.brokers.kafka_tools import limit_producer

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(2), pytest.mark.timeout(300)]

LETTERS = 600
BYTES = 10_000
BYTES_PER_SECOND = 200_000


def with_large_letters(here: Installation) -> str:
    group = here.unique("g")
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    producer = here.producer()
    for number in range(LETTERS):
        # Compression would make the link wide again.
        producer.produce(topic, os.urandom(BYTES), headers=dict(headers_of(group, number)))
    assert producer.flush(30) == 0
    producer.close()
    return group


def test_a_transaction_that_cannot_be_written_in_time_is_followed_by_smaller_ones(bootstrap_servers: str) -> None:
    """500 letters need 25 s, and a transaction ends after 15 s."""
    with installation(bootstrap_servers) as here:
        group = with_large_letters(here)
        job = create(here.cluster, JobDraft("resend", group), by="alice", count=LETTERS)
        limit_producer(bootstrap_servers, resend_id(here.cluster, group), BYTES_PER_SECOND)
        stop = threading.Event()
        too_late = threading.Timer(200, stop.set)
        too_late.start()
        try:
            ended = JobRunner(here.cluster).run_until_ended(job, stop)
        finally:
            too_late.cancel()
        assert (ended.progress.ended, ended.progress.counts) == ("DONE", {"sent": LETTERS})
        sent = Counter(one["ORIGIN_MESSAGE_ID"] for one in here.read(here.settings.names.delay(0)))
        assert sent == Counter(f"flights/0/{number}" for number in range(LETTERS))
