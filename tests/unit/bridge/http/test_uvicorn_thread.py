"""The server of the API and of the console's pages among idle, slow and wrong clients, on real sockets."""

from __future__ import annotations

import asyncio
import http.client
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest
from starlette.types import Receive, Scope, Send

from reconsume.bridge.http.open_connections import ConnectionLimits
from reconsume.bridge.http.uvicorn_thread import UvicornThread, raw_answer
from tests.support.waiting import PATIENCE, wait_until

REFUSALS = {status: raw_answer(status, "text/plain", b"no") for status in (400, 408, 431)}
PATIENT = ConnectionLimits(connections=512, idle_seconds=600, head_seconds=600, body_seconds=600, write_seconds=600)
HEAD = b"GET /a HTTP/1.1\r\nhost: x\r\n"
BODY = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1"
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"


class App:
    """Answers with the size of the body and `x` as often as `large` says; `/slow` when it may go on."""

    def __init__(self, large: int = 0) -> None:
        self.large = large
        self.go_on = threading.Event()
        self.called, self.begun = threading.Semaphore(0), threading.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.called.release()
        size, more = 0, True
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        if scope["path"] == "/slow":
            self.begun.release()
            assert await asyncio.to_thread(self.go_on.wait, PATIENCE)
        body = str(size).encode() + b"x" * self.large
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(
    app: App, limits: ConnectionLimits = PATIENT, loop: str = "asyncio", header_bytes: int = 4_096
) -> Iterator[str]:
    limits = replace(limits, header_bytes=header_bytes)
    where = "console.listen", "127.0.0.1", 0, "served"
    server = UvicornThread(app, *where, limits=limits, refusals=REFUSALS, loop=loop)
    server.start()
    try:
        yield server.address
    finally:
        server.end(1, PATIENCE)


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    """The console's, the sidecar's."""
    return str(request.param)


def connect(address: str, sent: bytes = b"") -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), PATIENCE)
    made.sendall(sent)
    return made


def ask(connection: http.client.HTTPConnection, path: str = "/", body: bytes | None = None) -> bytes:
    connection.request("POST" if body else "GET", path, body)
    return connection.getresponse().read()


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    with closing(connection):
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize("sent", [b"", HEAD, BODY])
def test_a_request_is_answered_among_300_clients_that_send_nothing_or_too_little(loop: str, sent: bytes) -> None:
    with serving(App(), loop=loop) as address, ExitStack() as stack:
        before = threading.active_count()
        for _ in range(300):
            stack.enter_context(closing(connect(address, sent)))
        assert ask(stack.enter_context(closing(http.client.HTTPConnection(address, timeout=PATIENCE)))) == b"0"
        assert threading.active_count() <= before  # fewer: those of an earlier test end


