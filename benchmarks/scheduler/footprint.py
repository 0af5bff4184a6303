"""The resources of idle processes and of brokers: memory, start-up, idle CPU, withdrawals, bytes."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from benchmarks.harness.registry import Place, Sample, measurement
from benchmarks.installation import (
    PAYLOAD,
    cpu_seconds,
    fill,
    fill_ordinary,
    installed,
    make_stamped,
    read_all,
    resident_mib,
    scheduler,
)
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
SETTLE_SECONDS: Final = 20
IDLE_SECONDS: Final = 30.0
WAITING: Final = (10_000, 1_000_000)
WAITING_LARGE: Final = (10_000, 1_000_000, 10_000_000)
STORED: Final = 100_000

_FIRST_CALL: Final = """
import sys, time, uuid
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
servers, prefix, topic = sys.argv[1:]
consumer = PushConsumer(uuid.uuid4().hex, bootstrap_servers=servers, topic_prefix=prefix,
                        conf={"auto.offset.reset": "earliest"})
consumer.subscribe(topic)
@consumer.listener
def on_messages(messages, context):
    print(time.time(), time.process_time(), flush=True)
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
consumer.start()
time.sleep(60)
"""


@measurement("memory", rounds=1)
def memory(place: Place) -> Iterator[Sample]:
    """Memory of a worker with 10,000 and 1,000,000 records waiting (with --large 10,000,000): it must not grow."""
    for records in WAITING_LARGE if place.large else WAITING[: place.size(2, 1)]:
        with installed(place.bootstrap_servers, "1h") as settings:
            fill(settings, [settings.names.delay(HOUR_MS)], records)
            with scheduler(settings) as worker:
                time.sleep(SETTLE_SECONDS)
                now, peak = resident_mib(worker.pid)
        yield Sample(f"{records:,} waiting", "resident", "MiB", now)
        yield Sample(f"{records:,} waiting", "peak", "MiB", peak)


@measurement("start-up")
def start_up(place: Place) -> Iterator[Sample]:
    """From the start of a process to its probes, and to its first record."""
    with installed(place.bootstrap_servers) as settings:
        fill(settings, [settings.names.delay(1_000)], 1)
        time.sleep(2)
        began = time.time()
        with scheduler(settings) as worker:
            alive = worker.seconds_until("/livez")
            ready = alive + worker.seconds_until("/readyz")
            *_, (_, _, delivered) = read_all(settings, {settings.names.retry("bench"): 1}, 1)
            cpu = cpu_seconds(worker.pid)
        yield Sample("scheduler worker", "until /livez", "s", alive)
        yield Sample("scheduler worker", "until /readyz", "s", ready)
        yield Sample("scheduler worker", "until the first delivery", "s", delivered / 1_000 - began)
        yield Sample("scheduler worker", "CPU", "s", cpu)
        topic = f"{settings.topic_prefix}flights"
        fill_ordinary(settings, topic, 1)
        began = time.time()
        command = [sys.executable, "-c", _FIRST_CALL, place.bootstrap_servers, settings.topic_prefix, topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            called, cpu = map(float, process.stdout.readline().split())
            process.kill()
        yield Sample("PushConsumer", "until the first call", "s", called - began)
        yield Sample("PushConsumer", "CPU", "s", cpu)


@measurement("idle")
def idle(place: Place) -> Iterator[Sample]:
    """CPU and memory of two workers that share RocketMQ's level table and have nothing to do."""
    with ExitStack() as stack:
        settings = stack.enter_context(installed(place.bootstrap_servers, DEFAULT_LEVEL_TABLE))
        workers = [stack.enter_context(scheduler(settings, instance_id=f"w{one}")) for one in (1, 2)]
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(*(one.pid for one in workers))
        time.sleep(IDLE_SECONDS)
        spent = cpu_seconds(*(one.pid for one in workers)) - before
        resident = max(resident_mib(one.pid)[0] for one in workers)
    yield Sample("two workers", "CPU of both", "% of a core", spent / IDLE_SECONDS * 100)
    yield Sample("two workers", "resident, the larger one", "MiB", resident)


@measurement("bytes")
def stored_bytes(place: Place) -> Iterator[Sample]:
    """What a record of 200 bytes takes on disk: in the delay topic, in the retry topic, and beside them."""
    with installed(place.bootstrap_servers) as settings:
        lane, retry = settings.names.delay(1_000), settings.names.retry("bench")
        before = {topic: _bytes(place, topic) for topic in ("__consumer_offsets", "__transaction_state")}
        fill(settings, [lane], STORED)
        with scheduler(settings):
            for _ in read_all(settings, {retry: 1}, STORED):
                pass
            time.sleep(2)
        sizes = {"delay topic": _bytes(place, lane), "retry topic": _bytes(place, retry)}
        sizes |= {topic: _bytes(place, topic) - size for topic, size in before.items()}
        sizes["POSITIONS"] = _bytes(place, settings.names.positions)
    for name, size in sizes.items():
        yield Sample("backlog of 100,000, values of 200 bytes", name, "bytes a record", size / STORED)


def _bytes(place: Place, topic: str) -> int:
    """Return the size of a topic's log files, without indexes."""
    folders = Path(place.data_folder).glob(f"{topic}-*")
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


@measurement("withdrawals", rounds=1)
def withdrawals(place: Place) -> Iterator[Sample]:
    """What 1,000,000 withdrawals cost a worker: memory, and how long delayed messages wait at its start."""
    for count in (0, place.size(1_000_000, 10_000)):
        with installed(place.bootstrap_servers, "1s 5s") as settings:
            topic = f"{settings.topic_prefix[:-1]}-bench-withdrawn"
            make_stamped(settings, [topic])
            _withdraw(settings, count)
            # At the first start schedulers know nothing but CANCEL; the second one finds what the first has left.
            for turn in (1, 2):
                _send_due(settings, topic)
                began = time.monotonic()
                with scheduler(settings, allowed_real_topics=topic) as worker:
                    for _ in read_all(settings, {topic: 1}, turn):
                        pass
                    seconds = time.monotonic() - began
                    time.sleep(5)
                    resident, peak = resident_mib(worker.pid)
                    cpu = cpu_seconds(worker.pid)
                case = f"{count:,} withdrawals, start {turn}"
                yield Sample(case, "until a delayed message", "s", seconds)
                yield Sample(case, "CPU", "s", cpu)
                yield Sample(case, "resident", "MiB", resident)
                yield Sample(case, "peak", "MiB", peak)


def _withdraw(settings: Settings, count: int) -> None:
    """Withdraw messages that do not exist, due in 1 to 39 days, as DelayProducer writes it."""
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
