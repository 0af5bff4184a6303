"""PushConsumer and a broker that is not there: at its start, and killed under load."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, scheduler, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]

TOTAL = 600


@pytest.mark.rule("SB-13", "SC-15", "T-24", "FC-06")
def test_a_broker_that_is_away_is_waited_for_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    bodies = [str(number).encode() for number in range(TOTAL)]
    succeeded: Counter[bytes | None] = Counter()
    lock = threading.Lock()

    def every_third_fails_once(
        messages: Sequence[Message], _context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        if messages[0].reconsume_times == 0 and int(messages[0].body or b"0") % 3 == 0:
            return LATER
        with lock:
            succeeded[messages[0].body] += 1
        return SUCCESS

    listener = Deliveries(every_third_fails_once)
    with kafka_to_kill() as kafka, ExitStack() as stack:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        here.write_groups()
        group, topic = here.name("away"), here.topic("away", 2)
        kafka.kill()
        consumer = here.consumer(group, topic, listener)
        stack.callback(consumer.shutdown)
        starting = threading.Thread(target=consumer.start)
        with caplog.at_level(logging.WARNING):
            starting.start()
            wait_until(lambda: "waiting for Kafka" in caplog.text, "the log says what it waits for")
        assert starting.is_alive(), "start() waits"
        kafka.start()
        starting.join(PATIENCE)
        assert consumer.running
        with scheduler(here.settings):
            here.produce(topic, *bodies[: TOTAL // 2])
            wait_until(lambda: len(succeeded) > TOTAL // 10, "it works")
            kafka.kill()
            kafka.start()
            here.produce(topic, *bodies[TOTAL // 2 :])
            wait_until(lambda: succeeded.keys() >= set(bodies), "every message has succeeded")
            ends = here.admin.end_offsets([(topic, 0), (topic, 1)])
            wait_until(
                lambda: all(here.committed(group, *where) == end for where, end in ends.items()), "all is committed"
            )
            assert consumer.running
            consumer.shutdown()
        retried = {record["ORIGIN_MESSAGE_ID"] for record in here.retries(group)}
    assert len(retried) == TOTAL // 3
