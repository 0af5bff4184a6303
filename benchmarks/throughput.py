"""Records per second through the scheduler, as a ratio to a bare transactional consume-produce loop.

Both drain the same backlog of due records, with their headers, in transactions of 5,000, one process each; the pair
runs five times. The figure is taken between the first and the last append of what they wrote.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.installation import cpu_seconds, fill, install, make_stamped, read_all, scheduler
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

RECORDS = 200_000
ROUNDS = 5
LATE_SECONDS = 1.5

_BARE = """
import sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
servers, source, target, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": servers, "group.id": source, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "isolation.level": "read_committed"})
producer = Producer({"bootstrap.servers": servers, "transactional.id": source, "linger.ms": 1,
                     "retry.backoff.ms": 1, "retry.backoff.max.ms": 10, "queue.buffering.max.messages": 200000})
producer.init_transactions()
consumer.subscribe([source])
done = 0
cpu = None
while done < wanted:
    first = consumer.poll(1)
    if first is None:
        continue
    cpu = cpu or time.process_time()
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
print(time.process_time() - cpu)
consumer.close()
"""


def measure_throughput(bootstrap_servers: str) -> None:
    """Print both rates and their ratio, and the CPU time of both for a record, for one group and for many."""
    for groups in (1, 200):
        ratios, costs = [], []
        for _ in range(ROUNDS):
            ours, our_cpu = _scheduler(bootstrap_servers, groups)
            bare, bare_cpu = _bare(bootstrap_servers)
            ratios.append(ours / bare)
            costs.append(our_cpu / bare_cpu)
            print(
                f"{groups} groups: scheduler {ours:,.0f}/s with {our_cpu * 1e6:.1f} us of CPU each, bare loop "
                f"{bare:,.0f}/s with {bare_cpu * 1e6:.1f} us, ratios {ratios[-1]:.2f} and {costs[-1]:.2f}",
                flush=True,
            )
        for what, found in (("rate", ratios), ("CPU", costs)):
            print(f"{what} ratio min {min(found):.2f} median {statistics.median(found):.2f} max {max(found):.2f}")


def _scheduler(bootstrap_servers: str, groups: int) -> tuple[float, float]:
    settings = install(bootstrap_servers)
    names = ["bench", *(f"bench-{number}" for number in range(1, groups))]
    retry = {settings.names.retry(name): 1 for name in names}
    for topic in retry:
        make_stamped(settings, topic)
    fill(settings, settings.names.delay(1_000), RECORDS, groups=names)
    time.sleep(LATE_SECONDS)  # all of them are due then
    admin, wheres = KafkaAdmin(settings.client_settings()), [(topic, 0) for topic in retry]
    with scheduler(settings) as pid:
        while not sum(admin.end_offsets(wheres[:1]).values()):
            time.sleep(0.001)
        before = cpu_seconds(pid)
        rate = _rate(settings, retry)
        return rate, (cpu_seconds(pid) - before) / RECORDS


def _bare(bootstrap_servers: str) -> tuple[float, float]:
    settings = install(bootstrap_servers)
    fill(settings, settings.names.delay(1_000), RECORDS)
    target = settings.names.retry("bench") + ".bare"
    make_stamped(settings, target)
    told = subprocess.run(
        [sys.executable, "-c", _BARE, bootstrap_servers, settings.names.delay(1_000), target, str(RECORDS)],
        check=True,
        capture_output=True,
        text=True,
    )
    return _rate(settings, {target: 1}), float(told.stdout) / RECORDS


def _rate(settings: Settings, topics: dict[str, int]) -> float:
    """Records per second between the first and the last append."""
    times = [timestamp for _, _, timestamp in read_all(settings, topics, RECORDS)]
    assert len(times) == RECORDS, f"{len(times)} of {RECORDS} records arrived"
    return RECORDS / ((max(times) - min(times)) / 1000)
