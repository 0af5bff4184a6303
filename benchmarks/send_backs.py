"""Send-backs per second: a PushConsumer whose listener always fails, the drop-in, and the sidecar's API.

A rate of consumers is that of the records that reach the delay topic, from the first to the last. Sidecar, callers and
Kafka share the machine; the CPU of the sidecar's process compares versions better there than the rate.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import aiohttp
import psutil

from benchmarks.harness.registry import CPU, RATE, Place, Sample, measurement, percentiles
from benchmarks.installation import PAYLOAD, Worker, fill_ordinary, install, installed, run_program
from reconsume.bridge.process.settings import ManagementSettings, Settings
from reconsume.sidecar.process.process import Sidecar
from reconsume.sidecar.settings import ListenSettings, ProcessSettings, SidecarSettings

THREADS: Final = (1, 4, 20)
RECORDS_OF_SIDECAR: Final = 6_000
WARM_UP: Final = 200
VALUE: Final = base64.b64encode(PAYLOAD).decode()

_PUSH: Final = """
import sys, time, uuid
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
servers, prefix, topic, wanted, threads = *sys.argv[1:4], *map(int, sys.argv[4:])
group = uuid.uuid4().hex
consumer = PushConsumer(group, bootstrap_servers=servers, topic_prefix=prefix, consume_thread_nums=threads,
                        conf={"auto.offset.reset": "earliest", "fetch.queue.backoff.ms": 1})
consumer.subscribe(topic)
@consumer.listener
def on_messages(messages, context):
    return ConsumeConcurrentlyStatus.RECONSUME_LATER
import logging
logging.disable(logging.CRITICAL)
admin, lane = KafkaAdmin({"bootstrap.servers": servers}), prefix + "DELAY.10s"
partitions = [(lane, number) for number in range(admin.partitions([lane])[lane])]
before = sum(admin.end_offsets(partitions).values())
def done():
    return sum(admin.end_offsets(partitions).values()) - before
consumer.start()
while not (first := done()):
    time.sleep(0.001)
started, cpu = time.perf_counter(), time.process_time()
while (last := done()) < wanted:
    time.sleep(0.02)
print((last - first) / (time.perf_counter() - started), (time.process_time() - cpu) / (last - first))
consumer.shutdown()
"""
_DROP_IN: Final = """
import sys, time, uuid
from reconsume.consumers import Consumer
servers, prefix, topic, wanted, size = *sys.argv[1:4], *map(int, sys.argv[4:])
consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}, topic_prefix=prefix)
consumer.subscribe([topic])
started = None
done = 0
while done < wanted:
    messages = [one for one in consumer.consume(size, 0.1) if one.error() is None]
    if messages:
        consumer.send_message_back(messages if size > 1 else messages[0])
    if messages and started is None:
        started, cpu = time.perf_counter(), time.process_time()
        continue
    done += len(messages)
print(done / (time.perf_counter() - started), (time.process_time() - cpu) / done)
consumer.close()
"""
_COPY: Final = """
import sys, time, uuid
from confluent_kafka import Consumer, Producer
servers, prefix, topic, wanted = *sys.argv[1:4], int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "fetch.queue.backoff.ms": 1})
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": 200000})
headers = [("RETRY_TOPIC", topic), ("ORIGIN_MESSAGE_ID", topic + "/0/1234567"), ("RECONSUME_TIME", "1"), ("DELAY", "3"),
           ("REAL_TOPIC", "%RETRY%" + uuid.uuid4().hex), ("REAL_QID", "0"), ("BORN_TIMESTAMP", "1700000000000")]
consumer.subscribe([topic])
while not consumer.consume(1, 1):
    pass
started, cpu, done = time.perf_counter(), time.process_time(), 0
while done < wanted:
    batch = [one for one in consumer.consume(500, 0.1) if one.error() is None]
    for one in batch:
        producer.produce(prefix + "DELAY.1s", one.value(), one.key(), headers=headers)
    producer.flush()
    done += len(batch)
