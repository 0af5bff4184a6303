"""The drop-in and a broker that is not there: at its start, and while something is sent back."""

from __future__ import annotations

import logging
import threading

import pytest

from reconsume.consumers import reconsume_times
from reconsume.delay_levels.errors import SendBackFailed
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(150), pytest.mark.more]


@pytest.mark.rule("SB-13")
def test_subscribe_does_not_wait_for_ever_and_a_send_back_waits_for_the_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        here.write_groups()
        group, topic = here.name("away"), here.topic("away")
        here.produce(topic, b"one", b"two")
        kafka.kill()
        with drop_in(here, group, conf={"log_level": 0}) as consumer:
            with caplog.at_level(logging.WARNING):
                consumer.subscribe([topic])
            assert "the retry topic is created when it does" in caplog.text
            kafka.start()
            reading = Reading(consumer)
            one, two = reading.until(2)
            wait_until(lambda: here.admin.partitions([consumer.retry_topic]), 60, "the retry topic is made")
            consumer.send_message_back(one)
            kafka.kill()
            waiting = threading.Thread(target=consumer.send_message_back, args=(two,))
            waiting.start()
            waiting.join(2)
            assert waiting.is_alive(), "it waits"
            kafka.start()
            waiting.join(60)
            assert not waiting.is_alive()
            with scheduler(here.settings):
                again = reading.until(2)
        assert sorted(message.value() or b"" for message in again) == [b"one", b"two"]
        assert {reconsume_times(message) for message in again} == {1}
        assert len(here.waiting(1_000, group)) == 2, "none was stored twice"


def test_close_ends_a_send_back_that_waits() -> None:
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        group, topic = here.name("closed"), here.topic("closed")
        here.produce(topic, b"one")
        errors: list[SendBackFailed] = []
        # Closing waits for the session's time where no broker answers.
        with drop_in(here, group, conf={"log_level": 0, "session.timeout.ms": 6_000}) as consumer:
            consumer.subscribe([topic])
            message = Reading(consumer).until(1)[0]
            consumer.send_message_back(message)
            kafka.kill()

            def send_back() -> None:
                try:
                    consumer.send_message_back(message)
                except SendBackFailed as error:
                    errors.append(error)

            waiting = threading.Thread(target=send_back)
            waiting.start()
            waiting.join(1)
            assert waiting.is_alive()
        waiting.join(30)
        assert len(errors) == 1
        with pytest.raises(SendBackFailed, match="the consumer is closed"):
            consumer.send_message_back(message)
