"""The HTTP client alone, against an app on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from reconsume.cli.broker.ports import free_port
from reconsume.sidecar.push import http_client
from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import PushSettings
from tests.integration.push.push_app import app


def settings(url: str) -> PushSettings:
    return PushSettings(group="departures", topics={"flights": "*"}, url=url)


def asked(client: AppClient, body: bytes, seconds: float = 30) -> AppAnswer | NoAnswer:
    async def ask() -> AppAnswer | NoAnswer:
        try:
            return await client.send("POST", AppRequest("/x", [("reconsume-times", "0")], body), seconds)
        finally:
            await client.aclose()

    return asyncio.run(ask())


def test_a_large_body_arrives() -> None:
    with app(lambda _one, _before: {"json": {"status": "RETRY"}}, largest=8 * 2**20) as one:
        answer = asked(AppClient(settings(one.url)), b"x" * 4 * 2**20)
    assert isinstance(answer, AppAnswer)
    assert answer.json == {"status": "RETRY"}
    assert one.seen[0].value == "x" * 4 * 2**20


def test_an_app_that_is_not_there_is_no_answer_and_not_late() -> None:
    answer = asked(AppClient(settings(f"http://127.0.0.1:{free_port()}")), b"")
    assert isinstance(answer, NoAnswer)
    assert not answer.timed_out


def test_an_app_that_takes_too_long_is_late() -> None:
    with app(lambda _one, _before: {"sleep": 60}) as one:
        answer = asked(AppClient(settings(one.url)), b"", 3)
    assert answer == NoAnswer("consume timeout: no answer within 3 s", timed_out=True)


def test_cookies_are_not_kept_and_redirects_not_followed() -> None:
    with app(lambda _one, _before: {"status": 307, "headers": {"location": "/y", "set-cookie": "a=b"}}) as one:
        client = AppClient(settings(one.url))

        async def twice() -> list[AppAnswer | NoAnswer]:
            request = AppRequest("/x", [("reconsume-times", "0")], b"")
            try:
                return [await client.send("POST", request, 30) for _ in range(2)]
            finally:
                await client.aclose()

        answers = asyncio.run(twice())
    assert [answer.status for answer in answers if isinstance(answer, AppAnswer)] == [307, 307]
    assert [delivered.path for delivered in one.seen] == ["/x", "/x"]
    assert not any("cookie" in delivered.headers for delivered in one.seen)


class Counting:
    """Answers 200; hangs up after so many answers on a connection, and counts connections."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.connections = 0
        self.heads: list[bytes] = []
        self.serving: list[Any] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for _ in range(self.answers):
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def sent_to(one: Counting, requests: list[AppRequest], method: str = "POST") -> list[AppAnswer | NoAnswer]:
    """Their answers, one after the other."""

    async def steps() -> list[AppAnswer | NoAnswer]:
        server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
        client = AppClient(settings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base"))
        found = []
        for request in requests:
            found.append(await client.send(method, request, 30))
            await asyncio.sleep(0.01)
        await client.aclose()
        await asyncio.gather(*one.serving)
        one.serving.clear()
        server.close()
        return found

    return asyncio.run(steps())


@pytest.mark.parametrize(("answers", "connections"), [(100, 1), (2, 5)])
def test_a_connection_is_used_again_until_the_app_hangs_up(answers: int, connections: int) -> None:
    one = Counting(answers)
    found = sent_to(one, [AppRequest("/x", [], b"")] * 10)
    assert found == [AppAnswer(200, {"content-length": "0"})] * 10
    assert one.connections == connections


def test_a_connection_that_nobody_needed_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_KEEP_ALIVE_SECONDS", -1.0)
    one = Counting(100)
    sent_to(one, [AppRequest("/x", [], b"")] * 3)
    assert one.connections == 3


def test_what_stands_on_the_wire() -> None:
    one = Counting(100)
    sent_to(one, [AppRequest("/a%20b/ö?q=1", [("reconsume-times", "0")], b"")])
    line, host, *headers = one.heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    assert line == "POST /base/a%20b/%C3%B6?q=1 HTTP/1.1"
    assert host.startswith("host: 127.0.0.1:")
    assert headers == ["user-agent: reconsume", "accept-encoding: identity", "reconsume-times: 0", "content-length: 0"]
    sent_to(one, [AppRequest("", [], b"")], "GET")
    assert one.heads[1].startswith(b"GET /base HTTP/1.1\r\n")
    assert b"content-length" not in one.heads[1]


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    one = Counting(100)
    [answer] = sent_to(one, [AppRequest("/x", [("reconsume-topic", value)], b"")])
    assert isinstance(answer, NoAnswer)
    assert one.heads == []
