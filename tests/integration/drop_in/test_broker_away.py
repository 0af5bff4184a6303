"""The drop-in and a broker that is not there: at its start, and while something is sent back."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from reconsume.consumers import reconsume_times
from reconsume.delay_levels.errors import SendBackFailed
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]


@pytest.mark.rule("SB-13")
def test_subscribe_does_not_wait_and_a_send_back_waits_for_the_brokers_until_the_consumer_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # With automatic commits nothing may be left to commit.
    conf = {"log_level": 0, "session.timeout.ms": 6_000, "enable.auto.commit": False}
    with kafka_to_kill() as kafka, ThreadPoolExecutor(1) as thread:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        here.write_groups()
        group, topic = here.name("away"), here.topic("away")
        here.produce(topic, b"one", b"two")
        kafka.kill()
        # Closing waits for the session's time where no broker answers.
        with drop_in(here, group, conf=conf) as consumer:
            with caplog.at_level(logging.WARNING):
                consumer.subscribe([topic])
            assert "the retry topic is created when it does" in caplog.text
            kafka.start()
            reading = Reading(consumer)
            one, two = reading.until(2)
            wait_until(lambda: here.admin.partitions([consumer.retry_topic]), "the retry topic is made")
            consumer.send_message_back(one)
            consumer.commit(asynchronous=False)  # its session may end before the broker is back
            kafka.kill()
            waiting = thread.submit(consumer.send_message_back, two)
            wait([waiting], 2)
            assert not waiting.done(), "it waits"
            kafka.start()
            waiting.result(PATIENCE)
            with scheduler(here.settings):
                again = reading.until(2)
            assert sorted(message.value() or b"" for message in again) == [b"one", b"two"]
            assert {reconsume_times(message) for message in again} == {1}
            assert len(here.waiting(1_000, group)) == 2, "none was stored twice"
            kafka.kill()
            waiting = thread.submit(consumer.send_message_back, again[0])
            wait([waiting], 1)
            assert not waiting.done()
        assert isinstance(waiting.exception(30), SendBackFailed)
        with pytest.raises(SendBackFailed, match="the consumer is closed"):
            consumer.send_message_back(again[0])
