"""HTTP clients against each other: POSTs with the headers of a real delivery, 32 at once, one process.

`python -m benchmarks.http_clients KIND URL NUMBER` prints POSTs per second and microseconds of CPU for each; CPU is
what compares them on a machine that does other things too.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import httpx2
import urllib3
import uvloop

from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import PushSettings

KINDS: Final = ("sidecar, uvloop", "sidecar", "aiohttp, uvloop", "aiohttp", "httpx2", "urllib3", "http.client")
AT_ONCE: Final = 32
PATH: Final = "/events/flights"
BODY: Final = b"x" * 200
HEADERS: Final = {
    "content-type": "application/json",
    "ce-specversion": "1.0",
    "ce-id": "flights/0/12345",
    "ce-source": "/kafka/topics/flights",
    "ce-type": "reconsume.message",
    "ce-time": "2026-11-21T13:00:00.000Z",
    "ce-partitionkey": "UA1545",
    "ce-retrygroup": "departures",
    "ce-reconsumetimes": "0",
    "reconsume-group": "departures",
    "reconsume-max-times": "16",
    "reconsume-deadline-ms": "30000",
    "reconsume-topic": "flights",
    "reconsume-times": "0",
    "reconsume-message-id": "flights/0/12345",
}


class _Numbers:
    """A countdown for all concurrent tasks."""

    def __init__(self, number: int) -> None:
        self._left = number

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0


async def _in_a_loop(kind: str, url: str, number: int) -> tuple[float, float]:
    post, close = _async_client(kind, url)
    numbers = _Numbers(number)

    async def work() -> None:
        while numbers.take():
            await post()

    await post()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[work() for _ in range(AT_ONCE)])
    took = time.perf_counter() - began, time.process_time() - cpu
    await close()
    return took


def _async_client(kind: str, url: str) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]:
    if kind == "aiohttp":
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar())

        async def by_aiohttp() -> None:
            async with session.post(url + PATH, data=BODY, headers=HEADERS, allow_redirects=False) as answer:
                await answer.read()

        return by_aiohttp, session.close
    if kind == "httpx2":
        limits = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        client = httpx2.AsyncClient(limits=limits, trust_env=False)

        async def by_httpx2() -> None:
            await client.post(url + PATH, content=BODY, headers=HEADERS)

        return by_httpx2, client.aclose
    ours = AppClient(PushSettings(group="departures", topics={"flights": "*"}, url=url))
    request = AppRequest(PATH, list(HEADERS.items()), BODY)

    async def by_ours() -> None:
        await ours.send("POST", request, 30)

    return by_ours, ours.aclose


def _in_threads(kind: str, url: str, number: int) -> tuple[float, float]:
    numbers, pool = _Numbers(number), urllib3.PoolManager(maxsize=AT_ONCE)

    def work() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        while numbers.take():
            if kind == "urllib3":
                pool.request("POST", url + PATH, body=BODY, headers=HEADERS, retries=False, redirect=False)
            else:
                connection.request("POST", PATH, BODY, HEADERS)
                connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, time.process_time() - cpu


def main(kind: str, url: str, number: int) -> None:
    """One measurement."""
    name, _, loop = kind.partition(", ")
    if name in ("urllib3", "http.client"):
        seconds, cpu = _in_threads(name, url, number)
    else:
        factory = uvloop.new_event_loop if loop else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            seconds, cpu = runner.run(_in_a_loop(name, url, number))
    print(number / seconds, cpu / number * 1e6)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
