"""Push: the sidecar against a bare loop of confluent-kafka and aiohttp, and HTTP clients against each other.

The app is the cheapest that there is, in a process of its own: one that costs more would be all that is measured.
Latency is from `produce` to the app. On a machine that does other things too only CPU and ratios mean anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from benchmarks.harness.registry import CPU, RATE, Place, Sample, measurement
from benchmarks.http_clients import KINDS
from benchmarks.installation import Told, cpu_seconds, fill_ordinary, install
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

PER_SECOND: Final = 500
SECONDS: Final = 20
POSTS: Final = 5_000

_APP: Final = """
import asyncio, json, sys, time
from collections import deque
times, waits = [], deque(maxlen=1_000_000)
class App(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.left = transport, b""
    def data_received(self, data):
        data, answer = self.left + data, []
        while (end := data.find(b"\\r\\n\\r\\n")) >= 0:
            head = data[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15:].split(b"\\r\\n", 1)[0]) if at >= 0 else 0
            if len(data) < end + 4 + size:
                break
            body, data = data[end + 4:end + 4 + size], data[end + 4 + size:]
            if head.startswith(b"get"):
                answer.append(self.stats())
                continue
            now = time.time_ns()
            times.append(now)
            if body[:1].isdigit():
                waits.append(now - int(body[:19]))
            answer.append(b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n\\r\\n")
        self.left = data
        self.transport.write(b"".join(answer))
    def stats(self):
        body = json.dumps({"times": [times[0], times[-1]] if times else [], "count": len(times),
                           "waits": sorted(waits)}).encode()
        times.clear(), waits.clear()
        return b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%s" % (len(body), body)
async def main():
    server = await asyncio.get_running_loop().create_server(App, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

_SIDECAR: Final = """
import sys
from prometheus_client import CollectorRegistry
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.push.settings import PushSettings
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.subscription import PushSubscription
servers, prefix, topic, url, group, order = sys.argv[1:]
settings = PushSettings(group=group, topics={topic: "*"}, url=url, order=order)
conf = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
part = PushSubscription(settings, conf, Life(), PushMetrics(CollectorRegistry()), prefix)
part.start()
sys.stdin.read()
part.close(5)
"""

_BARE: Final = """
import asyncio, sys, threading
import aiohttp
from confluent_kafka import Consumer
servers, prefix, topic, url, group, order = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def main():
    room = asyncio.Semaphore(32)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        async def one(body):
            async with client.post(url, data=body) as answer:
                await answer.read()
            room.release()
        while True:
            first = await asyncio.to_thread(consumer.poll, 0.1)
            for message in [] if first is None else [first, *consumer.consume(500, 0)]:
                if message.error() is None:
                    await room.acquire()
                    asyncio.ensure_future(one(message.value()))
asyncio.run_coroutine_threadsafe(main(), loop)
sys.stdin.read()
"""


@measurement("push")
def push(place: Place) -> Iterator[Sample]:
    """The sidecar's push against a bare loop: rate, CPU, memory with a backlog, latency at 500 per second."""
    records = place.size(100_000, 10_000)

    def make() -> tuple[Settings, str]:
        settings = install(place.bootstrap_servers)
        topic = f"{settings.topic_prefix}pushed"
        fill_ordinary(settings, topic, records, partitions=4)
        return settings, topic

    settings, topic = place.once("a backlog to push", make)
    with _app() as url:
        runs = (("bare", "none"), ("sidecar", "none"), ("sidecar", "key"))
        told = {run: _rate(settings, topic, records, url, *run) for run in place.in_turn(runs)}
        bare, _ = told["bare", "none"]
        for run, (measured, mib) in told.items():
            case = f"{run[0]}, order {run[1]}"
            yield Sample(case, "pushes", "records/s", measured.rate)
            yield Sample(case, "CPU", "s per million", measured.cpu * 1e6)
            yield Sample(case, "largest resident", "MiB", mib)
            if run[0] == "sidecar":
                yield Sample(case, "rate to the bare loop", RATE, measured.rate / bare.rate)
                yield Sample(case, "CPU to the bare loop", CPU, measured.cpu / bare.cpu)
        for program in place.in_turn(("bare", "sidecar")):
            yield from _latency(settings, url, program)


@measurement("http-clients")
def http_clients(place: Place) -> Iterator[Sample]:
    """HTTP clients against the sidecar's own: POSTs with the headers of a real delivery."""
    with _app() as url:
        for kind in place.in_turn(KINDS):
            command = [sys.executable, "-m", "benchmarks.http_clients", kind, url, str(POSTS)]
            rate, microseconds = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            yield Sample(kind, "POSTs", "per second", float(rate))
            yield Sample(kind, "CPU", "µs", float(microseconds))


def _rate(settings: Settings, topic: str, records: int, url: str, program: str, order: str) -> tuple[Told, float]:
    """Return the rate and CPU of a backlog, and the largest memory in MiB."""
    with _running(settings, topic, url, program, order) as process:
        count = began = ended = 0
        mib, cpu, first = 0.0, 0.0, (0.0, 0)
        while count < records:
            time.sleep(0.5)
            stats = _stats(url)
            count += stats["count"]
            if stats["times"]:
                began, ended = began or stats["times"][0], stats["times"][1]
                mib, cpu = max(mib, process.memory_info().rss / 2**20), cpu_seconds(process.pid)
                first = first if first[1] else (cpu, count)
    return Told((count - 1) / ((ended - began) / 1e9), (cpu - first[0]) / max(1, count - first[1])), mib


def _latency(settings: Settings, url: str, program: str) -> Iterator[Sample]:
    topic = f"{settings.topic_prefix}{uuid.uuid4().hex[:6]}"
    KafkaAdmin(settings.client_settings()).create(topic, 4, -1, {})
    producer = Producer(settings.client_settings() | {"linger.ms": 0})
    with _running(settings, topic, url, program, "none"):
        deadline = time.monotonic() + 60
        while not _stats(url)["count"] and time.monotonic() < deadline:
            producer.produce(topic, b"x")
            producer.flush(1)
            time.sleep(0.2)
        _stats(url)
        began = time.perf_counter()
        for number in range(PER_SECOND * SECONDS):
            while time.perf_counter() < began + number / PER_SECOND:
                time.sleep(0.0005)
            producer.produce(topic, b"%d" % time.time_ns() + b" " * 200)
            producer.poll(0)
        producer.flush(10)
        time.sleep(1)
        waits = _stats(url)["waits"]
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield Sample(f"{program}, {PER_SECOND}/s", name, "ms", waits[int(len(waits) * share)] / 1e6)


@contextmanager
def _app() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", _APP], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@contextmanager
def _running(settings: Settings, topic: str, url: str, program: str, order: str) -> Iterator[psutil.Process]:
    code = {"bare": _BARE, "sidecar": _SIDECAR}[program]
    arguments = (settings.bootstrap_servers, settings.topic_prefix, topic, url, uuid.uuid4().hex, order)
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE) as process:
        yield psutil.Process(process.pid)
        process.terminate()


def _stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own app
        found: dict[str, Any] = json.loads(answer.read())
    return found
