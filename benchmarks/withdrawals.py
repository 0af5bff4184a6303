"""What a million withdrawals cost a scheduler worker: memory, and how long delayed messages wait at its start."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.installation import PAYLOAD, install, read_all, scheduler
from benchmarks.memory import resident_mib
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

DAY_MS = 86_400_000
SETTLE_SECONDS = 5


def measure_withdrawals(bootstrap_servers: str, counts: tuple[int, ...] = (0, 1_000_000)) -> None:
    """Print memory, and the time from the start of the process to the first delayed message, of two starts (Linux).

    At the first start schedulers know nothing but CANCEL; the second one finds what the first has left.
    """
    for count in counts:
        settings = install(bootstrap_servers, "1s 5s")
        topic = settings.topic_prefix[:-1] + "bench-withdrawn"
        KafkaAdmin(settings.client_settings()).create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
        _withdraw(settings, count)
        for turn in (1, 2):
            _send_due(settings, topic)
            started = time.monotonic()
            with scheduler(settings, allowed_real_topics=topic) as process:
                for _ in read_all(settings, {topic: 1}, turn):
                    pass
                seconds = time.monotonic() - started
                time.sleep(SETTLE_SECONDS)
                now, peak = resident_mib(process)
                cpu = _cpu_seconds(process)
            print(
                f"{count:,} withdrawals, start {turn}: a delayed message after {seconds:.1f} s, {cpu:.1f} s of CPU; "
                f"{now:.0f} MiB resident, {peak:.0f} MiB at its peak"
            )


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, which other work on the machine does not change (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _withdraw(settings: Settings, count: int) -> None:
    """Withdraw messages that nobody has sent, due in 1 to 39 days, as DelayProducer writes it."""
    producer = Producer(settings.client_settings() | {"linger.ms": 20})
    now = time.time_ns() // 1_000_000
    for number in range(count):
        due_ms = now + DAY_MS + number * 38 * DAY_MS // count
        uniq_key = f"{due_ms:012X}{secrets.token_hex(10).upper()}"
        headers: list[tuple[str, str | bytes | None]] = [
            ("TIMER_DEL_UNIQKEY", uniq_key),
            ("TIMER_DELIVER_MS", str(due_ms)),
        ]
        while True:
            try:
                producer.produce(settings.names.cancel, None, uniq_key.encode(), headers=headers)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


def _send_due(settings: Settings, topic: str) -> None:
    producer = Producer(settings.client_settings())
    headers: list[tuple[str, str | bytes | None]] = [
        ("REAL_TOPIC", topic),
        ("TIMER_DELIVER_MS", str(time.time_ns() // 1_000_000)),
        ("UNIQ_KEY", secrets.token_hex(16)),
    ]
    producer.produce(settings.names.send_back, PAYLOAD, headers=headers)
    producer.flush()
