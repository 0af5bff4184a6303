"""Our topics as they should be, and the plan that makes what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import ClusterFacts, KafkaAdmin, WantedTopic
from reconsume.bridge.process.settings import TopicSettings
from reconsume.bridge.topics.topic_plan import TopicPlan, plan_topics
from reconsume.bridge.topics.topics import NamedTopic, TopicMaker, wanted_topics
from reconsume.delay_levels.errors import KafkaRefused, SubscriptionGroupNotExist
from reconsume.delay_levels.wire.names import TopicNames

DAY_MS = 86_400_000


def maker(monkeypatch: pytest.MonkeyPatch, brokers: int = 1, factor: int = 1, **settings: float) -> TopicMaker:
    facts = ClusterFacts(brokers, factor, 1_048_588)
    monkeypatch.setattr(TopicMaker, "facts", property(lambda _self: facts))
    # No request is made: the facts are all that making a plan asks for.
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    return TopicMaker(admin, TopicNames(), TopicSettings.model_validate(settings))


def test_all_topics_of_the_table_the_policies_and_the_groups_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = (
        Groups()
        .with_record(b"%SYS%", b'{"messageDelayLevel": "5s 1s 60s 1m"}')
        .with_record(b"g", b'{"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1500]}}}')
    )
    names = [topic.name.removeprefix("reconsume.") for topic in wanted_topics(maker(monkeypatch), groups)]
    delays = ["DELAY.0s", "DELAY.1s", "DELAY.1500ms", "DELAY.5s", "DELAY.1m"]
    single = ["GROUPS", "SEND_BACK", "QUARANTINE", "CANCEL", "POSITIONS", "WITHDRAWN", "DEAD_LETTERS", "JOBS"]
    assert names == [*single, *delays, "RETRY.g", "DLQ.g"]


@pytest.mark.rule("T-21")
def test_one_clock_and_a_retention_of_twice_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker(monkeypatch, retention_days=7)
    assert make.delay_topic(7_200_000).settings["retention.ms"] == str(7 * DAY_MS)
    assert make.delay_topic(10 * DAY_MS).settings["retention.ms"] == str(20 * DAY_MS)
    assert make.dead_letter_topic("g").settings["retention.ms"] == "-1"
    for topic in wanted_topics(make, Groups()):
        assert topic.settings["message.timestamp.type"] == "LogAppendTime"
        assert int(topic.settings["max.message.bytes"]) > 1_048_588


def test_the_last_stretch_of_delayed_messages_is_kept_for_twice_the_shortest_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = maker(monkeypatch)
    assert make.delay_topic(0).settings["retention.ms"] == str(7 * DAY_MS)
    make._groups = lambda: Groups().with_record(b"%SYS%", b'{"messageDelayLevel": "30d 0s 10d"}')
    assert make.delay_topic(0).settings["retention.ms"] == str(20 * DAY_MS)


def test_no_limit_of_bytes_deletes_a_record_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker(monkeypatch)
    for topic in (*wanted_topics(make, Groups()), make.dead_letter_topic("g"), make.parked_topic("g")):
        limit = topic.settings.get("retention.bytes")
        assert limit == "-1" or topic.settings["cleanup.policy"] == "compact", topic.name
    [limited] = plan_with(monkeypatch, 6, retention_bytes="1073741824").differences
    remedy = limited.remedy("kafka:9092")
    assert remedy.startswith("kafka-configs.sh --bootstrap-server kafka:9092 --alter ")
    assert remedy.endswith("--add-config retention.bytes=-1")


@pytest.mark.parametrize(("brokers", "factor", "replicas"), [(1, 1, -1), (2, 2, -1), (3, 1, 3), (5, 4, 4)])
def test_three_replicas_where_there_are_three_brokers(
    monkeypatch: pytest.MonkeyPatch, brokers: int, factor: int, replicas: int
) -> None:
    topic = maker(monkeypatch, brokers, factor).send_back_topic()
    assert topic.replication_factor == replicas
    assert ("min.insync.replicas" in topic.settings) == (replicas >= 3)


class Growing:
    """A cluster whose number of known brokers changes; on those that run, Kafka places replicas."""

    def __init__(self, **settings: int) -> None:
        self.known = 1
        self.running = 3
        self.asked = 0
        self.now = 0.0
        self.created: list[tuple[int, str | None]] = []
        given = TopicSettings.model_validate(settings)
        self.maker = TopicMaker(cast("Any", self), TopicNames(), given, clock=lambda: self.now)

    def facts(self) -> ClusterFacts:
        self.asked += 1
        return ClusterFacts(self.known, 1, 1_048_588)

    def brokers(self) -> range:
        return range(self.running)

    def create_all(self, topics: Sequence[WantedTopic]) -> dict[str, Any]:
        self.created += [(one.replication_factor, one.settings.get("min.insync.replicas")) for one in topics]
        refused = KafkaRefused(f"only {self.running} brokers are registered")
        return {one.name: one.replication_factor <= self.running or refused for one in topics}

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    @property
    def replicas(self) -> int:
        return self.maker.dead_letter_topic("g").replication_factor


def test_brokers_that_are_added_count_within_a_minute() -> None:
    cluster = Growing()
    assert (cluster.replicas, cluster.asked) == (-1, 1)
    cluster.known, cluster.now = 3, 59_999.0
    assert (cluster.replicas, cluster.asked) == (-1, 1)
    cluster.now = 60_000.0
    assert (cluster.replicas, cluster.asked) == (3, 2)


def test_a_broker_that_restarts_costs_a_topic_no_replica() -> None:
    cluster = Growing()
    cluster.known = 3
    assert cluster.replicas == 3
    cluster.known, cluster.now = 2, 60_000.0
    assert cluster.replicas == 3


@pytest.mark.parametrize("together", [False, True])
def test_a_topic_that_kafka_refuses_gets_a_replica_on_each_running_broker(
    caplog: pytest.LogCaptureFixture, together: bool
) -> None:
    cluster, name = Growing(), TopicNames().dead_letter("g")
    cluster.known, cluster.running = 3, 2
    if together:
        assert cluster.maker.make_for_groups([NamedTopic(name, "dlq", "g")], Groups()) == {name: 1}
    else:
        assert cluster.maker.make(cluster.maker.dead_letter_topic("g"))
    assert cluster.created == [(3, "2"), (2, "1")]
    assert f"a broker is away replicas=2 topics={name}; when" in caplog.text
    cluster.known = 2
    assert cluster.replicas == -1, "after a refusal the brokers that were seen before no longer count"


def test_a_number_of_replicas_that_is_set_stays() -> None:
    cluster = Growing(replication_factor=3)
    cluster.running = 2
    with pytest.raises(KafkaRefused, match="only 2 brokers"):
        cluster.maker.make(cluster.maker.dead_letter_topic("g"))
    assert cluster.created == [(3, "2")]


def test_the_refusal_of_all_replicas_is_told_if_fewer_are_refused_too() -> None:
    class Refusing(Growing):
        def create_all(self, topics: Sequence[WantedTopic]) -> dict[str, Any]:
            return {one.name: KafkaRefused(f"no topic with {one.replication_factor} replicas") for one in topics}

    cluster = Refusing()
    cluster.known, cluster.running = 3, 2
    with pytest.raises(KafkaRefused, match="with 3 replicas"):
        cluster.maker.make(cluster.maker.dead_letter_topic("g"))


def test_an_unregistered_group_keeps_no_other_group_from_its_topic() -> None:
    registered = b'{"autoCreateSubscriptionGroup": false}'
    groups = Groups().with_record(b"%SYS%", registered).with_record(b"known", b"{}")
    made: list[str] = []

    class Making(Growing):
        def create_all(self, topics: Sequence[WantedTopic]) -> dict[str, Any]:
            made.extend(one.name for one in topics)
            return dict.fromkeys(made, True)

    named = [NamedTopic(TopicNames().retry(group), "retry", group) for group in ("known", "gone")]
    cluster = Making()
    cluster.known = 3
    outcomes = cluster.maker.make_for_groups(named, groups)
    assert (made, outcomes[named[0].topic]) == ([named[0].topic], 1)
    assert isinstance(outcomes[named[1].topic], SubscriptionGroupNotExist)
    cluster.known, cluster.now = 2, 60_000.0
    assert cluster.replicas == 3, "the cluster has refused nothing"


def test_an_explicit_replication_factor_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert maker(monkeypatch, 3, replication_factor=1).send_back_topic().replication_factor == 1


def test_published_settings_hold_for_all_who_make_topics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    published = b'{"topicSettings": {"maxMessageBytes": 6000000, "replicationFactor": 2}}'
    known = [Groups()]
    make = maker(monkeypatch, retention_days=30, replication_factor=2)
    make._groups = lambda: known[0]
    own = make.retry_topic("g", known[0])
    assert (own.settings["max.message.bytes"], own.settings["retention.ms"]) == ("1114124", str(30 * DAY_MS))
    known[0] = Groups().with_record(b"%SYS%", published)
    for topic in (make.retry_topic("g", known[0]), make.delay_topic(1_000), make.dead_letter_topic("g")):
        assert (topic.settings["max.message.bytes"], topic.replication_factor) == ("6000000", 2)
    assert make.retry_topic("g", known[0]).settings["retention.ms"] == str(7 * DAY_MS)
    assert caplog.text.count("settings ignored, because topic") == 1
    assert "topics.retention_days 30" in caplog.text
    assert "replication_factor" not in caplog.text, "they are the same"


def plan_with(
    monkeypatch: pytest.MonkeyPatch, partitions: int, brokers: int = 1, replicas: int = 1, **changed: str
) -> TopicPlan:
    topic = maker(monkeypatch, brokers).delay_topic(1_000)
    settings = dict(topic.settings) | {name.replace("_", "."): value for name, value in changed.items()}
    return plan_topics([topic], {topic.name: partitions}, {topic.name: settings}, {topic.name: replicas})


@pytest.mark.parametrize(
    ("replicas", "in_sync", "found"),
    [
        (1, "1", [("replicas", "1", "3")]),
        (1, "2", [("replicas", "1", "3")]),
        (2, "1", [("replicas", "2", "3")]),
        (3, "1", [("min.insync.replicas", "1", "2")]),
        (3, "2", []),
        (4, "3", []),
    ],
)
def test_missing_replicas_are_shown_before_the_setting_that_needs_them(
    monkeypatch: pytest.MonkeyPatch, replicas: int, in_sync: str, found: list[tuple[str, str, str]]
) -> None:
    plan = plan_with(monkeypatch, 6, 3, replicas, min_insync_replicas=in_sync)
    assert [(one.setting, one.is_now, one.should_be) for one in plan.differences] == found
    for one in plan.differences:
        tool = "kafka-reassign-partitions.sh" if one.setting == "replicas" else "kafka-configs.sh"
        assert f"{tool} --bootstrap-server kafka:9092" in one.remedy("kafka:9092")


def test_what_is_as_it_should_be_or_more_generous_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan_with(monkeypatch, 6).differences == []
    assert plan_with(monkeypatch, 9, retention_ms="-1", max_message_bytes="9999999").differences == []


def test_a_difference_is_shown_with_its_remedy_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with(monkeypatch, 2, message_timestamp_type="CreateTime", retention_ms="2000")
    assert plan.missing == []
    assert [(one.setting, one.breaks) for one in plan.differences] == [
        ("message.timestamp.type", True),
        ("retention.ms", False),
    ]
    assert "--add-config message.timestamp.type=LogAppendTime" in plan.differences[0].remedy("kafka:9092")


@pytest.mark.parametrize("setting", [{"retention_ms": "1999"}, {"retention_bytes": "1000000000"}])
def test_what_may_delete_records_that_wait_breaks_a_guarantee(
    monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any]
) -> None:
    assert [one.breaks for one in plan_with(monkeypatch, 6, **setting).differences] == [True]
    topic = maker(monkeypatch).retry_topic("g", Groups())
    changed = dict(topic.settings) | {name.replace("_", "."): value for name, value in setting.items()}
    plan = plan_topics([topic], {topic.name: 1}, {topic.name: changed}, {})
    assert [one.breaks for one in plan.differences] == [False]


def test_removed_settings_of_groups_are_kept_as_long_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = maker(monkeypatch).groups_topic()
    assert topic.settings["delete.retention.ms"] == str(7 * DAY_MS)
    kafkas_own = dict(topic.settings) | {"delete.retention.ms": str(DAY_MS)}
    [difference] = plan_topics([topic], {topic.name: 1}, {topic.name: kafkas_own}, {}).differences
    assert (difference.setting, difference.breaks) == ("delete.retention.ms", False)


def test_a_delay_topic_with_too_few_partitions_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with(monkeypatch, 4)
    assert plan.differences == []
    assert [(topic.partitions, now) for topic, now in plan.growing] == [(6, 4)]


def test_other_topics_are_not_changed_because_their_keys_would_move(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = maker(monkeypatch).send_back_topic()
    plan = plan_topics([topic], {topic.name: 2}, {topic.name: topic.settings}, {})
    assert plan.growing == []
    (difference,) = plan.differences
    assert "--partitions 4" in difference.remedy("kafka:9092")


@pytest.mark.rule("BR-06", "BR-07", "NM-08")
def test_a_retry_topic_has_as_many_partitions_as_the_group_has_retry_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups().with_record(b"g", b'{"retryQueueNums": 4}').with_record(b"none", b'{"retryQueueNums": 0}')
    make = maker(monkeypatch)
    assert make.retry_topic("g", groups).partitions == 4
    assert make.retry_topic("none", groups).partitions == 1
    assert make.dead_letter_topic("g").partitions == 1
