"""`exactly_once=True` on a real Kafka: send-back and offset together, or neither; fenced by the group."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.kafka.admin import Commit, KafkaAdmin
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.clients import close_producer, make_producer, produce_patiently
from reconsume.bridge.librdkafka.transactional_calls import commit
from reconsume.bridge.writing import transactions
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed, OutcomeUnknown
from reconsume.consumers import Consumer, polled_from, reconsume_times
from reconsume.delay_levels.errors import KafkaNotReachable, PartitionLost, SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import LEVELS, Installation, installation, scheduler, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]

MANUAL = {"enable.auto.commit": False}
PROTOCOLS: list[dict[str, Any]] = [
    MANUAL | {"session.timeout.ms": 6_000},
    MANUAL | {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6_000},
    MANUAL | {"group.protocol": "consumer"},
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def exactly_once(here: Installation, group: str, conf: dict[str, Any] | None = None, **more: Any) -> Consumer:
    return drop_in(here, group, conf=conf or MANUAL, exactly_once=True, **more)


@pytest.mark.parametrize("conf", PROTOCOLS)
def test_a_send_back_commits_its_offset(here: Installation, conf: dict[str, Any]) -> None:
    name = f"eo-{'-'.join(map(str, conf.values()))}"
    group, topic = here.name(name), here.topic(name)
    here.produce(topic, b"a", b"b", b"c", b"d")
    with exactly_once(here, group, conf) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        messages = reading.until(4)
        consumer.send_message_back(messages[0])
        assert here.committed(group, topic) == 1
        consumer.send_message_back(messages[1:], ack_index=1)
        assert here.committed(group, topic) == 4
        again = reading.until(2)
        assert [(one.value(), reconsume_times(one)) for one in again] == [(b"a", 1), (b"d", 1)]
        consumer.send_message_back(again[0])
        assert here.committed(group, consumer.retry_topic) == polled_from(again[0]).offset + 1
        assert reading.until(1)[0].value() == b"a"
        consumer.send_message_back(messages, ack_index=3)
    assert len(here.waiting(1_000, group)) == 2
    assert len(here.waiting(2_000, group)) == 1


def test_offsets_that_the_program_stores_do_not_move_the_commit_back(here: Installation) -> None:
    """Librdkafka knows nothing of offsets that a transaction commits."""
    group, topic = here.name("eo-stored"), here.topic("eo-stored")
    here.produce(topic, b"a", b"b", b"c")
    with exactly_once(here, group, MANUAL | {"enable.auto.offset.store": False}) as consumer:
        consumer.subscribe([topic])
        messages = Reading(consumer).until(3)
        consumer.store_offsets(messages[0])
        for failed in messages[1:]:
            consumer.send_message_back(failed)
        consumer.commit(asynchronous=False)
        assert here.committed(group, topic) == 3


def test_retries_that_are_still_kept_are_read_though_the_committed_one_is_deleted(here: Installation) -> None:
    """The default `latest`: a seek back to the committed offset would lead to the end."""
    group, topic = here.name("expired"), here.topic("expired")
    conf = MANUAL | {"auto.offset.reset": "latest"}
    with exactly_once(here, group, conf) as consumer:
        retry = consumer.retry_topic
    here.produce(retry, *(b"%d" % number for number in range(6)))
    with KafkaConsumer(here.settings.client_settings() | MANUAL | {"group.id": group}) as offsets:
        offsets.commit(offsets=[TopicPartition(retry, 0, 1)], asynchronous=False)
    client = AdminClient(here.settings.client_settings())
    for deletion in client.delete_records([TopicPartition(retry, 0, 3)]).values():
        deletion.result(PATIENCE)
    with exactly_once(here, group, conf) as consumer:
        consumer.subscribe([topic])
        assert [one.value() for one in Reading(consumer).until(3)] == [b"3", b"4", b"5"]


@pytest.mark.parametrize("conf", PROTOCOLS)
def test_a_member_whose_partition_is_gone_sends_nothing(here: Installation, conf: dict[str, Any]) -> None:
    name = f"lost-{'-'.join(map(str, conf.values()))}"
    group, topic = here.name(name), here.topic(name, 4)
    for number in range(40):
        here.produce(topic, b"0", key=b"%d" % number)
    with exactly_once(here, group, conf) as first, exactly_once(here, group, conf) as second:
        first.subscribe([topic])
        held = {message.partition(): message for message in Reading(first).until(40)}
        assert len(held) == 4
        second.subscribe([topic])

        def shared() -> bool:
            first.poll(0.05)
            second.poll(0.05)
            return any(one.topic == topic for one in second.assignment())

        wait_until(shared, "the second member has a partition")
        gone = {one.partition for one in second.assignment() if one.topic == topic}
        for partition, message in held.items():
            if partition in gone:
                with pytest.raises(PartitionLost, match="nothing was sent"):
                    first.send_message_back(message)
    assert here.waiting(1_000, group) == []


def test_a_member_that_was_put_out_of_the_group_is_fenced_by_the_brokers(here: Installation) -> None:
    group, topic = here.name("zombie"), here.topic("zombie")
    here.produce(topic, b"one")
    with (
        exactly_once(here, group) as consumer,
        KafkaConsumer(
            here.settings.client_settings()
            | MANUAL
            | {"group.id": group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 500}
        ) as thief,
    ):
        consumer.subscribe([topic])
        message = Reading(consumer).until(1)[0]
        stale = consumer.consumer_group_metadata()
        # The metadata of the moment before a rebalance, as a hanging process would have it.
        consumer.unsubscribe()
        thief.subscribe([topic])

        def stolen() -> bool:
            consumer.poll(0)
            return thief.poll(0.1) is not None

        wait_until(stolen, "another member has the partition")
        writer = writer_for(here, group)
        with pytest.raises(PartitionLost, match="the group has rebalanced"):
            writer.send_back([failed(group, topic)], {(topic, 0): Commit(1, "")}, stale)
        with pytest.raises(PartitionLost):
            consumer.send_message_back(message)
        writer.close()
    assert here.waiting(1_000, group) == []
    assert here.committed(group, topic) is None


@pytest.mark.parametrize("conf", PROTOCOLS[1:])
def test_a_consumer_that_is_no_member_is_not_let_through_unfenced(here: Installation, conf: dict[str, Any]) -> None:
    name = f"no-member-{'-'.join(map(str, conf.values()))}"
    group, topic = here.name(name), here.topic(name)
    here.produce(topic, b"one")
    with exactly_once(here, group, conf) as member, exactly_once(here, group, conf) as other:
        member.subscribe([topic])
        Reading(member).until(1)
        writer = writer_for(here, group)
        # What a consumer has before it has joined, and from the moment it has left: the brokers let it pass.
        with pytest.raises(PartitionLost, match="no longer a member"):
            writer.send_back([failed(group, topic)], {(topic, 0): Commit(1, "")}, other.consumer_group_metadata())
        writer.close()
    assert here.waiting(1_000, group) == []
    assert here.committed(group, topic) is None


def test_a_slow_poll_loop_that_was_put_out_sends_nothing(here: Installation) -> None:
    group, topic = here.name("slow"), here.topic("slow")
    here.produce(topic, b"one")
    with exactly_once(here, group, PROTOCOLS[1] | {"max.poll.interval.ms": 6_000}) as consumer:
        consumer.subscribe([topic])
        message = Reading(consumer).until(1)[0]
        wait_until(lambda: here.members(group) == 0, "max.poll.interval.ms is over, and it was put out")
        with pytest.raises(PartitionLost):
            consumer.send_message_back(message)
    assert here.waiting(1_000, group) == []
    assert here.committed(group, topic) is None


def writer_for(here: Installation, group: str) -> ExactlyOnceWriter:
    groups = Groups(SystemConfig(message_delay_level=LEVELS))
    settings = here.settings
    return ExactlyOnceWriter(settings.client_settings(), settings.names, lambda: groups, group, f"{group}-writer")


def failed(group: str, topic: str, value: bytes = b"one") -> Failed:
    return Failed(SendBackRequest(group, [], Stored.first_copy(Position(topic, 0, 0), 0)), b"key", value)


def sent_back(
    writer: ExactlyOnceWriter, messages: list[Failed], offsets: dict[tuple[str, int], Commit], consumer: Consumer
) -> None:
    """Send back as consumers do: brokers that stand still end a transaction, whose outcome is then looked up."""
    while True:
        try:
            return writer.send_back(messages, offsets, consumer.consumer_group_metadata())
        except OutcomeUnknown as unknown:
            if writer.was_committed(unknown.offsets):
                return None


@pytest.mark.rule("SB-04", "SB-05")
def test_what_is_refused_goes_through_the_inbox_in_a_transaction_too(here: Installation) -> None:
    group, topic = here.name("inbox"), here.topic("inbox")
    here.produce(topic, b"one")
    # This process alone has the level, and somebody deletes its topic.
    with exactly_once(here, group, delay_levels="1s 1s 77s") as consumer:
        consumer.subscribe([topic])
        here.delete(here.settings.names.delay(77_000))
        reading = Reading(consumer)
        consumer.send_message_back(reading.until(1)[0])
        assert here.committed(group, topic) == 1
        assert reconsume_times(reading.until(1)[0]) == 1
    assert [record.value for record in here.waiting(1_000, group)] == [b"one"]


@pytest.mark.parametrize("soon", [False, True], ids=["told by the commit", "told while it produces"])
def test_what_is_refused_both_ways_is_not_committed(
    here: Installation, monkeypatch: pytest.MonkeyPatch, *, soon: bool
) -> None:
    """However soon the brokers' answer comes: a call that is made meanwhile only hears that the transaction failed."""
    group, topic = here.name(f"refused-{soon}"), here.topic(f"refused-{soon}")
    if soon:

        def and_wait(producer: Producer, *args: Any, **more: Any) -> None:
            produce_patiently(producer, *args, **more)
            producer.flush(PATIENCE)

        monkeypatch.setattr(transactions, "produce_patiently", and_wait)
    here.produce(topic, b"one")
    writer = writer_for(here, group)
    with exactly_once(here, group) as consumer:
        consumer.subscribe([topic])
        Reading(consumer).until(1)
        too_large = failed(group, topic, b"x" * 3_000_000)
        where = {(topic, 0): Commit(1, "kept beside it")}
        with pytest.raises(SendBackFailed, match=r"MSG_SIZE_TOO_LARGE.*; then .*MSG_SIZE_TOO_LARGE"):
            sent_back(writer, [too_large, failed(group, topic)], where, consumer)
        assert here.committed(group, topic) is None
        sent_back(writer, [failed(group, topic)], where, consumer)
        committed = here.admin.commits(group, [(topic, 0)], stable=True)
        assert committed == {(topic, 0): Commit(1, "kept beside it")}
    writer.close()


