"""Reading records again by their places: many at once, far apart, gone, never there, behind transactions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from reconsume.bridge.reading.record_reader import RecordReader, read_again
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, RecordNotFound
from reconsume.delay_levels.wire.send_back_copy import Position
from tests.integration.installation import Installation, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Installation:
    return Installation(settings_for(bootstrap_servers))


@pytest.fixture(scope="module")
def reader(here: Installation) -> Iterator[RecordReader]:
    one = RecordReader(here.settings.client_settings(), "reader-under-test", 60)
    one.start()
    yield one
    one.close()


def read(reader: RecordReader, positions: list[Position]) -> list[Any]:
    """The value of each record, or the class of the error."""
    found: dict[int, Any] = {}

    def take(number: int, result: Message | ReconsumeError) -> None:
        found[number] = type(result) if isinstance(result, ReconsumeError) else result.value()

    for number, position in enumerate(positions):
        reader.read(position, partial(take, number))
    wait_until(lambda: len(found) == len(positions), "all are answered")
    return [found[number] for number in range(len(positions))]


def test_many_places_in_any_order_some_of_them_twice(here: Installation, reader: RecordReader) -> None:
    topic = here.topic("many", 3)
    for partition in range(3):
        here.produce(topic, *(b"%d/%d" % (partition, number) for number in range(2_000)), partition=partition)
    seeded = random.Random(7)
    places = [Position(topic, seeded.randrange(3), seeded.randrange(2_000)) for _ in range(300)]
    places += places[:20]
    assert read(reader, places) == [f"{one.partition}/{one.offset}".encode() for one in places]


def test_records_that_are_not_there_are_told_from_those_that_are(here: Installation, reader: RecordReader) -> None:
    topic = here.topic("gone")
    here.produce(topic, *(b"%d" % number for number in range(10)))
    admin = here.admin._client
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result()
    answers = read(reader, [Position(topic, 0, offset) for offset in (0, 3, 4, 9, 10, 500)])
    assert answers == [RecordNotFound, RecordNotFound, b"4", b"9", RecordNotFound, RecordNotFound]
    here.produce(topic, b"10")
    assert read(reader, [Position(topic, 0, 10)]) == [b"10"], "what was not there may come"


def test_a_record_is_read_alone(here: Installation) -> None:
    topic, settings = here.topic("alone"), here.settings.client_settings()
    here.produce(topic, b"0", b"")
    assert read_again(settings, Position(topic, 0, 1), "g", "alone").value() == b""
    for position in (Position(topic, 0, 2), Position(topic, 0, -1), Position(topic, 1, 0), Position("no-topic", 0, 0)):
        with pytest.raises(RecordNotFound, match=f"there is no record at {position}"):
            read_again(settings, position, "g", "alone")


def test_of_transactions_only_committed_records_are_there_and_their_markers_are_none(
    here: Installation, reader: RecordReader
) -> None:
    topic = here.topic("transactions")
    producer = Producer(here.settings.client_settings() | {"transactional.id": topic})
    producer.init_transactions(30)
    for value, end in ((b"committed", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(PATIENCE)
        end(30)
    here.wait_for_marks(topic)
    here.produce(topic, b"last")
    answers = read(reader, [Position(topic, 0, offset) for offset in range(5)])
    assert answers == [b"committed", RecordNotFound, RecordNotFound, RecordNotFound, b"last"]


def test_a_partition_that_does_not_answer_holds_up_no_other_and_closing_answers_all() -> None:
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        topic = here.topic("late")
        here.produce(topic, b"0")
        patient = RecordReader(here.settings.client_settings(), "patient", 60)
        hasty = RecordReader(here.settings.client_settings(), "hasty", 1)
        patient.start()
        hasty.start()
        assert read(patient, [Position(topic, 0, 0)]) == [b"0"]
        kafka.kill()
        assert read(hasty, [Position(topic, 0, 0)]) == [KafkaNotReachable]
        answers: list[Any] = []
        closing = threading.Thread(target=patient.close)
        patient.read(Position(topic, 0, 0), lambda result: answers.append(type(result)))
        closing.start()
        closing.join(PATIENCE)
        assert answers == [KafkaNotReachable]
        hasty.close()
