"""Topic settings of an installation are published, so that a topic is the same whoever makes it."""

from __future__ import annotations

import json
import threading

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.groups.groups_store import read_groups, write_group, write_system
from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import make_producer
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import TopicSettings
from reconsume.cli.commands.groups_file import apply_groups
from reconsume.cli.commands.topics import apply_plan, make_plan
from reconsume.cli.common import Here
from reconsume.consumers import ConsumeConcurrentlyContext, Message, PushConsumer
from reconsume.consumers.sending.retry_topic import make_retry_topic
from tests.integration.installation import LATER, LEVELS, SUCCESS, Deliveries, Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

LIMIT = 6_000_000
DAY_MS = 86_400_000
FIVE_MB = b"x" * 5_000_000


@pytest.fixture
def one(bootstrap_servers: str) -> Installation:
    """An installation for large messages, made as people make one."""
    base = settings_for(bootstrap_servers)
    topics = TopicSettings(delay_partitions=1, max_message_bytes=LIMIT, retention_days=3)
    found = Installation(base.model_copy(update={"topics": topics}))
    found.admin.create(found.settings.names.groups, 1, -1, {"cleanup.policy": "compact"})
    write_system(found.cluster, SystemConfig(message_delay_level=LEVELS))
    apply_plan(found.cluster, make_plan(found.cluster), as_json=True)
    return found


def test_a_retry_of_5_mb_comes_through_a_retry_topic_that_its_consumer_has_made(one: Installation) -> None:
    topic, group = one.name("orders"), one.name("g")
    one.admin.create(topic, 1, -1, {"max.message.bytes": str(LIMIT)})

    def fail_first(messages: list[Message], _context: ConsumeConcurrentlyContext) -> object:
        return LATER if messages[0].reconsume_times == 0 else SUCCESS

    listener = Deliveries(fail_first)  # type: ignore[arg-type]
    consumer = one.consumer(group, topic, listener)
    consumer.start()
    try:
        settings = one.admin.settings([one.settings.names.retry(group)])[one.settings.names.retry(group)]
        assert (settings["max.message.bytes"], settings["retention.ms"]) == (str(LIMIT), str(3 * DAY_MS))
        with scheduler(one.settings):
            producer = make_producer(producer_settings(one.settings.client_settings(), "large"))
            producer.produce(topic, value=FIVE_MB)
            producer.flush()
            producer.close()
            wait_until(lambda: len(listener.messages) >= 2, "the retry")
    finally:
        consumer.shutdown()
    assert [(len(body or b""), times) for body, times in listener.seen] == [(len(FIVE_MB), 0), (len(FIVE_MB), 1)]
    assert one.read(one.settings.names.quarantine) == []


def test_topics_apply_publishes_what_it_was_given_and_keeps_the_rest(
    one: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_plan(one.cluster).is_empty
    others = Cluster(one.settings.model_copy(update={"topics": TopicSettings(retention_days=9)}))
    plan = make_plan(others)
    assert [(change.name, change.is_now, change.will_be) for change in plan.publishes] == [
        ("topics.retention_days", 3, 9)
    ]
    capsys.readouterr()
    apply_plan(others, plan, as_json=True)
    assert json.loads(capsys.readouterr().out)["published"] == [
        {"name": "topics.retention_days", "is_now": 3, "will_be": 9}
    ]
    published = read_groups(one.cluster).system
    assert published.topic_settings is not None
    assert (published.topic_settings.retention_days, published.topic_settings.max_message_bytes) == (9, LIMIT)
    assert str(published.message_delay_level) == LEVELS
    nothing_given = Cluster(one.settings.model_copy(update={"topics": TopicSettings()}))
    assert make_plan(nothing_given).is_empty, "who was given nothing takes what is published"


def test_groups_apply_publishes_them_too(one: Installation, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The chart's job runs this in place of `topics apply` where it has groups."""
    file = tmp_path_factory.mktemp("groups") / "groups.yaml"
    file.write_text("groups: {departures: {retryMaxTimes: 3}}")
    others = Cluster(one.settings.model_copy(update={"topics": TopicSettings(max_message_bytes=2 * LIMIT)}))
    apply_groups(Here(others, as_json=True), file, yes=True)
    published = read_groups(one.cluster).system.topic_settings
    assert published is not None
    assert (published.max_message_bytes, published.retention_days) == (2 * LIMIT, 3)
    retry = one.settings.names.retry("departures")
    assert one.admin.settings([retry])[retry]["max.message.bytes"] == str(2 * LIMIT)


def test_an_old_process_changes_the_record_and_loses_nothing(one: Installation) -> None:
    """As `groups set` does: it reads, changes one field, and writes all that it has read."""
    value = read_groups(one.cluster).system.model_dump(by_alias=True)
    write_system(one.cluster, SystemConfig.model_validate(value | {"messageDelayLevel": "1s 2s"}))
    write_group(one.cluster, SubscriptionGroupConfig(group_name="late"))
    groups = read_groups(one.cluster)
    conf, prefix = one.settings.client_settings(), one.settings.names.prefix
    late = PushConsumer("late", bootstrap_servers=conf["bootstrap.servers"], conf=conf, topic_prefix=prefix)
    make_retry_topic(late._settings, groups, threading.Event())
    retry = one.settings.names.retry("late")
    assert one.admin.settings([retry])[retry]["max.message.bytes"] == str(LIMIT)
