"""What it costs to hand a record to a producer that has seen many topics, and to one that took its place.

librdkafka looks through all topics that a producer has seen. No broker is needed: the records stay in its queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

from benchmarks.harness.registry import Place, Sample, measurement
from reconsume.bridge.kafka.clients import discard_producer

GROUPS: Final = 5_000
ACTIVE: Final = 50
RECORDS: Final = 20_000


@measurement("many-topics")
def many_topics(_place: Place) -> Iterator[Sample]:
    """Handing a record to a producer that has seen 5,000 topics, and to one that took its place."""
    names = [f"reconsume.RETRY.group-{number}" for number in range(GROUPS)]
    one, many, next_one = _producer(), _producer(), _producer()
    alone = _microseconds(one, names[:1])
    for name in names:
        many.produce(name, b"v")
    everywhere = _microseconds(many, names)
    before, after = _microseconds(many, names[-ACTIVE:]), _microseconds(next_one, names[-ACTIVE:])
    for producer in (one, many, next_one):
        discard_producer(producer)
    yield Sample("one group", "produce", "µs", alone)
    yield Sample(f"{GROUPS:,} groups by turns", "produce", "µs", everywhere)
    yield Sample(f"{ACTIVE} groups of {GROUPS:,}, old producer", "produce", "µs", before)
    yield Sample(f"{ACTIVE} groups of {GROUPS:,}, new producer", "produce", "µs", after)


def _producer() -> Producer:
    return Producer({"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 10 * RECORDS, "log_level": 0})


def _microseconds(producer: Producer, topics: list[str]) -> float:
    began = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(topics[number % len(topics)], b"v")
    return (time.perf_counter() - began) / RECORDS * 1e6
