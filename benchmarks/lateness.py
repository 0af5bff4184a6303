"""How late due records are delivered at a steady rate, in transactions: append time of the delivery minus due time."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from benchmarks.installation import LANE_PARTITIONS, PAYLOAD, install, read_all, scheduler, waiting_headers
from reconsume.bridge.process.settings import Settings

WARM_UP_SECONDS = 4


def measure_lateness(bootstrap_servers: str, per_second: int, seconds: int) -> None:
    """Print p50, p99 and max in milliseconds, and how many were early."""
    settings = install(bootstrap_servers)
    topic, records = settings.names.delay(1_000), per_second * (seconds + WARM_UP_SECONDS)
    with scheduler(settings):
        time.sleep(WARM_UP_SECONDS)
        feeder = threading.Thread(target=_feed, args=(settings, topic, per_second, records))
        feeder.start()
        feeder.join()
        due = {key: stamp + 1_000 for _, key, stamp in read_all(settings, {topic: LANE_PARTITIONS}, records)}
        moved = [
            (stamp - due[key or b""], key or b"")
            for _, key, stamp in read_all(settings, {settings.names.retry("bench"): 1}, records)
        ]
    first = min(due.values()) + WARM_UP_SECONDS * 1_000
    lateness = sorted(late for late, key in moved if due[key] >= first)
    p50, p99 = lateness[len(lateness) // 2], lateness[int(len(lateness) * 0.99)]
    early = sum(late < 0 for late, _ in moved)
    print(
        f"{per_second:,}/s: lateness p50 {p50} ms, p99 {p99} ms, max {lateness[-1]} ms; "
        f"early {early}; delivered {len(moved):,} of {records:,}"
    )


def _feed(settings: Settings, topic: str, per_second: int, records: int) -> None:
    """A steady stream: 200 small bursts a second."""
    producer = Producer(settings.client_settings() | {"linger.ms": 1, "partitioner": "murmur2_random"})
    started, burst = time.monotonic(), max(1, per_second // 200)
    for number in range(records):
        producer.produce(topic, PAYLOAD, b"k%d" % number, headers=waiting_headers("bench", number))
        if number % burst == 0:
            producer.poll(0)
            ahead = started + number / per_second - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
    producer.flush()
