"""Copies of an installation's topics, with a fault in them: each record keeps its time, an hour earlier."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from reconsume.delay_levels.wire.properties import Header
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["Copied", "Copy", "add", "commit_to_end", "in_transaction", "take", "write"]

_EARLIER_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Copied:
    """A record; topics are named without the installation's prefix."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def __getitem__(self, name: str) -> str:
        return next((value.decode() for key, value in reversed(self.headers) if key == name and value), "")

    @property
    def attempt(self) -> tuple[str, str, int]:
        """Group, origin and count, as the headers tell them."""
        group = self["REAL_TOPIC"].removeprefix("%RETRY%").removeprefix("%DLQ%")
        return group, self["ORIGIN_MESSAGE_ID"], int(self["RECONSUME_TIME"])

    def changed(
        self,
        others: Mapping[str, bytes | None] | None = None,
        *,
        topic: str | None = None,
        later_ms: int = 0,
        **headers: bytes | None,
    ) -> Copied:
        """With other headers (None takes one away), elsewhere, or at another time."""
        new = dict(others or {}) | headers
        kept = [(name, new.get(name, value)) for name, value in self.headers]
        kept += [(name, value) for name, value in new.items() if name not in dict(self.headers)]
        return replace(
            self,
            topic=topic or self.topic,
            timestamp=self.timestamp + later_ms,
            headers=tuple((name, value) for name, value in kept if value is not None),
        )


@dataclass
class Copy:
    """All records of an installation's topics, to be changed and written.

    Attributes:
        aborts: topics that get an aborted and an empty transaction between their records.
    """

    partitions: dict[str, int]
    records: list[Copied]
    aborts: list[str] = field(default_factory=list)

    def of(self, kind: str, *, where: Callable[[Copied], bool] = lambda _record: True) -> list[Copied]:
        """The records of `DELAY.`, `RETRY.` or `DLQ.` topics."""
        return [one for one in self.records if one.topic.startswith(kind) and where(one)]

    def swap(self, old: Copied, *new: Copied) -> None:
        """New records in the place of one."""
        place = self.records.index(old)
        self.records[place : place + 1] = new

    def one(self, kind: str, *attempt: object) -> Copied:
        """The record of an attempt."""
        (found,) = self.of(kind, where=lambda one: one.attempt == attempt)
        return found


def take(bootstrap_servers: str, prefix: str, keep: Callable[[Copied], bool]) -> Copy:
    """The committed records of the installation's topics that `keep` wants."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = {
        name: len(topic.partitions)
        for name, topic in admin.list_topics(timeout=30).topics.items()
        if name.startswith(prefix) and not name.endswith(("CANCEL", "POSITIONS"))
    }
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "takes", "enable.partition.eof": True}
        | {"fetch.wait.max.ms": 10}
    )
    places = [
        TopicPartition(name, number, OFFSET_BEGINNING) for name, count in topics.items() for number in range(count)
    ]
    consumer.assign(places)
    records: list[Copied] = []
    ends = set[tuple[str | None, int | None]]()
    while len(ends) < len(places):
        for message in wait_until(lambda: consumer.consume(1_000, 0.2), "more records, or their ends"):
            if (error := message.error()) is None:
                records.append(_copied(message, prefix))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends.add((message.topic(), message.partition()))
    consumer.close()
    # The level table was set long before, so that it is known to have been in force.
    tables = [one.changed(later_ms=-_EARLIER_MS) for one in records if one.topic == "GROUPS"]
    kept = tables + [one for one in records if one.topic != "GROUPS" and keep(one)]
    return Copy({name.removeprefix(prefix): count for name, count in topics.items()}, kept)


def _copied(message: Message, prefix: str) -> Copied:
    headers = cast("list[Header]", message.headers() or [])
    place = (message.topic() or "").removeprefix(prefix), message.partition() or 0
    return Copied(*place, message.timestamp()[1], message.key(), message.value(), tuple(headers))


def write(bootstrap_servers: str, copy: Copy) -> str:
    """Topics under a new prefix with these records; the prefix."""
    prefix = f"c{uuid.uuid4().hex[:8]}."
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    settings = {"message.timestamp.type": "CreateTime"}
    made = admin.create_topics(
        [NewTopic(prefix + name, count, config=settings) for name, count in copy.partitions.items()],
        operation_timeout=30,
    )
    for future in made.values():
        future.result()
    by_topic: dict[str, list[Copied]] = defaultdict(list)
    for record in copy.records:
        by_topic[record.topic].append(record)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for topic, records in by_topic.items():
        half = len(records) // 2
        _produce(producer, prefix, records[:half])
        if topic in copy.aborts:
            assert producer.flush(PATIENCE) == 0
            _transactions(bootstrap_servers, prefix, records[half])
        _produce(producer, prefix, records[half:])
    assert producer.flush(PATIENCE) == 0
    producer.close()
    return prefix


def add(bootstrap_servers: str, prefix: str, records: list[Copied]) -> None:
    """More records for topics that `write` has made, of just now."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    _produce(producer, prefix, _of_now(records))
    assert producer.flush(PATIENCE) == 0
    producer.close()


def commit_to_end(bootstrap_servers: str, prefix: str, copy: Copy) -> None:
    """The schedulers of a copy have handled all."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": prefix + "scheduler"})
    lanes = [name for name in copy.partitions if name.startswith("DELAY.")]
    places = [TopicPartition(prefix + name, number) for name in lanes for number in range(copy.partitions[name])]
    ends = [consumer.get_watermark_offsets(place, 30)[1] for place in places]
    offsets = [TopicPartition(one.topic, one.partition, end) for one, end in zip(places, ends, strict=True)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


@contextmanager
def in_transaction(bootstrap_servers: str, prefix: str, records: list[Copied]) -> Iterator[Producer]:
    """The same in a transaction that is open still; the caller ends it."""
    settings = {"transactional.id": uuid.uuid4().hex, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    _produce(producer, prefix, _of_now(records))
    assert producer.flush(PATIENCE) == 0
    try:
        yield producer
    finally:
        producer.close()


def _of_now(records: list[Copied]) -> list[Copied]:
    now = time.time_ns() // 1_000_000
    later_ms = now - max(one.timestamp for one in records) + _EARLIER_MS
    return [one.changed(later_ms=later_ms) for one in records]


def _stored(error: KafkaError | None, _message: Message) -> None:
    """A broker takes no time that is more than an hour ahead, for one."""
    assert error is None, error


def _produce(producer: Producer, prefix: str, records: list[Copied]) -> None:
    for one in records:
        headers = cast("Any", list(one.headers))
        earlier = one.timestamp - _EARLIER_MS
        place = prefix + one.topic, one.value, one.key, one.partition
        producer.produce(*place, headers=headers, timestamp=earlier, on_delivery=_stored)
        producer.poll(0)


def _transactions(bootstrap_servers: str, prefix: str, record: Copied) -> None:
    """One that is aborted, with a record that would be a finding; and the marker of one that is committed."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    _produce(producer, prefix, [record.changed(ORIGIN_MESSAGE_ID=b"aborted/0/1")])
    assert producer.flush(PATIENCE) == 0
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(prefix + "GROUPS", b"{}", b"%SYS%-no-group-of-anybody")
    producer.commit_transaction(30)
    producer.close()
