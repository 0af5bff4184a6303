"""How late messages with moments of their own are delivered: append time on their topic minus `TIMER_DELIVER_MS`."""

from __future__ import annotations

import random
import time

from confluent_kafka import Producer

from benchmarks.installation import PAYLOAD, install, read_all, scheduler
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

TOPIC = "bench-delayed"
WARM_UP_SECONDS = 4
LONGEST_SECONDS = 8.0


def measure_delayed(bootstrap_servers: str, per_second: int, seconds: int) -> None:
    """Print p50, p99 and max in milliseconds, how many were early, and how many within 50 ms."""
    settings = install(bootstrap_servers, "1s 5s")
    topic = settings.topic_prefix[:-1] + TOPIC
    KafkaAdmin(settings.client_settings()).create(topic, 4, -1, {"message.timestamp.type": "LogAppendTime"})
    with scheduler(settings, allowed_real_topics=topic):
        time.sleep(WARM_UP_SECONDS)
        due = _feed(settings, topic, per_second, per_second * seconds)
        late = sorted(stamp - due[key or b""] for _, key, stamp in read_all(settings, {topic: 4}, len(due)))
    within = sum(one <= 50 for one in late) / len(late)
    print(
        f"delayed, {per_second:,}/s, 0.2 to {LONGEST_SECONDS:.0f} s ahead: lateness p50 {late[len(late) // 2]} ms, "
        f"p99 {late[int(len(late) * 0.99)]} ms, max {late[-1]} ms; within 50 ms {within:.1%}; "
        f"early {sum(one < 0 for one in late)}; delivered {len(late):,} of {len(due):,}"
    )


def _feed(settings: Settings, topic: str, per_second: int, records: int) -> dict[bytes, int]:
    """As a plain client does, through the inbox; gives the due moment of each key."""
    producer = Producer(settings.client_settings() | {"linger.ms": 1, "partitioner": "murmur2_random"})
    chance, started, due = random.Random(7), time.monotonic(), {}
    for number in range(records):
        key = b"k%d" % number
        due[key] = int(time.time() * 1000 + chance.uniform(200, LONGEST_SECONDS * 1000))
        headers: list[tuple[str, str | bytes | None]] = [
            ("REAL_TOPIC", topic),
            ("TIMER_DELIVER_MS", str(due[key])),
            ("UNIQ_KEY", f"{number:032X}"),
        ]
        producer.produce(settings.names.send_back, PAYLOAD, key, headers=headers)
        producer.poll(0)
        ahead = started + number / per_second - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
    producer.flush()
    return due
