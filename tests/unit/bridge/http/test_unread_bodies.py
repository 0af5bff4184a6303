"""Answers to requests whose body the application does not read, on real sockets."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from reconsume.bridge.http.uvicorn_thread import UvicornThread

MANY = 20_000_000
_SECONDS = 60.0


class App:
    """Refuses each request after so many parts of its body."""

    def __init__(self, parts: int) -> None:
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        for _ in range(self.parts):
            await receive()
        headers = [(b"content-length", b"2"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})


@contextmanager
def serving(app: App, loop: str) -> Iterator[str]:
    server = UvicornThread(app, "console.listen", "127.0.0.1", 0, "served", loop=loop)
    server.start()
    try:
        yield server.address
    finally:
        server.end(1, _SECONDS)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("parts", [0, 2])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_a_large_body_reads_its_refusal(loop: str, parts: int, chunked: bool) -> None:
    content: Any = iter([b"x" * (MANY // 2)] * 2) if chunked else b"x" * MANY
    headers = {"transfer-encoding": "chunked"} if chunked else {}
    with serving(App(parts), loop) as address, closing(http.client.HTTPConnection(address, timeout=_SECONDS)) as client:
        client.request("POST", "/", content, headers, encode_chunked=chunked)
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (413, b"no")


def test_a_client_that_asks_first_is_refused_without_its_body() -> None:
    with serving(App(0), "asyncio") as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), _SECONDS) as client:
            client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
            answered = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert answered.endswith(b"\r\n\r\nno")


def test_a_client_that_asked_and_was_told_to_go_on_reads_its_refusal() -> None:
    with (
        serving(App(2), "asyncio") as address,
        closing(http.client.HTTPConnection(address, timeout=_SECONDS)) as client,
    ):
        client.request("POST", "/", b"x" * MANY, {"expect": "100-continue"})
        assert client.getresponse().status == 413


def test_a_client_that_still_sends_when_the_server_ends_is_answered() -> None:
    with closing(socket.socket()) as client:
        with serving(App(1), "asyncio") as address:
            host, _, port = address.rpartition(":")
            client.settimeout(_SECONDS)
            client.connect((host, int(port)))
            client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
            assert client.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"x")
        answered = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answered.startswith(b"HTTP/1.1 413 ")
