"""docs/disaster-recovery.md: the topics are copied to a second Kafka, and the work goes on there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.consumers import ConsumeConcurrentlyStatus, Message
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, scheduler, settings_for
from tests.support.brokers.kafka import local_kafka
from tests.support.brokers.kafka_tools import run_kafka_tool
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(1)]

LOG_APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
LEFT_OUT: Final = ("POSITIONS", "WITHDRAWN")
"""Topics that the page leaves out."""
FAILS_ONCE: Final = (b"retried", b"waiting")


def decide(messages: Sequence[Message], context: Any) -> ConsumeConcurrentlyStatus:
    message = messages[0]
    if message.body == b"dead":
        context.delay_level_when_next_consume = -1
        return LATER
    return LATER if message.body in FAILS_ONCE and not message.reconsume_times else SUCCESS


@contextmanager
def consuming(one: Installation, group: str, topic: str) -> Iterator[Deliveries]:
    deliveries = Deliveries(decide)
    with one.consumer(group, topic, deliveries):
        yield deliveries


def copy(first: Installation, second: Installation) -> dict[Partition, list[int]]:
    """Copy committed records as MirrorMaker does, with identical names; gives the copied offsets, in order."""
    prefix = first.settings.topic_prefix
    copied: dict[Partition, list[int]] = {}
    for topic, partitions in first.admin.topics().items():
        if not topic.startswith(prefix) or topic.removeprefix(prefix) in LEFT_OUT:
            continue
        second.admin.create(topic, partitions, -1, LOG_APPEND_TIME if topic.isupper() or ".R" in topic else {})
        producer = second.producer()
        for record in first.read(topic):
            producer.produce(
                topic, record.value, record.key, record.partition, headers=cast("Any", list(record.headers))
            )
            copied.setdefault((topic, record.partition), []).append(record.offset)
        assert producer.flush(PATIENCE) == 0
        producer.close()
    return copied


def commit(one: Installation, group: str, offsets: dict[Partition, int], metadata: str = "") -> None:
    client = Consumer({"bootstrap.servers": one.settings.bootstrap_servers, "group.id": group})
    places = [TopicPartition(topic, number, offset, metadata) for (topic, number), offset in offsets.items()]

    def committed() -> bool:
        try:
            client.commit(offsets=cast("Any", places), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                raise
            return False
        return True

    wait_until(committed, "a cluster that has just started has a coordinator for the group")
    client.close()


def translate(first: Installation, second: Installation, group: str, copied: dict[Partition, list[int]]) -> None:
    """Commit for the group what corresponds to its offsets, as MirrorMaker does, without metadata."""
    theirs = first.all_committed(group)
    ours = {where: sum(one < theirs[where] for one in offsets) for where, offsets in copied.items() if where in theirs}
    commit(second, group, ours)


@pytest.fixture(scope="module")
def second_kafka() -> Iterator[str]:
    with local_kafka() as kafka:
        yield kafka.bootstrap_servers


def lived(one: Installation, group: str, topic: str) -> None:
    """Leave a message that was retried, a dead letter, one that waits, and one that was never read."""
    with consuming(one, group, topic) as deliveries:
        with scheduler(one.settings):
            one.produce(topic, b"retried")
            wait_until(lambda: (b"retried", 1) in deliveries.seen, "the retry")
            one.produce(topic, b"dead")
            wait_until(lambda: one.dead_letters(group), "the dead letter")
            wait_until(lambda: one.finished(group, one.settings.names.retry(group)) > 0, "the retry is committed")
        one.produce(topic, b"waiting")
        wait_until(lambda: len(one.waiting(1_000, group)) == 2, "the second send-back")
    one.produce(topic, b"unread")


def two_installations(first_kafka: str, second_kafka: str) -> tuple[Installation, Installation]:
    here = settings_for(first_kafka)
    there = here.model_copy(update={"bootstrap_servers": second_kafka})
    return Installation(here), Installation(there)


@pytest.mark.parametrize("with_offsets", [True, False], ids=["offsets translated", "no offsets"])
def test_the_work_goes_on_in_a_second_cluster(bootstrap_servers: str, second_kafka: str, *, with_offsets: bool) -> None:
    first, second = two_installations(bootstrap_servers, second_kafka)
    group, names = first.name("departures"), first.settings.names
    settings = SubscriptionGroupConfig(group_name=group, retry_max_times=7)
    first.make_topics([settings])
    first.write_groups([settings])
    topic = first.topic("flights")
    lived(first, group, topic)

    second.make_topics([settings])
    copied = copy(first, second)
    if with_offsets:
        for one in (group, f"{names.prefix}scheduler"):
            translate(first, second, one, copied)

    assert read_groups(second.cluster).find(group).retry_max_times == 7
    with scheduler(second.settings), consuming(second, group, topic) as deliveries:
        wait_until(lambda: {(b"waiting", 1), (b"unread", 0)} <= {*deliveries.seen}, "what had not ended")
    retries = [record.value or b"" for record in second.retries(group)]
    if with_offsets:
        assert sorted(deliveries.seen) == [(b"unread", 0), (b"waiting", 1)]
        assert sorted(retries) == [b"retried", b"waiting"]
    else:  # from the start of every topic: nothing is lost, and what had ended comes again
        assert retries.count(b"retried") >= 2
    # The wait begins again when the copy is stored.
    stored, arrived = (
        sorted(record.timestamp for record in records if record.value == b"waiting")
        for records in (second.waiting(1_000, group), second.retries(group))
    )
    assert arrived
    # Read from the start it fails once more, and that copy may still wait.
    assert all(at >= since + 1_000 for since, at in zip(stored, arrived, strict=False))
    dead = second.dead_letters(group)[0]
    assert (dead.value, dead["ORIGIN_MESSAGE_ID"]) == (b"dead", f"{topic}/0/1")


def test_resetting_to_the_current_offset_removes_the_metadata(second_kafka: str) -> None:
    """Metadata counts from an offset of the first cluster; on a translated offset it would skip other records."""
    one = Installation(settings_for(second_kafka))
    topic, group = one.topic("flights"), one.name("departures")
    one.produce(topic, *(b"%d" % number for number in range(9)))
    commit(one, group, {(topic, 0): 4}, "done1:Ag==")
    kept: Callable[[], Any] = lambda: one.kept(group, topic).done  # noqa: E731
    assert kept() == {5}
    options = ("--all-topics", "--reset-offsets", "--to-current", "--execute", "--timeout", "60000")
    server = ("--bootstrap-server", second_kafka, "--group", group)
    run_kafka_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *server, *options)
    assert (one.committed(group, topic), kept()) == (4, frozenset())
