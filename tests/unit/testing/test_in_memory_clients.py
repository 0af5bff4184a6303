"""The clients in memory refuse what confluent-kafka refuses; otherwise a test would pass and its program fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from reconsume.bridge.kafka.clients import make_consumer
from reconsume.consumers import ConsumeFromWhere, PushConsumer
from reconsume.testing import InMemoryKafka

FIRST = [TopicPartition("flights", 0, 0)]
GROUP = {"group.id": "departures", "auto.offset.reset": "earliest"}
STORING = {"enable.auto.offset.store": False, "enable.auto.commit": False}
RECORD = Message(topic="flights", partition=0, offset=0)


@pytest.fixture
def kafka() -> Iterator[InMemoryKafka]:
    with InMemoryKafka() as one:
        one.create_topic("flights")
        yield one


def answer(call: Callable[[Any], object], client: Any) -> str:
    try:
        call(client)
    except KafkaException as error:
        return str(error.args[0].name())
    except (TypeError, ValueError, RuntimeError) as error:
        return str(error)
    return "taken"


AFTER_THE_END_OF_A_PRODUCER: dict[str, tuple[Any, ...]] = {
    "produce": ("flights", b"x"),
    "poll": (0,),
    "flush": (0,),
    "purge": (),
    "close": (),
}


def closed(name: str, arguments: tuple[Any, ...], client: Any) -> None:
    client.close()
    getattr(client, name)(*arguments)


PRODUCED: list[Callable[[Any], object]] = [
    lambda producer: producer.produce("flights", 5),
    lambda producer: producer.produce("flights", {"a": 1}),
    lambda producer: producer.produce("flights", key=1.5),
    lambda producer: producer.produce(b"flights", b"x"),
    lambda producer: producer.produce("flights", b"x", partition="0"),
    lambda producer: producer.produce("flights", b"x", partition=0.0),
    lambda producer: producer.produce("flights", b"x", timestamp="1"),
    lambda producer: producer.produce("flights", "text", "key", 0, timestamp=1),
    lambda producer: producer.begin_transaction(),
    lambda producer: producer.commit_transaction(0.1),
    lambda producer: producer.abort_transaction(0.1),
    lambda producer: producer.init_transactions(0.1),
    *(partial(closed, name, arguments) for name, arguments in AFTER_THE_END_OF_A_PRODUCER.items()),
]


@pytest.mark.parametrize("call", PRODUCED)
def test_a_producer_answers_as_the_real_one(kafka: InMemoryKafka, call: Callable[[Any], object]) -> None:
    real = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    found = answer(call, kafka.producer())
    assert found == answer(call, real)
    if found != "Producer has been closed" and call is not PRODUCED[-1]:
        real.purge()


AFTER_THE_END: dict[str, tuple[Any, ...]] = {
    "assignment": (),
    "unassign": (),
    "unsubscribe": (),
    "pause": ([],),
    "resume": ([],),
    "position": ([],),
    "committed": ([],),
    "seek": (FIRST[0],),
    "incremental_assign": (FIRST,),
    "store_offsets": (None, FIRST),
}


CONSUMED: list[Callable[[Any], object]] = [
    lambda consumer: consumer.store_offsets(offsets=FIRST),
    lambda consumer: consumer.store_offsets(),
    lambda consumer: consumer.store_offsets(RECORD, FIRST),
    lambda consumer: consumer.commit(RECORD, FIRST),
    lambda consumer: consumer.commit("flights"),
    lambda consumer: consumer.commit(offsets=(FIRST[0],)),
    lambda consumer: consumer.commit(),
    lambda consumer: consumer.commit(asynchronous=False),
    lambda consumer: consumer.assign((FIRST[0],)),
    lambda consumer: consumer.pause((FIRST[0],)),
    lambda consumer: consumer.subscribe([]),
    lambda consumer: consumer.consume(-1, 0),
    lambda consumer: consumer.consume(1_000_001, 0),
    lambda consumer: [consumer.assign(FIRST), consumer.store_offsets(offsets=FIRST)],
    lambda consumer: [consumer.assign(FIRST), consumer.commit(asynchronous=False)],
    *(partial(closed, name, arguments) for name, arguments in AFTER_THE_END.items()),
]


@pytest.mark.parametrize("settings", [{}, STORING], ids=["stores by itself", "the program stores"])
@pytest.mark.parametrize("call", CONSUMED)
def test_a_consumer_answers_as_the_real_one(
    kafka: InMemoryKafka, settings: dict[str, Any], call: Callable[[Any], object]
) -> None:
    conf = GROUP | settings
    real = Consumer(conf | {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    in_memory = make_consumer(conf | {"bootstrap.servers": kafka.bootstrap_servers})
    found = answer(call, in_memory)
    # Of a partition that it never had, librdkafka says that it is unknown.
    assert found.replace("_STATE", "_UNKNOWN_PARTITION") == answer(call, real)
    real.close()


def test_a_commit_without_arguments_commits_what_the_program_has_stored(kafka: InMemoryKafka) -> None:
    """Not what it has polled: librdkafka's rd_kafka_topic_partition_list_set_offsets."""
    kafka.produce("flights", b"a")
    answers: list[Any] = []
    conf = GROUP | STORING | {"on_commit": lambda error, partitions: answers.append((error, partitions))}
    with make_consumer(conf | {"bootstrap.servers": kafka.bootstrap_servers}) as consumer:
        consumer.subscribe(["flights"])
        polled = consumer.poll(0)
        with pytest.raises(KafkaException, match="no offset stored"):
            consumer.commit(asynchronous=False)
        assert kafka.committed("departures", "flights") is None
        assert consumer.commit() is None
        consumer.poll(0)
        assert [error.code() for error, _ in answers] == [KafkaError._NO_OFFSET]
        consumer.store_offsets(polled)
        consumer.commit(asynchronous=False)
        assert kafka.committed("departures", "flights") == 1
        with pytest.raises(KafkaException, match="no offset stored"):
            consumer.commit(asynchronous=False)  # nothing new since


def test_no_message_is_read_for_a_consume_of_none(kafka: InMemoryKafka) -> None:
    kafka.produce("flights", b"a")
    with make_consumer(GROUP | {"bootstrap.servers": kafka.bootstrap_servers}) as consumer:
        consumer.subscribe(["flights"])
        assert consumer.consume(0, 0) == []
        assert [one.value() for one in consumer.consume(1, 0)] == [b"a"]


def test_a_producer_reports_at_the_end_of_its_block(kafka: InMemoryKafka) -> None:
    told: list[Any] = []
    with kafka.producer() as producer:
        producer.produce("flights", b"UA1545", on_delivery=lambda error, one: told.append((error, one.offset())))
    assert told == [(None, 0)]


@pytest.mark.parametrize(
    ("minutes_ago", "bodies"), [(None, [b"20", b"now"]), (50, [b"40", b"20", b"now"]), (10, [b"now"])]
)
def test_a_start_by_timestamp_is_by_the_clock_of_the_test(
    kafka: InMemoryKafka, minutes_ago: int | None, bodies: list[bytes]
) -> None:
    for age in (60, 40, 20):
        kafka.produce("flights", str(age))
        kafka.advance(timedelta(minutes=20))
    consumer = PushConsumer(
        "departures",
        bootstrap_servers=kafka.bootstrap_servers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        consume_timestamp=None if minutes_ago is None else kafka.now - timedelta(minutes=minutes_ago),
    )
    consumer.subscribe("flights").register_message_listener(lambda _messages, _context: None).start()
    kafka.produce("flights", "now")
    assert [call.message.body for call in kafka.settle()] == bodies
