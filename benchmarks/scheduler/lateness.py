"""The lateness of records: at a steady rate, with due times of their own, and from a failure to the next delivery."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from benchmarks.harness.registry import Place, Sample, measurement, percentiles
from benchmarks.installation import (
    LANE_PARTITIONS,
    PAYLOAD,
    cpu_seconds,
    installed,
    make_stamped,
    read_all,
    scheduler,
    waiting_headers,
)
from reconsume.bridge.process.settings import Settings

RATES: Final = (10, 100, 300, 1_000, 10_000, 50_000)
BARE_RATES: Final = (1_000, 10_000)
WARM_UP_SECONDS: Final = 4
LEVEL_MS: Final = 1_000
LONGEST_SECONDS: Final = 8.0
"""How far ahead delayed messages are."""
FAILURES_PER_SECOND: Final = 100

_READER: Final = """
import sys, time
from array import array
from confluent_kafka import Consumer, TopicPartition
servers, topic, path = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench-reader", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.wait.max.ms": 100})
consumer.assign([TopicPartition(topic, 0, 0)])
seen, last = array("q"), None
print("ready", flush=True)
while last is None or time.time() - last < 4:
    first = consumer.poll(0.05)
    batch = [] if first is None else [first, *consumer.consume(1000, 0)]  # alone it would wait for 1,000
    now = time.time()
    for message in batch:
        if message.error() is None:
            seen.append(int(message.key()[1:]))
            seen.append(int(now * 1000))
            last = now
with open(path, "wb") as file:
    seen.tofile(file)
consumer.close()
"""
_WAITING_LOOP: Final = """
import sys, time
from collections import deque
from confluent_kafka import Consumer, Producer, TopicPartition
servers, target, number, lane, delay_ms = *sys.argv[1:5], int(sys.argv[5])
given = []
consumer = Consumer({"bootstrap.servers": servers, "group.id": target + ".bare", "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "isolation.level": "read_committed", "fetch.wait.max.ms": 50})
producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{target}.bare-{number}", "linger.ms": 1,
                     "retry.backoff.ms": 1, "retry.backoff.max.ms": 10, "queue.buffering.max.messages": 200000})
producer.init_transactions()
consumer.subscribe([lane], on_assign=lambda _, partitions: given.extend(partitions))
waiting, is_ready = deque(), False
while True:
    until = waiting[0].timestamp()[1] + delay_ms if waiting else float("inf")
    first = consumer.poll(max(0.0, min(0.2, until / 1000 - time.time())))
    if given and not is_ready:
        is_ready = True
        print("ready", flush=True)
    if first is not None:
        waiting.extend(one for one in (first, *consumer.consume(5000, 0)) if one.error() is None)
    now = time.time() * 1000
    if not waiting or waiting[0].timestamp()[1] + delay_ms > now:
        continue
    offsets = {}
    producer.begin_transaction()
    while waiting and waiting[0].timestamp()[1] + delay_ms <= now:
        one = waiting.popleft()
        producer.produce(target, one.value(), one.key(), headers=one.headers(), partition=0)
        offsets[one.topic(), one.partition()] = one.offset() + 1
    places = [TopicPartition(*where, offset) for where, offset in offsets.items()]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
    producer.commit_transaction()
"""
"""Records of the one lane are due in the order in which they are read, so a deque is enough."""
_FAILING: Final = """
import sys, threading, time, uuid
from confluent_kafka import Producer
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
servers, prefix, topic, per_second, wanted = *sys.argv[1:4], *map(int, sys.argv[4:])
consumer = PushConsumer(uuid.uuid4().hex, bootstrap_servers=servers, topic_prefix=prefix,
                        conf={"auto.offset.reset": "earliest"})
consumer.subscribe(topic)
failed, again = {}, {}
@consumer.listener
def on_messages(messages, context):
    for message in messages:
        key = bytes(message.key)
        if key in failed:
            again[key] = time.time()
        else:
            failed[key] = time.time()
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
consumer.start()
producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
began = time.monotonic()
for number in range(wanted):
    producer.produce(topic, b"x" * 200, b"k%d" % number)
    producer.poll(0)
    time.sleep(max(0, began + number / per_second - time.monotonic()))
