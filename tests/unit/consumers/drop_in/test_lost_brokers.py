"""A drop-in consumer that librdkafka no longer connects to any broker: its program gets an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reconsume.bridge.librdkafka import connections
from reconsume.consumers import AIOConsumer, Consumer
from reconsume.delay_levels.errors import KafkaNotReachable

SAYS = r"no broker any more \(librdkafka has looked for no broker for \d+ s\); close it and make another one$"
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
CALLS: list[Callable[[Consumer], object]] = [lambda one: one.poll(1), lambda one: one.consume(10, 1)]


@pytest.fixture
def gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if librdkafka did not look for the broker that is away."""
    monkeypatch.setattr(connections, "_is_used", lambda _broker: False)
    monkeypatch.setattr(connections, "_PATIENCE_MS", 0.0)


@pytest.mark.usefixtures("gives_up")
@pytest.mark.parametrize("call", CALLS, ids=["poll", "consume"])
def test_each_call_raises_until_the_consumer_is_closed(call: Callable[[Consumer], object]) -> None:
    consumer = Consumer(NOBODY | {"statistics.interval.ms": 100})
    try:
        for _ in range(2):
            with pytest.raises(KafkaNotReachable, match=SAYS):
                call(consumer)
    finally:
        consumer.close()


@pytest.mark.usefixtures("gives_up")
def test_an_asyncio_consumer_raises_it_too() -> None:
    async def run() -> None:
        consumer = AIOConsumer(NOBODY | {"statistics.interval.ms": 100})
        try:
            with pytest.raises(KafkaNotReachable, match=SAYS):
                await consumer.poll(1)
        finally:
            await consumer.close()

    asyncio.run(run())


def test_brokers_that_are_only_away_are_no_error() -> None:
    told = list[str]()
    with Consumer(NOBODY | {"statistics.interval.ms": 100, "stats_cb": told.append}) as consumer:
        while len(told) < 3:
            assert consumer.poll(1) is None


def test_a_statistics_callback_without_an_interval_is_not_called() -> None:
    """Like confluent-kafka's own consumer."""
    told = list[str]()
    watching = connections.Connections({"stats_cb": told.append})
    watching.settings["stats_cb"]('{"brokers": {}}')
    assert told == []
