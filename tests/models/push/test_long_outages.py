"""An app that is down for ten minutes, or that one message ends, on a Kafka in memory whose clock is set by hand."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from reconsume.bridge.kafka.clients import clock_of
from reconsume.consumers import PushConsumer
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.delivery import PushDelivery
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import (
    AppRequest,
    NativeRequests,
    ReconsumeHeaders,
    Requests,
    requests_of,
)
from reconsume.sidecar.push.settings import Order, Profile, PushSettings
from reconsume.testing import InMemoryKafka

MESSAGES = 50


class App(AppClient):
    """Refuses connections, or answers nothing but 503, until it is up."""

    def __init__(self, down: AppAnswer | NoAnswer) -> None:
        self.down: AppAnswer | NoAnswer | None = down
        self.asked = 0
        self.got: list[tuple[str, str]] = []

    async def send(self, _method: str, request: AppRequest, _seconds: float) -> AppAnswer | NoAnswer:
        self.asked += 1
        if self.down is not None:
            return self.down
        headers = dict(request.headers)
        self.got.append((headers["ce-id"], headers["reconsume-times"]))
        return AppAnswer(200)

    async def aclose(self) -> None:
        """Nothing to close."""


class FragileApp(AppClient):
    """Takes batches, and ends without an answer when the message `poison` is in one."""

    def __init__(self) -> None:
        self.answered = Counter[str]()
        self.ended_with: list[list[str]] = []

    async def send(self, _method: str, request: AppRequest, _seconds: float) -> AppAnswer | NoAnswer:
        bodies = [event["data"] for event in json.loads(request.body)]
        if "poison" in bodies:
            self.ended_with.append(bodies)
            return NoAnswer("cut off", cut_off=True)
        self.answered.update(bodies)
        return AppAnswer(200)

    async def aclose(self) -> None:
        """Nothing to close."""


def start(
    kafka: InMemoryKafka,
    settings: PushSettings,
    app: AppClient,
    requests: Requests,
    most: int,
    life: Life | None = None,
) -> CollectorRegistry:
    """Start a consumer of a subscription that sends a message back at most this often; return its metrics."""
    registry = CollectorRegistry()
    delivery = PushDelivery(
        *(settings, app, requests, life or Life(), lambda: DelayLevels.parse(DEFAULT_LEVEL_TABLE)),
        *(PushMetrics(registry), clock_of({"bootstrap.servers": kafka.bootstrap_servers})),
    )
    consumer = PushConsumer(
        settings.group,
        bootstrap_servers=kafka.bootstrap_servers,
        max_reconsume_times=most,
        consume_message_batch_max_size=settings.consume_message_batch_max_size,
    )
    for topic, tags in settings.topics.items():
        consumer.subscribe(topic, tags)
    if settings.order is Order.NONE:
        consumer.register_message_listener(delivery)
    else:
        consumer.register_message_listener(delivery, orderly=True, per_key=settings.order is Order.KEY)
    consumer.start()
    return registry


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("down", [NoAnswer("refused"), AppAnswer(503)], ids=["refused", "a proxy's 503"])
def test_an_app_that_is_down_for_ten_minutes_costs_its_messages_no_attempt(
    order: Order, down: AppAnswer | NoAnswer
) -> None:
    app = App(down)
    settings = PushSettings(group="departures", topics={"flights": "*"}, order=order)
    requests = NativeRequests(ReconsumeHeaders("departures", lambda: 16, 30_000), lambda topic: f"/events/{topic}")
    with InMemoryKafka() as kafka:
        start(kafka, settings, app, requests, most=0)
        for number in range(MESSAGES):
            kafka.produce("flights", str(number), key=str(number % 7))

        kafka.advance(timedelta(minutes=10))
        assert 100 < app.asked < 200, "one probe every 5 s, whatever waits"
        assert not kafka.committed("departures", "flights")
        assert not kafka.waiting()

        app.down = None
        kafka.advance(timedelta(seconds=30))
        assert sorted(app.got) == sorted((f"flights/0/{number}", "0") for number in range(MESSAGES)), "each once"
        assert kafka.committed("departures", "flights") == MESSAGES
        assert not kafka.waiting()
        assert not kafka.retries("departures")
        assert not kafka.dead_letters("departures")


@pytest.mark.parametrize("order", [Order.NONE, Order.KEY])
def test_a_message_that_ends_the_app_takes_no_other_of_its_batch_to_the_dead_letters(order: Order) -> None:
    app, size = FragileApp(), 4
    settings = PushSettings(
        group="departures",
        topics={"flights": "*", "gates": "*"},
        profile=Profile.ROCKETMQ_BATCH,
        consume_message_batch_max_size=size,
        order=order,
    )
    with InMemoryKafka() as kafka:
        start(kafka, settings, app, requests_of(settings, lambda: 2, {}), most=2)
        for body in ("a", "b", "poison", "c"):
            kafka.produce("flights", body, key="one key")
        for number in range(100):
            kafka.produce("gates", f"other {number}")
            kafka.advance(timedelta(seconds=10))

        assert [one.value for one in kafka.dead_letters("departures")] == [b"poison"]
        assert {body: app.answered[body] for body in ("a", "b", "c")} == dict.fromkeys("abc", 1)
        assert app.ended_with[:2] == [["a", "b", "poison", "c"]] * 2
        assert all(bodies == ["poison"] for bodies in app.ended_with[2:])


def test_an_outage_is_over_for_a_sidecar_whose_held_messages_have_another_owner() -> None:
    settings = PushSettings(group="departures", topics={"flights": "*"})
    requests = requests_of(settings, lambda: 16, {})
    first, second = App(NoAnswer("refused")), App(NoAnswer("refused"))
    with InMemoryKafka() as kafka:
        kafka.create_topic("flights", 2)
        metrics = start(kafka, settings, first, requests, most=16)
        kafka.produce("flights", "held", partition=1)
        kafka.advance(timedelta(seconds=20))
        assert down_since(metrics)

        second.down = None
        start(kafka, settings, second, requests, most=16)
        kafka.advance(timedelta(seconds=20))
        assert [key for key, _ in second.got] == ["flights/1/0"]
        assert not down_since(metrics)


class Choosy(App):
    """Answers all but some messages, to which nobody gives an answer of the app."""

    async def send(self, _method: str, request: AppRequest, _seconds: float) -> AppAnswer | NoAnswer:
        if request.body.startswith(b"bad"):
            assert self.down is not None
            return self.down
        self.got.append((request.body.decode(), ""))
        return AppAnswer(200)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("bad", [1, 2])
@pytest.mark.parametrize("down", [AppAnswer(504), NoAnswer("cut off", cut_off=True)], ids=["504", "cut off"])
def test_messages_without_an_answer_keep_no_others_from_the_app(
    order: Order, bad: int, down: AppAnswer | NoAnswer
) -> None:
    app, settings = Choosy(down), PushSettings(group="departures", topics={"flights": "*"}, order=order)
    good = [f"good {number}" for number in range(20)]
    first = 1 if order is Order.PARTITION else 0
    with InMemoryKafka() as kafka:
        kafka.create_topic("flights", 4)
        start(kafka, settings, app, requests_of(settings, lambda: 16, {}), most=16)
        for number in range(bad):
            kafka.produce("flights", f"bad {number}", key=f"bad {number}", partition=0)
        kafka.advance(timedelta(seconds=5))
        for number, body in enumerate(good):
            kafka.produce("flights", body, key=body, partition=first + number % (4 - first))
            kafka.advance(timedelta(seconds=30))
        assert sorted(body for body, _ in app.got) == sorted(good)


@pytest.mark.parametrize("order", [Order.NONE, Order.KEY])
def test_two_messages_that_end_the_app_do_not_keep_their_partition_from_being_read(order: Order) -> None:
    app, settings = (
        Choosy(NoAnswer("cut off", cut_off=True)),
        PushSettings(group="departures", topics={"flights": "*"}, order=order),
    )
    with InMemoryKafka() as kafka:
        start(kafka, settings, app, requests_of(settings, lambda: 16, {}), most=2)
        for number in range(2):
            kafka.produce("flights", f"bad {number}", key=f"bad {number}")
        kafka.advance(timedelta(seconds=60))
        for number in range(60):
            kafka.produce("flights", f"good {number}", key=f"good {number}")
            kafka.advance(timedelta(seconds=10))
        assert len(app.got) == 60
        assert sorted(one.value or b"" for one in kafka.dead_letters("departures")) == [b"bad 0", b"bad 1"]


def down_since(metrics: CollectorRegistry) -> float | None:
    name = "reconsume_push_app_down_since_timestamp_seconds"
    return metrics.get_sample_value(name, {"group": "departures"})


def test_an_answer_of_an_app_that_stops_with_its_sidecar_is_counted_as_held() -> None:
    settings, life = PushSettings(group="departures", topics={"flights": "*"}), Life()

    class Stopping(App):
        async def send(self, method: str, request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
            life.quiesce()
            return await super().send(method, request, seconds)

    with InMemoryKafka() as kafka:
        metrics = start(kafka, settings, Stopping(AppAnswer(500)), requests_of(settings, lambda: 16, {}), 16, life)
        kafka.produce("flights", "held")
        kafka.advance(timedelta(seconds=20))
        assert not kafka.waiting()
    outcomes = {outcome: deliveries(metrics, outcome) for outcome in ("hold", "retry")}
    assert outcomes == {"hold": 1, "retry": 0}


def deliveries(metrics: CollectorRegistry, outcome: str) -> float | None:
    return metrics.get_sample_value("reconsume_push_deliveries_total", {"group": "departures", "outcome": outcome})
