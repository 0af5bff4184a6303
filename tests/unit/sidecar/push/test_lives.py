"""A consumer that begins afresh makes a new event loop for its deliveries."""

from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push import delivery as delivery_module
from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.delivery import PushDelivery
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest, NativeRequests, ReconsumeHeaders
from reconsume.sidecar.push.settings import PushSettings
from tests.support.waiting import PATIENCE, wait_until


class Client(AppClient):
    """Counts the probes; an answer takes so long."""

    def __init__(self, takes_seconds: float = 0.0) -> None:
        self.probes = 0
        self.takes_seconds = takes_seconds

    async def send(self, method: str, _request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
        self.probes += method == "GET"
        return AppAnswer(200) if self.takes_seconds < seconds else NoAnswer("consume timeout", timed_out=True)

    async def aclose(self) -> None:
        """Nothing to close."""


def probing(client: Client, registry: CollectorRegistry) -> PushDelivery:
    return PushDelivery(
        PushSettings(group="departures", topics={"flights": "*"}, probe_route="/healthz"),
        client,
        NativeRequests(ReconsumeHeaders("departures", lambda: 16, 30_000), lambda topic: f"/events/{topic}"),
        Life(),
        lambda: DelayLevels.parse(DEFAULT_LEVEL_TABLE),
        PushMetrics(registry),
    )


@pytest.mark.parametrize(("takes_seconds", "is_down"), [(1.0, False), (10.0, True)])
def test_an_app_whose_probe_takes_a_second_is_healthy(
    monkeypatch: pytest.MonkeyPatch, takes_seconds: float, is_down: bool
) -> None:
    monkeypatch.setattr(delivery_module, "_PROBE_EVERY_SECONDS", 0.0)
    client, registry = Client(takes_seconds), CollectorRegistry()

    async def steps() -> None:
        probe = asyncio.ensure_future(probing(client, registry)._probe("/healthz"))
        for _ in range(20):
            await asyncio.sleep(0)
        probe.cancel()

    asyncio.run(steps())
    assert client.probes > 3
    name = "reconsume_push_app_down_since_timestamp_seconds"
    assert bool(registry.get_sample_value(name, {"group": "departures"})) is is_down


def test_each_life_of_the_consumer_is_alive_and_probes_the_app() -> None:
    client = Client()
    delivery = probing(client, CollectorRegistry())
    for life in (1, 2):
        loop = delivery.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        wait_until(lambda life=life: client.probes == life, "it probes")  # type: ignore[misc]
        assert delivery.is_alive(60)
        asyncio.run_coroutine_threadsafe(delivery.aclose(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
        assert delivery.is_alive(60), "the next life has not begun"