def test_a_transaction_without_an_answer_is_looked_up(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    group, topic = here.name("unknown"), here.topic("unknown", 2)
    for partition in (0, 1):
        here.produce(topic, b"one", b"two", partition=partition)
    # Its calls raise at once; what is left of the deadline of a commit that hangs is not waited for.
    monkeypatch.setattr(transactions, "_AFTER_ITS_TIMEOUT_MS", -10_000.0)
    writer = writer_for(here, group)

    def no_answer(producer: Producer, seconds: float) -> None:
        commit(producer, seconds)
        raise TimeoutError

    def nothing(_producer: Producer, _seconds: float) -> None:
        raise TimeoutError

    def away(*_args: Any, **_more: Any) -> None:
        raise KafkaNotReachable("no answer")

    def ask(*offsets: int, beside: str = "") -> bool:
        """Of the first partition, and of the second."""
        commits = {(topic, partition): Commit(offset, beside) for partition, offset in enumerate(offsets)}
        with pytest.raises(OutcomeUnknown, match="has not ended") as raised:
            writer.send_back([failed(group, topic)], commits, consumer.consumer_group_metadata())
        assert raised.value.offsets == commits
        return writer.was_committed(commits)

    with exactly_once(here, group) as consumer:
        consumer.subscribe([topic])
        Reading(consumer).until(4)
        monkeypatch.setattr(transactions, "commit", no_answer)
        assert ask(1)
        monkeypatch.setattr(transactions, "commit", nothing)
        # What is done out of order changes the metadata alone.
        assert not ask(1, beside="done ahead")
        assert not ask(2)
        with monkeypatch.context() as nobody_tells:
            nobody_tells.setattr(KafkaAdmin, "commits", away)
            with pytest.raises(KafkaNotReachable):
                ask(2)
        # As if another member had the first partition, and had gone on there.
        with pytest.raises(PartitionLost, match="another member"):
            ask(1, 1)
        monkeypatch.setattr(transactions, "commit", no_answer)
        assert ask(2, 1)
    writer.close()
    assert here.committed(group, topic) == 2
    assert len(here.waiting(1_000, group)) == 2


@pytest.mark.long
def test_under_rebalances_and_a_killed_broker_no_send_back_is_doubled() -> None:
    total, seen, lock = 300, Counter[bytes](), threading.Lock()
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        write_system(here.cluster, SystemConfig(message_delay_level=LEVELS))
        group, topic = here.name("load"), here.topic("load", 4)
        for number in range(total):
            here.produce(topic, b"%d" % number, key=b"%d" % number)
        stop = threading.Event()

        def member(leave: threading.Event) -> None:
            with exactly_once(here, group, MANUAL | {"session.timeout.ms": 6_000}) as consumer:
                consumer.subscribe([topic])
                while not stop.is_set() and not leave.is_set():
                    message = consumer.poll(0.1)
                    if message is None or message.error() is not None:
                        continue
                    try:
                        if reconsume_times(message) == 0:
                            consumer.send_message_back(message)
                        else:
                            consumer.commit(message=message)
                            with lock:
                                seen[message.value() or b""] += 1
                    except PartitionLost:
                        continue

        leaves = [threading.Event() for _ in range(3)]
        members = [threading.Thread(target=member, args=(leave,)) for leave in leaves]
        with scheduler(here.settings):
            members[0].start()
            wait_until(lambda: len(here.waiting(1_000, group)) > 20, "the first member works")
            members[1].start()
            wait_until(lambda: len(here.waiting(1_000, group)) > 60, "the second too")
            kafka.kill()
            kafka.start()
            members[2].start()
            leaves[0].set()
            try:
                wait_until(lambda: len(seen) == total, "all have come again")
            finally:
                stop.set()
                for one in members:
                    one.join(PATIENCE)
        sent_back = Counter(record["ORIGIN_MESSAGE_ID"] for record in here.waiting(1_000, group))
    assert len(sent_back) == total
    assert set(sent_back.values()) == {1}


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("conf", PROTOCOLS[1:], ids=["cooperative", "consumer"])
def test_it_begins_at_the_committed_offset_though_a_transaction_holds_it_and_the_assignment_changes(
    here: Installation, conf: dict[str, Any], start: str
) -> None:
    """Answered UNSTABLE_OFFSET_COMMIT, librdkafka 2.16 asks no more then, and begins at `start`."""
    name = f"held-{start}-{len(conf)}-{conf.get('group.protocol', 'classic')}"
    group, topic, other = here.name(name), here.topic(name), here.topic(f"{name}-other")
    here.produce(topic, b"0", b"1", b"2", b"3")
    here.produce(other, b"other")
    with KafkaConsumer(here.settings.client_settings() | {"group.id": group}) as before:
        before.commit(offsets=[TopicPartition(topic, 0, 2), TopicPartition(other, 0, 0)], asynchronous=False)
        dead = make_producer(transactional_settings(here.settings.client_settings(), f"{group}-dead", 60_000))
        dead.init_transactions()
        dead.begin_transaction()
        dead.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], before.consumer_group_metadata())
    with exactly_once(here, group, conf | {"auto.offset.reset": start}) as consumer:
        assigned: set[str] = set()
        reading = Reading(consumer)

        def is_assigned(one: str) -> bool:
            reading.step()
            return one in assigned

        def note(_: object, found: list[TopicPartition]) -> None:
            assigned.update(one.topic for one in found)

        consumer.subscribe([topic], on_assign=note)
        wait_until(lambda: is_assigned(topic), "the partition is assigned")
        consumer.subscribe([topic, other], on_assign=note)
        wait_until(lambda: is_assigned(other), "another one is, too")
        dead.abort_transaction()
        here.produce(topic, b"4")
        read = [one.value() for one in reading.until(4) if one.value() != b"other"]
    close_producer(dead)
    assert read == [b"2", b"3", b"4"]


def test_what_was_fenced_and_is_still_ours_comes_again(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    group, topic = here.name("fenced"), here.topic("fenced")
    here.produce(topic, b"one", b"two")

    def fenced(*_args: Any) -> None:
        raise PartitionLost("as if the group had rebalanced")

    with exactly_once(here, group) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        one, two = reading.until(2)
        with monkeypatch.context() as patch:
            patch.setattr(ExactlyOnceWriter, "send_back", fenced)
            with pytest.raises(PartitionLost):
                consumer.send_message_back(one)
        again = reading.until(2)
        assert [(message.value(), message.offset()) for message in again] == [(b"one", 0), (b"two", 1)]
        consumer.send_message_back(again[0])
        consumer.commit(message=again[1], asynchronous=False)
        # Somebody has gone past it: it does not come again.
        with monkeypatch.context() as patch:
            patch.setattr(ExactlyOnceWriter, "send_back", fenced)
            with pytest.raises(PartitionLost):
                consumer.send_message_back(two)
        here.produce(topic, b"three")
        assert {message.value() for message in reading.until(2)} == {b"one", b"three"}
