"""The HTTP clients alone, against an app on a real socket."""

from __future__ import annotations

import asyncio

import pytest

from reconsume.consumers.sidecar.push.answers import Answer, NoAnswer
from reconsume.consumers.sidecar.push.app_client import AppClient
from reconsume.consumers.sidecar.push.http1_client import Http1Client
from reconsume.consumers.sidecar.push.http2_client import Http2Client
from reconsume.consumers.sidecar.push.requests import AppRequest
from reconsume.consumers.sidecar.push.settings import PushSettings
from tests.integration.h2_app import h2_app
from tests.integration.push_app import app, free_port


def settings(url: str) -> PushSettings:
    return PushSettings(group="departures", topics={"flights": "*"}, url=url)


def asked(client: AppClient, body: bytes, seconds: float = 30) -> Answer | NoAnswer:
    async def ask() -> Answer | NoAnswer:
        try:
            return await client.send("POST", AppRequest("/x", [("reconsume-times", "0")], body), seconds)
        finally:
            await client.aclose()

    return asyncio.run(ask())


def test_a_large_body_arrives() -> None:
    with app(lambda _one, _before: {"json": {"status": "RETRY"}}, largest=8 * 2**20) as one:
        answer = asked(Http1Client(settings(one.url)), b"x" * 4 * 2**20)
    assert isinstance(answer, Answer)
    assert answer.json == {"status": "RETRY"}
    assert one.seen[0].value == "x" * 4 * 2**20
    with h2_app() as other:
        assert isinstance(asked(Http2Client(settings(f"http://127.0.0.1:{other.port}")), b"x" * 4 * 2**20), Answer)
        assert len(other.seen[0][1]) == 4 * 2**20


@pytest.mark.parametrize("kind", [Http1Client, Http2Client])
def test_an_app_that_is_not_there_is_no_answer_and_not_late(kind: type[Http1Client | Http2Client]) -> None:
    answer = asked(kind(settings(f"http://127.0.0.1:{free_port()}")), b"")
    assert isinstance(answer, NoAnswer)
    assert not answer.timed_out


def test_an_app_that_takes_too_long_is_late() -> None:
    with app(lambda _one, _before: {"sleep": 60}) as one:
        answer = asked(Http1Client(settings(one.url)), b"", 0.3)
    assert answer == NoAnswer("consume timeout: no answer within 0.3 s", timed_out=True)


def test_cookies_are_not_kept_and_redirects_not_followed() -> None:
    with app(lambda _one, _before: {"status": 307, "headers": {"location": "/y", "set-cookie": "a=b"}}) as one:
        client = Http1Client(settings(one.url))

        async def twice() -> list[Answer | NoAnswer]:
            request = AppRequest("/x", [("reconsume-times", "0")], b"")
            try:
                return [await client.send("POST", request, 30) for _ in range(2)]
            finally:
                await client.aclose()

        answers = asyncio.run(twice())
    assert [answer.status for answer in answers if isinstance(answer, Answer)] == [307, 307]
    assert [delivered.path for delivered in one.seen] == ["/x", "/x"]
    assert not any("cookie" in delivered.headers for delivered in one.seen)
