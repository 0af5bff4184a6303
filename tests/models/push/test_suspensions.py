"""An app asks for another try in its place, on a Kafka in memory whose clock is set by hand."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest, requests_of
from reconsume.sidecar.push.settings import Order, Profile, PushSettings
from reconsume.testing import InMemoryKafka
from tests.models.push.test_long_outages import App, start


class SuspendingApp(AppClient):
    """Takes batches, and first asks to wait with the message `later` and those behind it."""

    def __init__(self) -> None:
        self.got: list[list[str]] = []

    async def send(self, _method: str, request: AppRequest, _seconds: float) -> AppAnswer | NoAnswer:
        bodies = [event["data"] for event in json.loads(request.body)]
        self.got.append(bodies)
        if len(self.got) > 1:
            return AppAnswer(200)
        index = str(bodies.index("later") - 1)
        return AppAnswer(200, {"reconsume-ack-index": index, "reconsume-suspend-ms": "500"})

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
def test_the_rest_of_a_batch_is_delivered_again_in_its_place(order: Order) -> None:
    app = SuspendingApp()
    settings = PushSettings(
        group="departures",
        topics={"flights": "*"},
        profile=Profile.ROCKETMQ_BATCH,
        consume_message_batch_max_size=3,
        order=order,
    )
    with InMemoryKafka() as kafka:
        start(kafka, settings, app, requests_of(settings, lambda: 16, {}), most=16)
        for body in ("first", "later", "last"):
            kafka.produce("flights", body, key="one key")
        kafka.advance(timedelta(milliseconds=400))
        assert app.got == [["first", "later", "last"]]
        kafka.advance(timedelta(seconds=2))
        assert app.got == [["first", "later", "last"], ["later", "last"]]
        assert kafka.committed("departures", "flights") == 3
        assert not kafka.waiting()
        assert not kafka.retries("departures")


def test_a_message_that_was_suspended_too_often_says_why() -> None:
    app = App(AppAnswer(500, {"reconsume-suspend-ms": "500", "reconsume-error-message": "busy"}))
    settings = PushSettings(group="departures", topics={"flights": "*"})
    with InMemoryKafka() as kafka:
        start(kafka, settings, app, requests_of(settings, lambda: 2, {}), most=2)
        kafka.produce("flights", "late")
        kafka.advance(timedelta(seconds=10))
        [letter] = kafka.dead_letters("departures")
        assert (letter.value, app.asked) == (b"late", 3)
        assert dict(letter.headers)["__dlq.errors.message"] == b"busy"
