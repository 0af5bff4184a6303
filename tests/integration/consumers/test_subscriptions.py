"""Several topics, patterns, namespaces and first offsets, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    PushConsumer,
)
from reconsume.consumers.subscriptions import repeated_look
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

each_protocol = pytest.mark.parametrize(
    "protocol", [{}, {"group.protocol": "consumer"}], ids=["classic", "group-protocol-consumer"]
)


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(autouse=True)
def _looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """New topics are found within a second."""
    monkeypatch.setattr(repeated_look, "EVERY_SECONDS", 1.0)


def consumer_of(here: Installation, group: str, listener: Any, **more: Any) -> PushConsumer:
    consumer = PushConsumer(
        group,
        bootstrap_servers=here.settings.bootstrap_servers,
        topic_prefix=here.settings.topic_prefix,
        **{"conf": {"auto.offset.reset": "earliest"}} | more,
    )
    return consumer.register_message_listener(listener)


def succeeds(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return SUCCESS


def fails_once(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return LATER if messages[0].reconsume_times == 0 else SUCCESS


@pytest.mark.rule("TF-03", "TF-04", "T-11")
@each_protocol
def test_a_pattern_has_tags_finds_new_topics_and_never_one_of_ours(
    here: Installation, protocol: dict[str, Any]
) -> None:
    name = f"pattern{len(protocol)}"
    group = here.name(name)
    flights, trains = here.topic(f"{name}-flights"), here.topic(f"{name}-trains")
    for topic in (flights, trains):
        for tag in (b"late", b"cancelled"):
            here.produce(topic, tag, headers=[("TAGS", tag)])
    listener = Deliveries(fails_once)
    consumer = consumer_of(here, group, listener, conf={"auto.offset.reset": "earliest"} | protocol)
    # Of the whole cluster what has our prefix, so the retry, delay and dead-letter topics too.
    consumer.subscribe("^" + here.settings.topic_prefix + ".*", "late").subscribe(trains, "cancelled")
    seen: set[tuple[str, bytes | None, int]] = set()

    def has_seen(topic: str, tag: bytes) -> bool:
        seen.update((one.topic, one.body, one.reconsume_times) for one in listener.messages)
        return {(topic, tag, 0), (topic, tag, 1)} <= seen

    with consumer:
        wait_until(lambda: has_seen(flights, b"late") and has_seen(trains, b"cancelled"), "both topics, twice")
        planes = here.topic(f"{name}-planes")
        here.produce(planes, b"late", headers=[("TAGS", b"late")])
        wait_until(lambda: has_seen(planes, b"late"), "the topic that came later")
        retry = here.settings.names.retry(group)
        wait_until(lambda: (retry, 0) in here.all_committed(group), "the retry is committed")
        committed = here.all_committed(group)
        assert {topic for topic, _ in committed if here.settings.names.is_ours(topic)} == {retry}
    mine = {one for one in seen if f"{name}-" in one[0]}
    assert mine == {
        (topic, tag, times)
        for topic, tag in ((flights, b"late"), (trains, b"cancelled"), (planes, b"late"))
        for times in (0, 1)
    }
    assert len([one for one in listener.messages if f"{name}-" in one.topic]) == 6, "none twice over the rebalances"


@each_protocol
def test_two_members_share_a_topic_that_comes_later_and_go_on_when_one_is_deleted(
    here: Installation, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "reconsume.consumers.subscriptions.pattern_consumer")
    name = f"members{len(protocol)}"
    group, first = here.name(name), here.topic(f"{name}-first", 2)
    conf = {"auto.offset.reset": "earliest"} | protocol
    listeners = [Deliveries(succeeds), Deliveries(succeeds)]
    one, two = (
        consumer_of(here, group, listener, conf=conf).subscribe(f"^{here.name(name)}-.*") for listener in listeners
    )

    admin = AdminClient(here.settings.client_settings())  # its answers never come once it is forgotten
    bodies: set[bytes] = set()

    def produce(topic: str) -> None:
        with Producer(here.settings.client_settings()) as producer:
            for partition in (0, 1):
                body = f"{topic} {partition} {len(bodies)}".encode()
                bodies.add(body)
                producer.produce(topic, body, partition=partition)

    def all_are_read() -> bool:
        return {message.body for listener in listeners for message in listener.messages} >= bodies

    with one, two:
        produce(first)
        wait_until(all_are_read, "the first topic is read")
        second = here.topic(f"{name}-second", 2)
        produce(second)
        wait_until(all_are_read, "the second topic is read")
        admin.delete_topics([first])[first].result(PATIENCE)
        wait_until(lambda: caplog.text.count(f"unsubscribed from {first}") == 2, "both have noticed")
        produce(second)
        wait_until(all_are_read, "the second topic goes on")


@each_protocol
def test_a_pattern_has_to_match_the_whole_name(here: Installation, protocol: dict[str, Any]) -> None:
    """As brokers and Java clients take it; librdkafka's own classic patterns would match a beginning."""
    name = f"whole{len(protocol)}"
    group, exact, longer = here.name(name), here.topic(name), here.topic(f"{name}-longer")
    here.produce(exact, b"exact")
    here.produce(longer, b"longer")
    listener = Deliveries(succeeds)
    consumer = consumer_of(here, group, listener, conf={"auto.offset.reset": "earliest"} | protocol)
    with consumer.subscribe(f"^{exact}"):
        wait_until(lambda: here.committed(group, exact) == 1, "it is committed")
        assert not any(topic == longer for topic, _ in here.all_committed(group))
    assert listener.seen == [(b"exact", 0)]


