"""What it costs to hand a record to a producer that has seen many topics, and to one that took its place.

librdkafka looks through all topics that a producer has seen. No broker is needed: the records stay in its queue.
"""

from __future__ import annotations

import time

from confluent_kafka import Producer

from reconsume.bridge.kafka.clients import discard_producer

GROUPS = 5_000
ACTIVE = 50
RECORDS = 20_000


def measure_many_topics() -> None:
    """Print microseconds for a record, before and after the producer is replaced."""
    names = [f"reconsume.RETRY.group-{number}" for number in range(GROUPS)]
    one, many, next_one = _producer(), _producer(), _producer()
    alone = _microseconds(one, names[:1])
    for name in names:
        many.produce(name, b"v")
    everywhere = _microseconds(many, names)
    before, after = _microseconds(many, names[-ACTIVE:]), _microseconds(next_one, names[-ACTIVE:])
    for producer in (one, many, next_one):
        discard_producer(producer)
    print(f"one group: {alone:.1f} us a record; {GROUPS:,} groups by turns: {everywhere:.1f} us")
    print(f"{ACTIVE} groups of {GROUPS:,}: {before:.1f} us ({1e6 / before:,.0f}/s) before the producer is replaced")
    print(f"{ACTIVE} groups: {after:.1f} us ({1e6 / after:,.0f}/s) after")


def _producer() -> Producer:
    return Producer({"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 10 * RECORDS, "log_level": 0})


def _microseconds(producer: Producer, topics: list[str]) -> float:
    began = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(topics[number % len(topics)], b"v")
    return (time.perf_counter() - began) / RECORDS * 1e6


if __name__ == "__main__":
    measure_many_topics()
