"""Records per second through the scheduler, as a ratio to a bare transactional consume-produce loop.

Both drain the same backlog of due records, with their headers, in transactions of 5,000, one process each; the pair
runs three times. The figure is taken between the first and the last append of what they wrote.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.installation import fill, install, read_all, scheduler
from reconsume.bridge.process.settings import Settings

RECORDS = 200_000
ROUNDS = 3

_BARE = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
servers, source, target, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": servers, "group.id": source, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "isolation.level": "read_committed"})
producer = Producer({"bootstrap.servers": servers, "transactional.id": source, "linger.ms": 1,
                     "retry.backoff.ms": 1, "retry.backoff.max.ms": 10, "queue.buffering.max.messages": 200000})
producer.init_transactions()
consumer.subscribe([source])
done = 0
while done < wanted:
    first = consumer.poll(1)
    if first is None:
        continue
    batch = [one for one in (first, *consumer.consume(5000, 0)) if one.error() is None]
    if not batch:
        continue
    offsets = {}
    producer.begin_transaction()
    for one in batch:
        producer.produce(target, one.value(), one.key(), headers=one.headers(), partition=0)
        offsets[one.partition()] = one.offset() + 1
    where = [TopicPartition(source, partition, offset) for partition, offset in offsets.items()]
    producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata())
    producer.commit_transaction()
    done += len(batch)
consumer.close()
"""


def measure_throughput(bootstrap_servers: str) -> None:
    """Print both rates and their ratio."""
    ratios, rates = [], []
    for _ in range(ROUNDS):
        settings = install(bootstrap_servers)
        fill(settings, settings.names.delay(1_000), RECORDS)
        time.sleep(1.5)  # all of them are due then
        with scheduler(settings):
            ours = _rate(settings, settings.names.retry("bench"))
        bare_target = settings.names.retry("bench") + ".bare"
        _make(settings, bare_target)
        subprocess.run(
            [
                *(sys.executable, "-c", _BARE, bootstrap_servers),
                *(settings.names.delay(1_000), bare_target, str(RECORDS)),
            ],
            check=True,
        )
        bare = _rate(settings, bare_target)
        ratios.append(ours / bare)
        rates.append((ours, bare))
        print(f"scheduler {ours:,.0f}/s, bare loop {bare:,.0f}/s, ratio {ours / bare:.2f}")
    print(f"ratio min {min(ratios):.2f} median {statistics.median(ratios):.2f} max {max(ratios):.2f}")


def _make(settings: Settings, topic: str) -> None:
    from reconsume.bridge.kafka.admin import KafkaAdmin  # noqa: PLC0415

    KafkaAdmin(settings.client_settings()).create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})


def _rate(settings: Settings, topic: str) -> float:
    """Records per second between the first and the last append."""
    times = [timestamp for _, _, timestamp in read_all(settings, {topic: 1}, RECORDS)]
    assert len(times) == RECORDS, f"{len(times)} of {RECORDS} records arrived"
    return RECORDS / ((times[-1] - times[0]) / 1000)