@pytest.mark.rule("TN-10", "BR-10")
def test_in_a_namespace_group_and_topics_have_it_and_the_listener_does_not_see_it(here: Installation) -> None:
    name = here.name("flights")
    kafka_topic = f"shop.25{name}"
    for topic in (kafka_topic, name):
        here.admin.create(topic, 1, -1, {})
        here.produce(topic, topic.encode())
    listener = Deliveries(fails_once)
    group = here.name("departures")
    with consumer_of(here, group, listener, namespace="shop", max_reconsume_times=1).subscribe(name):
        wait_until(lambda: len(listener.seen) == 2, "a delivery and a retry")
        wait_until(lambda: here.committed(f"shop%{group}", kafka_topic) == 1, "the group in the namespace commits")
    assert listener.seen == [(kafka_topic.encode(), 0), (kafka_topic.encode(), 1)]
    assert {message.topic for message in listener.messages} == {name}
    assert [str(message.origin) for message in listener.messages] == [f"{kafka_topic}/0/0"] * 2
    assert listener.contexts[1].message_queue.topic == f"%RETRY%shop%{group}"
    [retry] = here.retries(f"shop%{group}")
    assert (retry["RETRY_TOPIC"], retry["REAL_TOPIC"]) == (kafka_topic, f"%RETRY%shop%{group}")


@pytest.mark.rule("TN-10")
def test_a_pattern_is_meant_inside_the_namespace(here: Installation) -> None:
    name = here.name("inside")
    for topic in (f"shop.25{name}-1", f"{name}-2", f"other.25{name}-3"):
        here.admin.create(topic, 1, -1, {})
        here.produce(topic, topic.encode())
    listener = Deliveries(succeeds)
    group = here.name("inside")
    with consumer_of(here, group, listener, namespace="shop").subscribe(f"^{name}-.*"):
        wait_until(lambda: here.committed(f"shop%{group}", f"shop.25{name}-1") == 1, "it is committed")
    assert [message.topic for message in listener.messages] == [f"{name}-1"]


@pytest.mark.rule("TN-06", "TN-07", "TN-08")
@pytest.mark.parametrize("as_text", [True, False])
def test_with_a_timestamp_the_topic_starts_there_and_the_retry_topic_at_its_beginning(
    here: Installation, *, as_text: bool
) -> None:
    name = f"moment-{as_text}"
    group, topic = here.name(name), here.topic(name)
    moment = int(time.time()) - 3_600
    with Producer(here.settings.client_settings()) as producer:
        for body, at in ((b"before", moment - 1), (b"then", moment), (b"after", moment + 1)):
            producer.produce(topic, body, timestamp=at * 1000)
    sent_back = {"REAL_TOPIC": f"%RETRY%{group}", "RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"{topic}/0/0"}
    headers = [(header, text.encode()) for header, text in sent_back.items()]
    here.produce(here.settings.names.send_back, b"retry", headers=headers)
    wait_until(lambda: here.retries(group), "a retry that is older than the group")
    listener = Deliveries(succeeds)
    consumer = consumer_of(
        here,
        group,
        listener,
        conf={},
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        consume_timestamp=time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
        if as_text
        else datetime.fromtimestamp(moment, UTC),
    )
    with consumer.subscribe(topic):
        wait_until(lambda: here.committed(group, topic) == 3, "all is committed")
        wait_until(lambda: (b"retry", 1) in listener.seen, "the old retry")
    assert sorted(listener.seen) == [(b"after", 0), (b"retry", 1), (b"then", 0)]


@each_protocol
def test_a_moment_that_nobody_could_look_up_is_looked_up_again(
    here: Installation, protocol: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"patience{len(protocol)}"
    group, topic = here.name(name), here.topic(name)
    here.produce(topic, b"1")
    asked: list[str] = []

    def third_time_lucky(
        consumer: GroupConsumer, partitions: Collection[Partition], timestamp_ms: int, seconds: float
    ) -> dict[Partition, int | ReconsumeError]:
        if topic in dict(partitions):
            asked.append(topic)
            if len(asked) < 3:
                return dict.fromkeys(partitions, KafkaNotReachable("away"))
        return offsets_at(consumer, partitions, timestamp_ms, seconds)

    offsets_at = GroupConsumer.offsets_at
    monkeypatch.setattr(GroupConsumer, "offsets_at", third_time_lucky)
    listener = Deliveries(succeeds)
    moment = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    with consumer_of(here, group, listener, conf=protocol, consume_from_where=moment).subscribe(topic):
        wait_until(lambda: here.committed(group, topic) == 1, "it is committed")
    assert len(asked) == 3
    assert listener.seen == [(b"1", 0)]


@pytest.mark.rule("TN-06", "TN-08")
def test_where_to_start_is_asked_only_without_a_committed_offset(here: Installation) -> None:
    group, topic = here.name("again"), here.topic("again")
    here.produce(topic, b"1", b"2")
    listener = Deliveries(succeeds)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with consumer_of(here, group, listener, conf={}, consume_from_where=first).subscribe(topic):
        wait_until(lambda: here.committed(group, topic) == 2, "all is committed")
    here.produce(topic, b"3")
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    with consumer_of(here, group, listener, conf={}, consume_from_where=last).subscribe(topic):
        wait_until(lambda: here.committed(group, topic) == 3, "it went on")
    assert sorted(listener.seen) == [(b"1", 0), (b"2", 0), (b"3", 0)]