producer.flush()
deadline = time.monotonic() + 30
while len(again) < wanted and time.monotonic() < deadline:
    time.sleep(0.05)
consumer.shutdown()
for key, at in again.items():
    print(int(key[1:]), round((at - failed[key]) * 1000 - 1000, 2))
"""


@measurement("lateness")
def lateness(place: Place) -> Iterator[Sample]:
    """Lateness in transactions at steady rates: two workers, what they take of a core, and two bare loops."""
    for per_second in RATES[:3] if place.quick else RATES:
        seconds = place.size(30 if per_second < 100 else 15, 5)
        yield from _steady(place, per_second, seconds)
        if per_second in BARE_RATES:
            yield from _bare(place, per_second, seconds)


def _steady(place: Place, per_second: int, seconds: int) -> Iterator[Sample]:
    case, records = f"{per_second:,}/s", per_second * (seconds + WARM_UP_SECONDS)
    with ExitStack() as stack:
        settings = stack.enter_context(installed(place.bootstrap_servers))
        retry = settings.names.retry("bench")
        workers = [stack.enter_context(scheduler(settings, instance_id=f"w{one}")) for one in (1, 2)]
        for one in workers:
            one.seconds_until("/readyz")
        reader = stack.enter_context(_reader(settings, retry))
        cpu, began = cpu_seconds(*(one.pid for one in workers)), time.monotonic()
        _feed(settings, settings.names.delay(LEVEL_MS), per_second, records)
        fed = time.monotonic() - began
        time.sleep(LEVEL_MS / 1_000)
        cpu = cpu_seconds(*(one.pid for one in workers)) - cpu
        due, moved = _due_and_moved(settings, records)
        seen = reader()
    first = min(due.values()) + WARM_UP_SECONDS * 1_000
    yield from percentiles(case, (late for late, key in moved if due[key] >= first))
    received = ((due[b"k%d" % number], at) for number, at in seen)
    for seen_late in percentiles(case, (at - moment for moment, at in received if moment >= first)):
        yield Sample(case, f"{seen_late.figure} at a committed reader", seen_late.unit, seen_late.value)
    yield Sample(case, "early", "records", sum(late < 0 for late, _ in moved))
    yield Sample(case, "missing", "records", records - len(moved))
    yield Sample(case, "CPU of both workers", "% of a core", cpu / fed * 100)
    yield Sample(case, "fed", "records/s", records / fed)


def _bare(place: Place, per_second: int, seconds: int) -> Iterator[Sample]:
    """Measure the same with two loops that only wait and copy: the lateness that broker and machine cause."""
    case, records = f"{per_second:,}/s", per_second * (seconds + WARM_UP_SECONDS)
    with ExitStack() as stack:
        settings = stack.enter_context(installed(place.bootstrap_servers))
        lane, retry = settings.names.delay(LEVEL_MS), settings.names.retry("bench")
        for one in ("1", "2"):
            command = [sys.executable, "-c", _WAITING_LOOP, settings.bootstrap_servers, retry, one, lane]
            process = stack.enter_context(subprocess.Popen([*command, str(LEVEL_MS)], stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        stack.enter_context(_reader(settings, retry))
        _feed(settings, lane, per_second, records)
        time.sleep(LEVEL_MS / 1_000)
        due, moved = _due_and_moved(settings, records)
    first = min(due.values()) + WARM_UP_SECONDS * 1_000
    for late in percentiles(case, (late for late, key in moved if due[key] >= first)):
        yield Sample(case, f"{late.figure} of two bare loops", late.unit, late.value)


def _due_and_moved(settings: Settings, records: int) -> tuple[dict[bytes, int], list[tuple[int, bytes]]]:
    """Return the due time of each key, and by how many milliseconds each key was appended late."""
    lane, retry = settings.names.delay(LEVEL_MS), settings.names.retry("bench")
    waiting = read_all(settings, {lane: LANE_PARTITIONS}, records)
    due = {key or b"": stamp + LEVEL_MS for _, key, stamp in waiting}
    return due, [(stamp - due[key or b""], key or b"") for _, key, stamp in read_all(settings, {retry: 1}, records)]


@contextmanager
def _reader(settings: Settings, topic: str) -> Iterator[Callable[[], Iterator[tuple[int, int]]]]:
    """Read committed records in a separate process, so that the feeder does not delay it.

    Gives a function that waits until no more come, and yields the number of each record and its moment in ms.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seen"
        command = [sys.executable, "-c", _READER, settings.bootstrap_servers, topic, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()

            def seen() -> Iterator[tuple[int, int]]:
                process.wait(timeout=60)
                flat = array("q", path.read_bytes())
                return zip(flat[::2], flat[1::2], strict=True)

            try:
                yield seen
            finally:
                process.terminate()


def _feed(settings: Settings, topic: str, per_second: int, records: int) -> None:
    """Produce a steady stream: at most 200 small bursts a second."""
    producer = Producer(settings.client_settings() | {"linger.ms": 1, "partitioner": "murmur2_random"})
    started, burst = time.monotonic(), max(1, per_second // 200)
    for number in range(records):
        producer.produce(topic, PAYLOAD, b"k%d" % number, headers=waiting_headers("bench", number))
        if number % burst == 0:
            producer.poll(0)
            time.sleep(max(0.0, started + number / per_second - time.monotonic()))
    producer.flush()


@measurement("delayed")
def delayed(place: Place) -> Iterator[Sample]:
    """Lateness of delayed messages, which a plain client writes through the inbox."""
    for per_second in (100, 1_000):
        case = f"{per_second:,}/s, 0.2 to {LONGEST_SECONDS:.0f} s ahead"
        with installed(place.bootstrap_servers, "1s 5s") as settings:
            topic = settings.topic_prefix[:-1] + "-bench-delayed"
            make_stamped(settings, [topic], partitions=4)
            with scheduler(settings, allowed_real_topics=topic) as worker:
                worker.seconds_until("/readyz")
                due = _feed_delayed(settings, topic, per_second, per_second * place.size(20, 5))
                late = [stamp - due[key or b""] for _, key, stamp in read_all(settings, {topic: 4}, len(due))]
        yield from percentiles(case, late)
        yield Sample(case, "early", "records", sum(one < 0 for one in late))
        yield Sample(case, "missing", "records", len(due) - len(late))


def _feed_delayed(settings: Settings, topic: str, per_second: int, records: int) -> dict[bytes, int]:
    """Produce the messages; return the due time of each key."""
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
        time.sleep(max(0.0, started + number / per_second - time.monotonic()))
    producer.flush()
    return due


@measurement("redelivery")
def redelivery(place: Place) -> Iterator[Sample]:
    """From a listener's failure to its next call, less the delay: PushConsumer and two workers."""
    case = f"{FAILURES_PER_SECOND}/s fail once, level of 1 s"
    records = FAILURES_PER_SECOND * place.size(20, 8)
    with ExitStack() as stack:
        settings = stack.enter_context(installed(place.bootstrap_servers, "1s"))
        for one in (1, 2):
            stack.enter_context(scheduler(settings, instance_id=f"w{one}")).seconds_until("/readyz")
        topic = f"{settings.topic_prefix}flights"
        make_stamped(settings, [topic])
        arguments = (settings.bootstrap_servers, settings.topic_prefix, topic, str(FAILURES_PER_SECOND), str(records))
        told = subprocess.run(
            [sys.executable, "-c", _FAILING, *arguments], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    found = [line.split() for line in told.splitlines()]
    warm = FAILURES_PER_SECOND * WARM_UP_SECONDS
    yield from percentiles(case, (float(late) for number, late in found if int(number) >= warm))
    yield Sample(case, "missing", "records", records - len(found))