@pytest.mark.parametrize("sent", [b"", HEAD, BODY])
def test_the_connection_that_waited_longest_makes_room(
    loop: str, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits(2, 600, 600, 600, 600)
    with serving(App(), limits, loop) as address, ExitStack() as stack, caplog.at_level(logging.WARNING):
        first, kept, third = (
            stack.enter_context(closing(http.client.HTTPConnection(address, timeout=PATIENCE))) for _ in range(3)
        )
        assert ask(first) == ask(kept) == b"0"
        first.sock.sendall(sent)
        assert ask(third) == b"0"
        assert ended(first.sock)
        assert ask(kept) == b"0"
    assert "served: more than 2 connections, closing the longest idle ones" in caplog.text


def test_a_connection_that_is_being_answered_is_never_ended_for_another(loop: str) -> None:
    app = App()
    limits = ConnectionLimits(1, 600, 600, 600, 600)
    with serving(app, limits, loop) as address:
        slow = connect(address, b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert app.begun.acquire(timeout=PATIENCE)
        assert ended(connect(address))
        app.go_on.set()
        assert answer_of(slow).endswith(b"\r\n\r\n0")


def ended(connection: socket.socket) -> bool:
    """Whether the server ends the connection without a word."""
    try:
        return answer_of(connection) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [HEAD, BODY])
def test_a_client_that_sends_too_slowly_is_told_and_ended(loop: str, sent: bytes) -> None:
    with serving(App(), ConnectionLimits(idle_seconds=600, head_seconds=0.2, body_seconds=0.2), loop) as address:
        assert answer_of(connect(address, sent)) == REFUSALS[408]


def test_bytes_that_trickle_give_a_head_no_more_time(loop: str) -> None:
    with serving(App(), ConnectionLimits(idle_seconds=600, head_seconds=0.5), loop) as address:
        connection = connect(address, HEAD)

        def is_ended() -> bool:
            try:
                connection.sendall(b"x")
                return bool(connection.recv(1_000, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return False

        with closing(connection):
            wait_until(is_ended, "the server answers 408")


def test_a_client_that_sends_nothing_is_ended_before_and_after_a_request(loop: str) -> None:
    with serving(App(), ConnectionLimits(idle_seconds=2), loop) as address:
        assert ended(connect(address))
        answered = answer_of(connect(address, HEAD + b"\r\n"))
        assert answered.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_answer_is_ended(loop: str) -> None:
    with serving(App(50_000_000), ConnectionLimits(write_seconds=0.2), loop) as address:
        connection = connect(address, HEAD + b"\r\n")

        def is_reset() -> bool:
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return True
            return False

        with closing(connection):
            wait_until(is_reset, "the server ends the connection")


def test_an_answer_may_take_longer_than_a_request(loop: str) -> None:
    app = App()
    quick = ConnectionLimits(idle_seconds=2, head_seconds=0.2, body_seconds=0.2)
    with serving(app, quick, loop) as address, ExitStack() as stack:
        slow = http.client.HTTPConnection(address, timeout=PATIENCE)
        stack.enter_context(closing(slow)).request("GET", "/slow")
        assert app.begun.acquire(timeout=PATIENCE)
        assert ended(connect(address)), "its limits have passed"
        app.go_on.set()
        assert slow.getresponse().read() == b"0"


def test_requests_in_a_pipeline_and_in_pieces_are_answered(loop: str) -> None:
    with serving(App(), loop=loop) as address, closing(connect(address, HEAD + b"\r\n" + BODY)) as connection:
        connection.sendall(b"23456789" + HEAD + b"connection: close\r\n\r\n")
        assert answer_of(connection).count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"content-length: 10", b"0123456789"),
        (b"transfer-encoding: chunked", b"a\r\n0123456789\r\n0\r\n\r\n"),
        (b"expect: 100-continue\r\ncontent-length: 10", b"0123456789"),
    ],
)
def test_a_request_that_offers_an_upgrade_keeps_its_body(
    loop: str, framing: bytes, body: bytes, is_whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    head = b"POST http://x/a HTTP/1.1\r\nhost: x\r\n" + UPGRADE + framing + b"\r\n\r\n"
    with serving(app, loop=loop) as address, closing(connect(address)) as connection:
        if is_whole:
            connection.sendall(head + body)
        else:
            connection.sendall(head[:40])
            connection.sendall(head[40:])
            assert app.called.acquire(timeout=PATIENCE)
            connection.sendall(body[:4])
            connection.sendall(body[4:])
        connection.sendall(HEAD + b"connection: close\r\n\r\n")
        answers = answer_of(connection).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+) ", answers) == [b"200", b"200"]
    assert re.findall(rb"\r\n\r\n(\d+)", answers) == [b"10", b"0"]
    assert caplog.text == ""


def test_requests_in_a_pipeline_may_all_offer_an_upgrade(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    with serving(App(), loop=loop) as address:
        sent = (HEAD + UPGRADE + b"\r\n") * 2_000 + HEAD + b"connection: close\r\n\r\n"
        assert answer_of(connect(address, sent)).count(b"HTTP/1.1 200 ") == 2_001
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("sent", "status"), [(HEAD + b"x: " + b"y" * 5_000, 431), (HEAD + b"x: " + b"y" * 5_000 + b"\r\n\r\n", 431),
                         (HEAD + UPGRADE + b"x: " + b"y" * 5_000 + b"\r\n\r\n", 431), (b"\x16\x03\x01\x02\x00", 400)]
)  # fmt: skip
def test_what_is_no_request_is_refused(loop: str, sent: bytes, status: int) -> None:
    with serving(App(), loop=loop) as address:
        assert answer_of(connect(address, sent)) == REFUSALS[status]


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00", HEAD, HEAD + b"x: " + b"y" * 5_000, b"GET /%s" % (b"a" * 70_000)]
)
def test_a_bad_request_in_a_pipeline_is_not_answered_in_the_place_of_the_one_before(loop: str, sent: bytes) -> None:
    app = App()
    with serving(app, replace(PATIENT, head_seconds=0.2), loop) as address:
        connection = connect(address, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        assert app.begun.acquire(timeout=PATIENCE)
        connection.sendall(sent)
        assert ended(connection)
        app.go_on.set()


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_body_that_turns_bad_after_the_answer_began_gets_no_second_answer(loop: str, is_whole: bool) -> None:
    class Hasty(App):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            del scope
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"[: 1 + is_whole], "more_body": not is_whole})
            self.begun.release()
            while (await receive())["type"] != "http.disconnect":
                """The rest of the body."""

    app = Hasty()
    with serving(app, loop=loop) as address:
        connection = connect(address, b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n")
        assert app.begun.acquire(timeout=PATIENCE)
        connection.sendall(b"no number\r\n")
        answered = answer_of(connection)
    assert answered.count(b"HTTP/1.1 ") == 1
    assert answered.startswith(b"HTTP/1.1 200 ")
