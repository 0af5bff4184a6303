"""Push: HTTP clients against each other, the sidecar's rate, the latency it adds, and its memory with a backlog.

The app is the cheapest that there is, in a process of its own: one that costs more would be all that is measured.

* Clients: benchmarks/http_clients.py.
* Rate: a backlog of 100,000 records on 4 partitions, from the first delivery to the last.
* Latency: records at 500 per second, from `produce` to the app, with the sidecar and with a bare loop of
  confluent-kafka and aiohttp; what the sidecar adds is the difference, in the same run, in turn.

On a machine that does other things too only CPU and the ratio to the bare loop of the same run mean anything.
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
from typing import Any

import psutil
from confluent_kafka import Producer

from benchmarks.http_clients import KINDS
from benchmarks.installation import install
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

RECORDS = 100_000
PER_SECOND, SECONDS = 500, 20
ROUNDS = 3

_APP = """
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

_SIDECAR = """
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

_BARE = """
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


def measure_sidecar_push(bootstrap_servers: str) -> None:
    """Print all of it."""
    settings = install(bootstrap_servers)
    with _app() as url:
        for _ in range(ROUNDS):
            for kind in KINDS:
                rate, cpu = _output("-m", "benchmarks.http_clients", kind, url, "5000")
                print(f"client {kind}: {rate:,.0f}/s, {cpu:.0f} µs of CPU each")
        topic = _topic(settings)
        _fill(settings, topic, RECORDS)
        for order in ("none", "key"):
            for program in ("bare", "sidecar") if order == "none" else ("sidecar",):
                _measure_rate(settings, topic, url, program, order)
        for _ in range(ROUNDS):
            waits = {program: _latency(settings, url, program) for program in ("bare", "sidecar")}
            for program, found in waits.items():
                print(f"{program} at {PER_SECOND}/s: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in found.items()))
            print(
                "added: "
                + ", ".join(f"{name} {waits['sidecar'][name] - ms:.1f} ms" for name, ms in waits["bare"].items())
            )


def _measure_rate(settings: Settings, topic: str, url: str, program: str, order: str) -> None:
    with _running(settings, topic, url, program, order) as process:
        memory, count, began, ended = [], 0, 0, 0
        cpu, first = 0.0, (0.0, 0)
        while count < RECORDS:
            time.sleep(0.5)
            stats = _stats(url)
            count += stats["count"]
            if stats["times"]:
                began, ended = began or stats["times"][0], stats["times"][1]
                memory.append(process.memory_info().rss / 2**20)
                cpu, first = _cpu_seconds(process), first if first[1] else (_cpu_seconds(process), count)
    per_second = (count - 1) / ((ended - began) / 1e9)
    each = (cpu - first[0]) / max(1, count - first[1]) * 1e6
    print(
        f"{program}, order {order}: {per_second:,.0f}/s, {each:.0f} µs of CPU each, "
        f"memory {memory[0]:.0f} to {max(memory):.0f} MiB, {memory[-1]:.0f} at the end"
    )


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _latency(settings: Settings, url: str, program: str) -> dict[str, float]:
    topic = _topic(settings)
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
    return {name: waits[int(len(waits) * share)] / 1e6 for name, share in (("p50", 0.5), ("p99", 0.99))}


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


def _topic(settings: Settings) -> str:
    topic = f"{settings.topic_prefix}{uuid.uuid4().hex[:6]}"
    KafkaAdmin(settings.client_settings()).create(topic, 4, -1, {})
    return topic


def _fill(settings: Settings, topic: str, records: int) -> None:
    producer = Producer(settings.client_settings() | {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        producer.produce(topic, b"x" * 200, b"k%d" % number)
        producer.poll(0)
    producer.flush()


def _stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own app
        found: dict[str, Any] = json.loads(answer.read())
    return found


def _output(*arguments: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True)
    rate, cpu = done.stdout.split()
    return float(rate), float(cpu)


if __name__ == "__main__":
    from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
    from reconsume.cli.broker.kafka import LocalKafka

    with LocalKafka(version=NEWEST_KAFKA_VERSION, progress=print) as kafka:
        measure_sidecar_push(kafka.bootstrap_servers)
