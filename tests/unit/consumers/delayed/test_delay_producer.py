"""What DelayProducer makes of values that users hand in, on a Kafka in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.kafka.clients import make_producer
from reconsume.bridge.topics.existing_topics import ExistingTopics
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.consumers import DelayProducer
from reconsume.delay_levels.errors import IllegalSetting, TopicNotReady
from reconsume.delay_levels.rules import lane_budgets
from reconsume.delay_levels.rules.lane_budgets import BURST
from reconsume.delay_levels.wire.timer import LONGEST_DELAY_MS
from reconsume.delay_levels.wire.withdrawals import make_uniq_key
from reconsume.testing import InMemoryKafka


@pytest.fixture
def kafka() -> Iterator[InMemoryKafka]:
    with InMemoryKafka(allowed_real_topics=["flights"]) as one:
        one.produce("flights", b"makes the topic")
        yield one


@pytest.fixture
def producer(kafka: InMemoryKafka) -> Iterator[DelayProducer]:
    with DelayProducer(bootstrap_servers=kafka.bootstrap_servers) as one:
        yield one


@pytest.mark.parametrize("make", [iter, tuple, lambda pairs: [list(pair) for pair in pairs]])
def test_headers_in_any_collection_are_written(kafka: InMemoryKafka, producer: DelayProducer, make: Any) -> None:
    pairs = [("trace", b"1"), ("trace", None), ("", b"\xff")]
    sent = producer.send("flights", b"UA1545", headers=make(pairs))
    assert list(kafka.records("flights")[sent.stored.offset].headers)[:3] == pairs


@pytest.mark.parametrize(
    "slip",
    [{"headers": [("\ud800", b"")]}, {"headers": [("a", "\ud800")]}, {"key": "\ud800"}, {"tags": "\ud800"}],
)
def test_a_text_without_utf8_is_refused(producer: DelayProducer, slip: dict[str, Any]) -> None:
    with pytest.raises(IllegalSetting, match="must be text that UTF-8 can hold"):
        producer.send("flights", b"UA1545", **slip)


def test_a_selector_that_gives_no_queue_is_named(producer: DelayProducer) -> None:
    with pytest.raises(IllegalSetting, match=r"the selector returned \('flights', 0\); it must return one of"):
        producer.send("flights", b"UA1545", selector=lambda _queues, _arg: ("flights", 0))  # type: ignore[arg-type,return-value]


def test_a_closed_producer_begins_nothing(kafka: InMemoryKafka) -> None:
    producer = DelayProducer(bootstrap_servers=kafka.bootstrap_servers)
    producer.close()
    before = threading.active_count()
    for delay in (None, timedelta(seconds=1)):
        with pytest.raises(IllegalSetting, match="this producer is closed"):
            producer.send("flights", b"UA1545", delay=delay)
    with pytest.raises(IllegalSetting, match="this producer is closed"):
        producer.cancel(make_uniq_key(2**42, bytes(10)))
    assert threading.active_count() <= before
    producer.close()


def test_a_message_that_is_due_after_its_withdrawal_is_forgotten_is_not_withdrawn(
    kafka: InMemoryKafka, producer: DelayProducer
) -> None:
    days_40 = int(producer._clock()) + LONGEST_DELAY_MS
    with pytest.raises(IllegalSetting, match="is due in 60 days; a withdrawal is remembered for 40 only"):
        producer.cancel(make_uniq_key(days_40 + LONGEST_DELAY_MS // 2, bytes(10)))
    producer.cancel(make_uniq_key(days_40, bytes(10)))
    assert len(kafka.records("reconsume.CANCEL")) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"conf": {"stats_cb": 5}}, "stats_cb must be a function, got int"),
        ({"conf": {"transactional.id": "mine"}}, "transactional.id is set by reconsume itself"),
        ({"conf": {"enable.idempotence": False}}, "enable.idempotence must be on: a record"),
        ({"conf": {"enable.idempotence": "f"}}, "enable.idempotence must be on: a record"),
        ({"conf": {"on_delivery": print}}, "No such configuration property"),
        ({"send_msg_timeout": timedelta.max}, "all tries must take 24 days or less"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_no_thread(given: dict[str, Any], why: str) -> None:
    before = threading.active_count()
    with pytest.raises(IllegalSetting, match=why):
        DelayProducer(**given)
    assert threading.active_count() <= before


class OfOldMetadata:
    """A producer that knows four partitions of each topic until `six` is set; look-ups say six."""

    def __init__(self, real: Any) -> None:
        self.real, self.six, self.partitions = real, threading.Event(), list[int]()

    def produce(self, topic: str, value: Any, key: Any, partition: int, **more: Any) -> None:
        self.partitions.append(partition)
        if partition >= 4 and not self.six.is_set():
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.real.produce(topic, value, key, ANY_PARTITION, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __len__(self) -> int:
        return len(self.real)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch, kafka: InMemoryKafka) -> Iterator[tuple[OfOldMetadata, DelayProducer]]:
    made = list[OfOldMetadata]()

    def make(settings: Any) -> OfOldMetadata:
        made.append(OfOldMetadata(make_producer(settings)))
        return made[-1]

    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", make)
    monkeypatch.setattr(ExistingTopics, "require", lambda _self, _topic: 6)
    timeout = timedelta(seconds=1)
    with DelayProducer(bootstrap_servers=kafka.bootstrap_servers, send_msg_timeout=timeout) as producer:
        yield made[0], producer


def test_a_flood_goes_by_key_while_the_producer_does_not_know_the_bulk_partitions(
    old: tuple[OfOldMetadata, DelayProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_budgets, "PER_SECOND", 0)
    inner, producer = old
    for _ in range(BURST + 1):
        producer.send("flights", b"UA1545", delay_level=3)
    assert inner.partitions[-2] in {4, 5}
    assert inner.partitions[-1] == ANY_PARTITION


def test_a_chosen_partition_is_waited_for_until_the_producer_knows_it(
    old: tuple[OfOldMetadata, DelayProducer],
) -> None:
    inner, producer = old
    threading.Timer(0.3, inner.six.set).start()
    producer.send("flights", b"UA1545", selector=lambda queues, _arg: queues[5])
    assert set(inner.partitions) == {5}


def test_a_chosen_partition_is_not_waited_for_any_longer_than_for_kafka(
    old: tuple[OfOldMetadata, DelayProducer],
) -> None:
    inner, producer = old
    producer._producer._patience_seconds = 0.3
    began = time.monotonic()
    with pytest.raises(TopicNotReady):
        producer.send("flights", b"UA1545", selector=lambda queues, _arg: queues[5])
    assert 0.3 <= time.monotonic() - began < 5
    assert set(inner.partitions) == {5}