print(done / (time.perf_counter() - started), (time.process_time() - cpu) / done)
consumer.close()
"""


@measurement("send-backs", quick_rounds=2)
def send_backs(place: Place) -> Iterator[Sample]:
    """Send-backs per second of PushConsumer by threads, and of the drop-in, to a loop that copies as much."""
    records = place.size(100_000, 30_000)

    def make() -> tuple[Settings, str]:
        settings = install(place.bootstrap_servers, "1s 5s 10s 30s")
        topic = f"{settings.topic_prefix}flights"
        fill_ordinary(settings, topic, records)
        return settings, topic

    settings, topic = place.once("a backlog that fails", make)
    arguments = (place.bootstrap_servers, settings.topic_prefix, topic)
    wanted = str(records - 1_000)
    programs: dict[str, tuple[str, ...]] = {"copy": (_COPY, *arguments, wanted)}
    programs |= {f"PushConsumer, {one} threads": (_PUSH, *arguments, str(records), str(one)) for one in THREADS}
    programs["drop-in, lists of 500"] = (_DROP_IN, *arguments, wanted, "500")
    if not place.quick:
        programs["drop-in, one by one"] = (_DROP_IN, *arguments, str(records // 50), "1")
    told = {kind: run_program(*programs[kind]) for kind in place.in_turn(programs)}
    for kind in programs:
        yield Sample(kind, "send-backs", "records/s", told[kind].rate)
        yield Sample(kind, "CPU", "s per million", told[kind].cpu * 1e6)
        if kind != "copy":
            yield Sample(kind, "rate to the copying loop", RATE, told[kind].rate / told["copy"].rate)
            yield Sample(kind, "CPU to the copying loop", CPU, told[kind].cpu / told["copy"].cpu)


@measurement("sidecar-send-backs")
def sidecar_send_backs(place: Place) -> Iterator[Sample]:
    """Send-backs through the sidecar's API: by value and by reference, by callers and records a call."""
    with installed(place.bootstrap_servers, "1h 1h 1h 2h") as settings:
        origin = f"{settings.topic_prefix}origin"
        fill_ordinary(settings, origin, RECORDS_OF_SIDECAR + WARM_UP)
        with _sidecar(settings) as (address, process):
            # A group of its own for each: what was sent back once is not sent back again.
            for way, callers, per_call in (
                ("by value", 1, 1),
                ("by value", 32, 1),
                ("by reference", 1, 1),
                ("by reference", 32, 1),
                ("by reference", 4, 50),
            ):
                url = f"http://{address}/v1/groups/g-{way.split()[1]}-{callers}-{per_call}/send-back"
                calls = _Calls(url, origin, way == "by value", callers, per_call)
                case = f"{way}, {callers} caller{'s' * (callers > 1)}, {per_call} a call"
                yield from asyncio.run(calls.measured(case, process))


class _Calls:
    """Callers that each make one call after another.

    Args:
        url: of the send-backs of a group.
        origin: the topic of the records.
        by_value: the call has the record's value.
        callers: at the same time.
        per_call: records.
    """

    def __init__(self, url: str, origin: str, by_value: bool, callers: int, per_call: int) -> None:
        self._url = url
        self._origin = origin
        self._by_value = by_value
        self._callers = callers
        self._per_call = per_call

    async def measured(self, case: str, process: psutil.Process) -> list[Sample]:
        """Return the samples."""
        records = RECORDS_OF_SIDECAR if self._callers * self._per_call > 1 else RECORDS_OF_SIDECAR // 10
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self._callers)) as session:
            await self._all(session, range(records, records + WARM_UP))
            cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
            took = await self._all(session, range(records))
            rate = records / (time.monotonic() - began)
            cpu = (sum(process.cpu_times()[:2]) - cpu) / records
        return [
            Sample(case, "send-backs", "records/s", rate),
            Sample(case, "sidecar's CPU", "s per million", cpu * 1e6),
            *percentiles(case, (seconds * 1_000 for seconds in took)),
        ]

    async def _all(self, session: aiohttp.ClientSession, offsets: range) -> list[float]:
        """Return the seconds of each call."""
        calls = iter([offsets[at : at + self._per_call] for at in range(0, len(offsets), self._per_call)])
        took: list[float] = []

        async def caller() -> None:
            for part in calls:
                records = [self._record(offset) for offset in part]
                began = time.monotonic()
                body = {"records": records} if self._per_call > 1 else records[0]
                async with session.post(self._url, json=body) as answer:
                    if answer.status != 200:
                        raise RuntimeError(f"{self._url}: {answer.status} {await answer.text()}")
                    await answer.read()
                took.append(time.monotonic() - began)

        await asyncio.gather(*(caller() for _ in range(self._callers)))
        return took

    def _record(self, offset: int) -> dict[str, Any]:
        where: dict[str, Any] = {"topic": self._origin, "partition": 0, "offset": offset}
        return where | {"value": VALUE, "timestamp": 1_700_000_000_000} if self._by_value else where


@contextmanager
def _sidecar(settings: Settings) -> Iterator[tuple[str, psutil.Process]]:
    """Run the sidecar in a separate process; yield the address of its API."""
    command = [sys.executable, "-m", "benchmarks.send_backs", settings.bootstrap_servers, settings.topic_prefix]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        api, management = process.stdout.readline().split()
        Worker(process.pid, management).seconds_until("/readyz")
        yield api, psutil.Process(process.pid)
        assert process.stdin is not None
        process.stdin.close()


def _serve(bootstrap_servers: str, topic_prefix: str) -> None:
    """Run a sidecar until standard input ends; print the addresses of its API and of its management."""
    settings = ProcessSettings(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=topic_prefix,
        management=ManagementSettings(port=0),
        sidecar=SidecarSettings(listen=ListenSettings(port=0), remember_minutes=1),
    )
    stop = threading.Event()
    sidecar = Sidecar(settings, lambda api, management: print(api, management, flush=True))
    running = threading.Thread(target=sidecar.run, args=(stop,))
    running.start()
    sys.stdin.read()
    stop.set()
    running.join()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
