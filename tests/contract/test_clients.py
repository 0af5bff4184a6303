"""The clients themselves: what reconsume and its users rely on in confluent-kafka's consumers and producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from reconsume.bridge.kafka.client_settings import consumer_settings, producer_settings, transactional_settings
from reconsume.bridge.kafka.clients import make_consumer, make_producer
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST
from tests.contract.worlds import World

SECONDS = 20.0


def consumer_of(world: World, group: str, **settings: Any) -> Consumer:
    conf = {name.replace("_", "."): value for name, value in settings.items()}
    return make_consumer(consumer_settings(world.client_settings, "contract") | {"group.id": group} | conf)


def producer_of(world: World) -> Producer:
    return make_producer(producer_settings(world.client_settings, "contract"))


def transactional(world: World, name: str) -> Producer:
    producer = make_producer(transactional_settings(world.client_settings, world.name(name), 10_000))
    producer.init_transactions(SECONDS)
    return producer


def events(world: World, consumer: Consumer, until: Callable[[list[Message]], object]) -> list[Message]:
    """Messages and errors until they are as wanted."""
    found: list[Message] = []

    def enough() -> bool:
        if (one := consumer.poll(0.1)) is not None:
            found.append(one)
        return bool(until(found))

    world.until(enough, "what is wanted of the consumer")
    return found


def values(found: list[Message]) -> list[bytes | None]:
    return [one.value() for one in found if one.error() is None]


def codes(found: list[Message]) -> list[int]:
    return [error.code() for one in found if (error := one.error()) is not None]


def test_a_transaction_is_seen_whole_or_not_at_all(world: World) -> None:
    topic, group = world.topic("transaction", 2), world.name("transaction")
    producer = transactional(world, "transaction")
    reader = consumer_of(world, group)
    reader.subscribe([topic])
    world.until(lambda: [reader.poll(0.1), len(reader.assignment()) == 2][1], "both partitions")
    position = [TopicPartition(topic, 0, 7, "beside it")]
    producer.begin_transaction()
    producer.produce(topic, b"undone", partition=0)
    producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), SECONDS)
    producer.abort_transaction(SECONDS)
    (nothing,) = reader.committed([TopicPartition(topic, 0)], SECONDS)
    assert (nothing.offset, nothing.metadata or "") == (OFFSET_INVALID, "")
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.produce(topic, b"b", partition=1)
    producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    assert sorted(map(repr, values(events(world, reader, lambda found: len(found) == 2)))) == ["b'a'", "b'b'"]
    (kept,) = reader.committed([TopicPartition(topic, 0)], SECONDS)
    assert (kept.offset, kept.metadata) == (7, "beside it")
    reader.close()


def test_who_takes_over_a_transactional_id_fences_the_one_before(world: World) -> None:
    topic = world.topic("fenced")
    old = transactional(world, "fenced")
    old.begin_transaction()
    old.produce(topic, b"old")
    transactional(world, "fenced")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(SECONDS)
    assert refused.value.args[0].fatal()
    assert world.read(topic) == []


def test_a_transaction_of_a_member_that_is_none_any_more_is_refused(world: World) -> None:
    topic, group = world.topic("generation", 2), world.name("generation")
    producer = transactional(world, "generation")
    one = consumer_of(world, group, heartbeat_interval_ms=500)
    one.subscribe([topic])
    world.until(lambda: [one.poll(0.1), len(one.assignment()) == 2][1], "both partitions")
    before = one.consumer_group_metadata()
    other = consumer_of(world, group, heartbeat_interval_ms=500)
    other.subscribe([topic])
    world.until(lambda: [one.poll(0.05), other.poll(0.05), len(other.assignment()) == 1][2], "one partition")

    def commit_for_the_past() -> None:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], before, SECONDS)
        producer.commit_transaction(SECONDS)

    producer.begin_transaction()
    producer.produce(topic, b"late")
    with pytest.raises(KafkaException) as refused:
        commit_for_the_past()
    assert refused.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
    producer.abort_transaction(SECONDS)
    assert world.read(topic) == []
    one.close()
    other.close()


def test_where_a_consumer_without_an_offset_starts(world: World) -> None:
    topic = world.topic("starts")
    world.produce(topic, b"a", b"b")
    eof = {"enable_partition_eof": True}
    earliest = consumer_of(world, world.name("starts"), auto_offset_reset="earliest", **eof)
    earliest.assign([TopicPartition(topic, 0)])
    found = events(world, earliest, codes)
    assert (values(found), codes(found)) == ([b"a", b"b"], [KafkaError._PARTITION_EOF])
    assert found[-1].offset() == 2
    earliest.assign([TopicPartition(topic, 0, OFFSET_END)])
    assert values(events(world, earliest, codes)) == []
    earliest.assign([TopicPartition(topic, 0, 1)])
    assert values(events(world, earliest, codes)) == [b"b"]
    earliest.close()
    stops = consumer_of(world, world.name("starts"), auto_offset_reset="error", **eof)
    stops.assign([TopicPartition(topic, 0)])
    (error,) = events(world, stops, codes)
    assert (codes([error]), error.topic(), error.partition()) == ([KafkaError._AUTO_OFFSET_RESET], topic, 0)
    stops.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert values(events(world, stops, codes)) == [b"a", b"b"]
    stops.close()


def test_pause_resume_seek_and_position(world: World) -> None:
    topic = world.topic("pauses", 2)
    producer = producer_of(world)
    for partition in (0, 1):
        for number in (0, 1):
            producer.produce(topic, b"%d-%d" % (partition, number), partition=partition)
    assert producer.flush(SECONDS) == 0
    assert len(producer) == 0
    reader = consumer_of(world, world.name("pauses"), enable_partition_eof=True)
    both = [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)]
    reader.assign(both)
    reader.pause(both[:1])
    assert values(events(world, reader, codes)) == [b"1-0", b"1-1"]
    reader.resume(both[:1])
    assert values(events(world, reader, codes)) == [b"0-0", b"0-1"]
    assert [one.offset for one in reader.position(both)] == [2, 2]
    reader.seek(TopicPartition(topic, 1, 1))
    assert [one.offset for one in reader.position(both)] == [2, OFFSET_INVALID]
    assert values(events(world, reader, codes)) == [b"1-1"]
    assert reader.get_watermark_offsets(both[0], SECONDS) == (0, 2)
    reader.incremental_unassign(both[:1])
    assert [(one.topic, one.partition) for one in reader.assignment()] == [(topic, 1)]
    with pytest.raises(KafkaException):
        reader.seek(TopicPartition(topic, 0, 0))
    reader.close()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        reader.poll(0)


def test_commits_and_their_answers(world: World) -> None:
    topic, group = world.topic("commits"), world.name("commits")
    world.produce(topic, b"a", b"b")
    answers: list[tuple[KafkaError | None, list[tuple[int, int]]]] = []

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        answers.append((error, [(one.partition, one.offset) for one in partitions]))

    settings = consumer_settings(world.client_settings, "contract") | {"group.id": group, "on_commit": on_commit}
    reader = make_consumer(settings)
    reader.subscribe([topic])
    with pytest.raises(KafkaException) as nothing:
        reader.commit(asynchronous=False)
    assert nothing.value.args[0].code() == KafkaError._NO_OFFSET
    first, _ = events(world, reader, lambda found: len(found) == 2)
    committed = reader.commit(message=first, asynchronous=False)
    assert [(one.partition, one.offset) for one in committed] == [(0, 1)]
    reader.commit(offsets=[TopicPartition(topic, 0, 2, "beside it")], asynchronous=True)
    world.until(lambda: [reader.poll(0.05), (None, [(0, 2)]) in answers][1], "the answer")
    (kept,) = reader.committed([TopicPartition(topic, 0)], SECONDS)
    assert (kept.offset, kept.metadata) == (2, "beside it")
    reader.close()


def test_offsets_are_stored_by_the_consumer_or_by_the_program(world: World) -> None:
    topic = world.topic("stored")
    world.produce(topic, b"a", b"b")
    by_itself = consumer_of(world, world.name("stored-by-itself"), enable_auto_offset_store=True)
    by_itself.subscribe([topic])
    first, _ = events(world, by_itself, lambda found: len(found) == 2)
    with pytest.raises(KafkaException) as refused:
        by_itself.store_offsets(first)
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    by_itself.close()
    program = consumer_of(world, world.name("stored-by-program"))
    program.subscribe([topic])
    first, _ = events(world, program, lambda found: len(found) == 2)

    def committed() -> list[int] | int:
        try:
            return [one.offset for one in program.commit(asynchronous=False)]
        except KafkaException as error:
            return int(error.args[0].code())

    assert committed() == KafkaError._NO_OFFSET, "what was only polled is not committed"
    program.store_offsets(first)
    assert committed() == [1]
    assert committed() == KafkaError._NO_OFFSET, "nothing is new"
    program.close()


def test_delivery_reports_and_what_is_written(world: World) -> None:
    topic = world.topic("reports", 5)
    producer = producer_of(world)
    reports: list[tuple[KafkaError | None, int | None, int | None, bytes | None]] = []

    def report(error: KafkaError | None, message: Message) -> None:
        reports.append((error, message.partition(), message.offset(), message.value()))

    producer.produce(topic, "text", "key", headers={"a": "text", "b": b"\xff", "c": None}, on_delivery=report)
    producer.produce(topic, None, b"key", headers=[("a", b"1"), ("a", b"2")], callback=report)
    assert producer.flush(SECONDS) == 0
    assert [(error, offset, value) for error, _, offset, value in reports] == [(None, 0, b"text"), (None, 1, None)]
    first, second = world.read(topic)
    assert (first.key, first.value, first.headers) == (b"key", b"text", [("a", b"text"), ("b", b"\xff"), ("c", None)])
    assert (second.key, second.value, second.headers) == (b"key", None, [("a", b"1"), ("a", b"2")])


def test_keys_go_to_the_same_partitions(world: World) -> None:
    topic = world.topic("keys", 7)
    producer = producer_of(world)
    chosen: dict[bytes | None, int | None] = {}
    for number in range(50):
        key = b"key-%d" % number
        producer.produce(topic, b"v", key, on_delivery=lambda _, one: chosen.update({one.key(): one.partition()}))
    assert producer.flush(SECONDS) == 0
    assert [chosen[b"key-%d" % number] for number in range(8)] == [0, 5, 4, 4, 5, 4, 5, 3]
    assert len(set(chosen.values())) == 7


def test_offsets_for_times(world: World) -> None:
    topic = world.topic("times")
    world.produce(topic, b"a")
    end = world.read(topic)[0].timestamp
    world.until(lambda: world.now().timestamp() * 1000 > end + 100, "a later moment")
    world.produce(topic, b"b")
    reader = consumer_of(world, world.name("times"))
    asked = [TopicPartition(topic, 0, moment) for moment in (end, end + 1, end + 3_600_000)]
    assert [reader.offsets_for_times([one], SECONDS)[0].offset for one in asked] == [0, 1, OFFSET_END]
    special = [TopicPartition(topic, 0, moment) for moment in (EARLIEST, LATEST)]
    assert [reader.offsets_for_times([one], SECONDS)[0].offset for one in special] == [0, 2]
    reader.close()
