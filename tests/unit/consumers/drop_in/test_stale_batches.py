"""Batches of `consume` whose first record is read again, on a Kafka in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter
from reconsume.consumers import Consumer
from reconsume.delay_levels.errors import PartitionLost
from reconsume.testing import InMemoryKafka
from reconsume.testing.consumer import InMemoryConsumer


class Departures(Consumer):
    """A consumer whose first batch lacks a record at its start, or whose first request gets no answer."""

    def __init__(self, kafka: InMemoryKafka, start: str) -> None:
        self.lacks, self.fails = (1, False) if start == "latest" else (0, True)
        conf = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "departures", "auto.offset.reset": start}
        super().__init__(conf | {"enable.auto.commit": False}, exactly_once=True)
        self.commit(offsets=[TopicPartition("flights", 0, 0)], asynchronous=False)
        self.subscribe(["flights"])
        self._read = self._kafka_consume
        self._kafka_consume = self._read_late  # type: ignore[method-assign]

    def _read_late(self, num_messages: int = 1, timeout: float = -1) -> list[KafkaMessage]:
        lacks, self.lacks = self.lacks, 0
        return self._read(num_messages, timeout)[lacks:]

    def committed(self, *given: Any, **more: Any) -> list[TopicPartition]:
        fails, self.fails = self.fails, False
        if fails:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return super().committed(*given, **more)


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_batch_whose_first_record_is_read_again_is_given_once_and_in_order(start: str) -> None:
    with InMemoryKafka() as kafka:
        for _ in range(4):
            kafka.produce("flights", b"UA1545")
        with Departures(kafka, start) as consumer:
            assert consumer.consume(100, 0) == []
            kafka.produce("flights", b"UA1545")
            assert [one.offset() for one in consumer.consume(100, 0)] == [0, 1, 2, 3, 4]
            assert consumer.consume(100, 0) == []


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_commit_without_arguments_leaves_out_records_that_are_read_again(start: str) -> None:
    with InMemoryKafka() as kafka:
        for _ in range(4):
            kafka.produce("flights", b"UA1545")
        with Departures(kafka, start) as consumer:
            assert consumer.consume(100, 0) == []
            with pytest.raises(KafkaException, match="no offset stored"):
                consumer.commit(asynchronous=False)
            assert kafka.committed("departures", "flights") == 0
            assert len(consumer.consume(100, 0)) == 4
            consumer.commit(asynchronous=False)
            assert kafka.committed("departures", "flights") == 4


def test_offsets_that_the_program_stores_are_committed_whatever_is_read_again() -> None:
    with InMemoryKafka() as kafka:
        kafka.produce("flights", b"UA1545")
        own = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "earliest"}
        conf = own | {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "departures"}
        with Consumer(conf, exactly_once=True) as consumer:
            consumer.subscribe(["flights"])
            (message,) = consumer.consume(100, 0)
            consumer.store_offsets(message)
            consumer.seek(TopicPartition("flights", 0, 0))
            consumer.commit(asynchronous=False)
            assert kafka.committed("departures", "flights") == 1


def test_a_refused_seek_leaves_the_first_records_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PartitionLost` seeks back, and a partition that has just returned refuses it."""

    def refused(*_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    with InMemoryKafka() as kafka:
        kafka.create_topic("flights")
        with Departures(kafka, "earliest") as consumer:
            assert consumer.consume(100, 0) == []
            with monkeypatch.context() as patch:
                patch.setattr(InMemoryConsumer, "seek", refused)
                with pytest.raises(KafkaException):
                    consumer.seek(TopicPartition("flights", 0, 0))
            kafka.produce("flights", b"UA1545")
            assert consumer.consume(100, 0) == [], "the request of the committed offset gets no answer"
            assert [one.offset() for one in consumer.consume(100, 0)] == [0]


def test_after_a_rebalance_reading_may_go_on_at_a_number_that_is_also_a_retrys(monkeypatch: pytest.MonkeyPatch) -> None:
    def fenced(*_: Any) -> None:
        raise PartitionLost("as if the group had rebalanced")

    with InMemoryKafka() as kafka:
        kafka.create_topic("flights")
        conf = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "departures", "enable.auto.commit": False}
        with Consumer(conf | {"auto.offset.reset": "earliest"}, exactly_once=True) as consumer:
            consumer.subscribe(["flights"])
            kafka.produce("flights", b"UA1545")
            for _ in range(4):
                consumer.send_message_back(consumer.consume(100, 0)[0])
                kafka.advance(timedelta(hours=2))
            (retry,) = consumer.consume(100, 0)
            assert (retry.topic(), retry.offset()) == ("flights", 3)
            for _ in range(3):
                kafka.produce("flights", b"UA1545")
            (polled,) = consumer.consume(1, 0)
            assert polled.offset() == 1
            passed = [TopicPartition("flights", 0, 3)]
            monkeypatch.setattr(consumer, "committed", lambda *_: passed)
            monkeypatch.setattr(ExactlyOnceWriter, "send_back", fenced)
            with pytest.raises(PartitionLost):
                consumer.send_message_back(polled)
            assert [one.offset() for one in consumer.consume(100, 0)] == [3]
