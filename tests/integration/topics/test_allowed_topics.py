"""Schedulers publish the topics that they deliver to; those who send delayed messages refuse others at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import read_groups, write_system
from reconsume.bridge.kafka.clients import make_producer
from reconsume.consumers import DelayProducer
from reconsume.delay_levels.errors import TopicNotAllowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def here(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


def allowing(here: Installation, *patterns: str) -> Installation:
    return Installation(here.settings.model_copy(update={"allowed_real_topics": list(patterns)}))


def producing(here: Installation) -> DelayProducer:
    return DelayProducer(
        bootstrap_servers=here.settings.bootstrap_servers, topic_prefix=here.settings.topic_prefix, delay_levels=LEVELS
    )


def takes(producer: DelayProducer, topic: str) -> bool:
    try:
        producer.send(topic, b"v", delay=timedelta(milliseconds=100))
    except TopicNotAllowed:
        return False
    return True


def test_while_no_scheduler_has_published_anything_messages_are_taken(here: Installation) -> None:
    """An installation of an earlier version: what is refused shows in the quarantine, as it did."""
    topic = here.unique("orders")
    here.admin.create(topic, 1, -1, {})
    with producing(here) as producer:
        assert takes(producer, topic)
        with scheduler(here.settings):
            kept = wait_until(lambda: here.read(here.settings.names.quarantine), "the message in the quarantine")
            assert [one["REAL_TOPIC"] for one in kept or []] == [topic]
            wait_until(lambda: not takes(producer, topic), "the setting of the scheduler holds")


def test_a_groups_topic_that_was_made_again_gets_the_setting_again(here: Installation) -> None:
    one, topic = allowing(here, "orders-.*"), here.unique("payments")
    here.admin.create(topic, 1, -1, {})
    with scheduler(one.settings):
        one.wait_until_published()
        one.delete(one.settings.names.groups)
        one.make_topics()
        one.write_groups()
        one.wait_until_published()
        with producing(here) as producer:
            wait_until(lambda: not takes(producer, topic), "the setting of the scheduler holds")


def test_a_setting_that_changes_holds_for_producers_that_run(here: Installation) -> None:
    topic = here.unique("orders")
    here.admin.create(topic, 1, -1, {})
    with producing(here) as producer:
        for patterns, expected in (((), False), (("orders-.*",), True), (("payments",), False)):
            one = allowing(here, *patterns)
            with scheduler(one.settings):
                one.wait_until_published()
                wait_until(lambda expected=expected: takes(producer, topic) is expected, f"{patterns} hold")  # type: ignore[misc]


def test_a_scheduler_that_starts_leaves_the_settings_of_people_alone(here: Installation) -> None:
    write_system(here.cluster, SystemConfig(message_delay_level="7s"))
    one = allowing(here, "orders")
    with scheduler(one.settings):
        one.wait_until_published()
    assert read_groups(here.cluster).system.message_delay_level == "7s"
    keys = [record.key for record in here.read(here.settings.names.groups)]
    with scheduler(one.settings):
        # Something that only a worker which has read GROUPS does.
        producer = make_producer(here.settings.client_settings())
        producer.produce(here.settings.names.delay(0), b"dead", headers=[("REAL_TOPIC", b"%DLQ%g")])
        producer.flush()
        producer.close()
        wait_until(lambda: here.dead_letters("g"), "a dead letter")
    assert keys.count(ALLOWED_TOPICS_KEY.encode()) == 1
    assert [record.key for record in here.read(here.settings.names.groups)] == keys, "it is not written again"
