"""Send-backs through the sidecar's API: per second, how long each takes, and what it costs the sidecar's CPU.

`python -m benchmarks.sidecar_send_back` prints a line for each server, way and number of callers. Sidecar, callers and
Kafka share the machine; the CPU time is what compares servers on a machine that does other things too.
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
from typing import Any

import aiohttp
import psutil
import uvicorn

from benchmarks.installation import PAYLOAD, fill_ordinary, install
from reconsume.bridge.process.settings import ManagementSettings, Settings
from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.sidecar.process.process import Sidecar
from reconsume.sidecar.settings import ListenSettings, ProcessSettings, SidecarSettings

RECORDS = 6_000
WARM_UP = 200
SERVERS = (("httptools", "uvloop"), ("h11", "asyncio"))
VALUE = base64.b64encode(PAYLOAD).decode()


def measure_sidecar_send_back(bootstrap_servers: str) -> None:
    """Print send-backs per second with p50 and p99 of one call."""
    settings = install(bootstrap_servers, "1h 1h 1h 2h")
    fill_ordinary(settings, "sidecar-origin", RECORDS + WARM_UP)
    for http, loop in SERVERS:
        asyncio.run(_measure_server(settings, http, loop))


async def _measure_server(settings: Settings, http: str, loop: str) -> None:
    with _sidecar(settings, http, loop) as (address, process):
        # A group of its own for each run: what was sent back once is not sent back again.
        for way, callers, per_call in (
            ("by value", 1, 1),
            ("by value", 32, 1),
            ("by reference", 1, 1),
            ("by reference", 32, 1),
            ("by reference", 4, 50),
        ):
            records = RECORDS if callers * per_call > 1 else RECORDS // 10
            group = f"{http}-{way.split()[1]}-{callers}-{per_call}"
            url = f"http://{address}/v1/groups/{group}/send-back"
            await _measure(f"{http}/{loop}, {way}", url, way, callers, per_call, records, process)


async def _measure(
    name: str, url: str, way: str, callers: int, per_call: int, records: int, process: psutil.Process
) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=callers)) as session:
        await _call_all(session, url, way, callers, per_call, range(records, records + WARM_UP))
        cpu, begun = sum(process.cpu_times()[:2]), time.monotonic()
        took = sorted(await _call_all(session, url, way, callers, per_call, range(records)))
        rate = records / (time.monotonic() - begun)
        cpu = (sum(process.cpu_times()[:2]) - cpu) / records * 1000
    p50, p99 = took[len(took) // 2] * 1000, took[int(len(took) * 0.99)] * 1000
    print(
        f"{name}, {callers} callers, {per_call} records a call: {rate:,.0f} send-backs/s; a call p50 {p50:.1f} ms, "
        f"p99 {p99:.1f} ms; {cpu:.2f} ms of CPU a send-back"
    )


async def _call_all(
    session: aiohttp.ClientSession, url: str, way: str, callers: int, per_call: int, offsets: range
) -> list[float]:
    """Each caller makes one call after the other; gives the seconds of each."""
    calls = iter([offsets[at : at + per_call] for at in range(0, len(offsets), per_call)])
    took: list[float] = []

    async def caller() -> None:
        for part in calls:
            records = [_record(way, offset) for offset in part]
            begun = time.monotonic()
            async with session.post(url, json={"records": records} if per_call > 1 else records[0]) as answer:
                text = await answer.text()
                assert answer.status == 200, text
            took.append(time.monotonic() - begun)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return took


def _record(way: str, offset: int) -> dict[str, Any]:
    place: dict[str, Any] = {"topic": "sidecar-origin", "partition": 0, "offset": offset}
    return place if way == "by reference" else place | {"value": VALUE, "timestamp": 1_700_000_000_000}


@contextmanager
def _sidecar(settings: Settings, http: str, loop: str) -> Iterator[tuple[str, psutil.Process]]:
    """The sidecar in a process of its own, on this server; gives the address of its API."""
    command = [sys.executable, "-m", "benchmarks.sidecar_send_back", http, loop]
    command += [settings.bootstrap_servers, settings.topic_prefix]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
        assert process.stdin is not None
        process.stdin.close()


def _serve(http: str, loop: str, bootstrap_servers: str, topic_prefix: str) -> None:
    """Run a sidecar until standard input ends; prints its address when it is ready."""

    def config(self: uvicorn.Config, app: Any, **options: Any) -> None:
        original(self, app, **(options | {"http": http, "loop": loop}))

    original = uvicorn.Config.__init__
    if http != "httptools":
        uvicorn.Config.__init__ = config  # type: ignore[assignment, method-assign]
    settings = ProcessSettings(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=topic_prefix,
        management=ManagementSettings(port=0),
        sidecar=SidecarSettings(listen=ListenSettings(port=0), remember_minutes=1),
    )
    found: list[str] = []
    stop = threading.Event()
    sidecar = Sidecar(settings, lambda api, _management: found.append(api))
    running = threading.Thread(target=sidecar.run, args=(stop,))
    running.start()
    while not found:
        time.sleep(0.1)
    print(found[0], flush=True)
    sys.stdin.read()
    stop.set()
    running.join()


def main() -> None:
    with LocalKafka(version=NEWEST_KAFKA_VERSION, progress=print) as kafka:
        measure_sidecar_send_back(kafka.bootstrap_servers)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(*sys.argv[1:])
    else:
        main()
