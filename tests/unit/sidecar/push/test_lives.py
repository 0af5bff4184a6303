"""A consumer that begins afresh makes a new event loop for its deliveries."""

from __future__ import annotations

import asyncio
import threading

from prometheus_client import CollectorRegistry

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.answers import AppAnswer
from reconsume.sidecar.push.delivery import PushDelivery
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest, NativeRequests, ReconsumeHeaders
from reconsume.sidecar.push.settings import PushSettings
from tests.support.waiting import wait_until


class Client(AppClient):
    """Counts the probes."""

    def __init__(self) -> None:
        self.probes = 0

    async def send(self, method: str, _request: AppRequest, _seconds: float) -> AppAnswer:
        self.probes += method == "GET"
        return AppAnswer(200)

    async def aclose(self) -> None:
        """Nothing to close."""


def test_each_life_of_the_consumer_is_alive_and_probes_the_app() -> None:
    client = Client()
    delivery = PushDelivery(
        PushSettings(group="departures", topics={"flights": "*"}, probe_route="/healthz"),
        client,
        NativeRequests(ReconsumeHeaders("departures", lambda: 16, 30_000), lambda topic: f"/events/{topic}"),
        Life(),
        lambda: DelayLevels.parse(DEFAULT_LEVEL_TABLE),
        PushMetrics(CollectorRegistry()),
    )
    for life in (1, 2):
        loop = delivery.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        wait_until(lambda life=life: client.probes == life, 60, "it probes")  # type: ignore[misc]
        assert delivery.is_alive(60)
        asyncio.run_coroutine_threadsafe(delivery.aclose(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
        assert delivery.is_alive(60), "the next life has not begun"
