"""What comes on a connection is an answer or none, however it is cut; the sockets are in the integration tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconsume.sidecar.push.answers import AppAnswer
from reconsume.sidecar.push.http_client import BODY_LIMIT, AppClient, ConnectionEnded, Http1Connection
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import Profile, PushSettings

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Tried: 1\r\n\r\nok"


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False
        self.waiting = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.aborted


def connected() -> tuple[Http1Connection, Transport]:
    connection, transport = Http1Connection(), Transport()
    connection.connection_made(cast("Any", transport))
    return connection, transport


def answered(
    *pieces: bytes, ends: bool = False, asked: int = 1, by: Exception | None = None
) -> tuple[list[AppAnswer | str], Http1Connection]:
    """What a connection makes of these bytes; the text of an error where there is no answer."""

    async def steps() -> tuple[list[AppAnswer | str], Http1Connection]:
        connection, _ = connected()
        found: list[AppAnswer | str] = []
        rest: Iterable[bytes] = pieces
        for _ in range(asked):
            asking = asyncio.ensure_future(connection.ask(b"", b""))
            await asyncio.sleep(0)
            rest = iter(rest)
            for piece in rest:
                connection.data_received(piece)
                if asked > 1:
                    break
            if ends:
                connection.connection_lost(by)
            await asyncio.sleep(0)
            if not asking.done():
                asking.cancel()
                found.append("still waiting")
                continue
            try:
                found.append(await asking)
            except ConnectionEnded as error:
                found.append(str(error))
        return found, connection

    return asyncio.run(steps())


@pytest.mark.parametrize(
    ("url", "method", "path", "target"),
    [
        ("http://127.0.0.1:8000", "GET", "/healthz", "/healthz"),
        ("http://127.0.0.1:8000/", "GET", "/healthz", "/healthz"),
        ("http://127.0.0.1:8000/x/", "GET", "/healthz", "/x/healthz"),
        ("http://127.0.0.1:8000", "POST", "", "/"),
        ("http://127.0.0.1:8000/x/", "POST", "", "/x/"),
    ],
)
def test_a_knative_app_is_probed_below_its_url_and_posted_to_it(url: str, method: str, path: str, target: str) -> None:
    settings = PushSettings(group="departures", topics={"flights": "*"}, profile=Profile.KNATIVE, url=url)
    head = AppClient(settings)._head(method, AppRequest(path, [], b""))
    assert head.startswith(f"{method} {target} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    ("sent", "status", "headers", "body"),
    [
        (OK, 200, {"content-length": "2", "x-tried": "1"}, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, {}, b""),
        (b"HTTP/1.1 100 Continue\r\na: b\r\n\r\n" + OK, 200, {"content-length": "2", "x-tried": "1"}, b"ok"),
        (
            b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            500,
            {"transfer-encoding": "chunked"},
            b"abc",
        ),
        ("HTTP/1.1 204 No Content\r\na: поздно\r\n\r\n".encode(), 204, {"a": "поздно"}, b""),
        (b"HTTP/1.1 204 No Content\r\na: sp\xe4t\r\n\r\n", 204, {"a": "spät"}, b""),
        (b"HTTP/1.1 429 Too Many\r\nRetry-After: 5\r\ncontent-length: 0\r\n\r\n", 429, None, b""),
    ],
)
def test_an_answer(sent: bytes, status: int, headers: dict[str, str] | None, body: bytes) -> None:
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        [answer], connection = answered(*pieces)
        assert not isinstance(answer, str), answer
        assert (answer.status, answer.body, answer.cut_off) == (status, body, False)
        assert headers is None or answer.headers == headers
        assert connection.reusable


def test_two_answers_one_after_the_other() -> None:
    found, connection = answered(OK, OK.replace(b"200", b"500").replace(b"X-Tried: 1\r\n", b""), asked=2)
    assert [(one.status, len(one.headers)) for one in found if not isinstance(one, str)] == [(200, 2), (500, 1)]
    assert connection.reusable


@pytest.mark.parametrize(
    "sent", [b"HTTP/1.0 200 OK\r\n\r\nall of it", b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it"]
)
def test_a_body_without_a_length_ends_with_the_connection(sent: bytes) -> None:
    assert answered(sent)[0] == ["still waiting"]
    [answer], connection = answered(sent, ends=True)
    assert not isinstance(answer, str)
    assert answer.body == b"all of it"
    assert not connection.reusable


def test_an_app_that_will_hang_up_gets_no_further_request() -> None:
    [answer], connection = answered(OK.replace(b"X-Tried: 1", b"connection: close"))
    assert not isinstance(answer, str)
    assert not connection.reusable


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\x16\x03\x01 no http at all", "no HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 100 Continue\r\na: " + b"x" * 70_000, "the head of its answer is too large"),
        (b"HTTP/1.1 100 Continue\r\na: b\r\n\r\n", "cut off"),
        (b"HTTP/1.1 50", "cut off"),
        (b"", "cut off"),
    ],
)
def test_what_is_no_answer(sent: bytes, why: str) -> None:
    [answer], connection = answered(sent, ends=True)
    assert isinstance(answer, str)
    assert answer.startswith(why)
    assert "x" * 100 not in answer
    assert not connection.reusable


@pytest.mark.parametrize("status", [200, 422, 500])
@pytest.mark.parametrize(
    ("rest", "headers", "body"),
    [
        (b" No", {}, b""),
        (b" No\r\nx-tried: 1\r\ncontent-le", {"x-tried": "1"}, b""),
        (b" No\r\nx-tried: 1\r\ncontent-length: 5\r\n\r\nab", None, b"ab"),
        (b" No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", None, b"ab"),
        (b" No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nno chunk", None, b"ab"),
    ],
    ids=["status line", "head", "body", "chunks", "no chunk"],
)
@pytest.mark.parametrize("reset", [False, True])
def test_once_a_status_has_come_it_is_the_answer(
    status: int, rest: bytes, headers: dict[str, str] | None, body: bytes, reset: bool
) -> None:
    sent = f"HTTP/1.1 {status}".encode() + rest
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        [answer], connection = answered(*pieces, ends=True, by=ConnectionResetError() if reset else None)
        assert not isinstance(answer, str), answer
        assert (answer.status, answer.body, answer.cut_off) == (status, body, True)
        assert headers is None or answer.headers == headers
        assert not connection.reusable


def test_the_status_of_an_earlier_answer_is_not_that_of_the_next() -> None:
    async def steps() -> None:
        connection, _ = connected()
        asking = asyncio.ensure_future(connection.ask(b"", b""))
        await asyncio.sleep(0)
        connection.data_received(OK)
        assert (await asking).status == 200
        asking = asyncio.ensure_future(connection.ask(b"", b""))
        await asyncio.sleep(0)
        assert connection.cut_off() is None
        connection.data_received(b"HTTP/1.")
        connection.connection_lost(None)
        with pytest.raises(ConnectionEnded):
            await asking

    asyncio.run(steps())


def test_of_a_long_answer_only_the_beginning_is_read() -> None:
    [answer], connection = answered(
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", b"x" * 60_000, b"y" * BODY_LIMIT
    )
    assert not isinstance(answer, str)
    assert len(answer.body) == BODY_LIMIT
    assert not connection.reusable


def test_headers_behind_the_body_change_no_answer_and_take_no_memory() -> None:
    async def steps() -> AppAnswer:
        connection, transport = connected()
        asking = asyncio.ensure_future(connection.ask(b"", b""))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 422 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n")
        sent = 0
        while not transport.aborted and sent < 64:
            trailers = [f"t-{sent}-{number}: {'x' * 1_000}\r\n" for number in range(1_000)]
            connection.data_received("".join(trailers).encode())
            sent += 1
        assert transport.aborted
        return await asking

    answer = asyncio.run(steps())
    assert (answer.status, answer.headers, answer.body) == (422, {"transfer-encoding": "chunked"}, b"ab")


@pytest.mark.parametrize("more", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_second_answer_to_one_request_changes_nothing_and_is_the_last_of_its_connection(more: bytes) -> None:
    [answer], connection = answered(OK + more + OK.replace(b"X-Tried", b"reconsume-delay-level"))
    assert not isinstance(answer, str)
    assert answer.headers == {"content-length": "2", "x-tried": "1"}
    assert not connection.reusable


def test_what_nobody_asked_for_ends_the_connection() -> None:
    async def steps() -> None:
        connection, transport = connected()
        connection.data_received(OK)
        assert transport.aborted
        assert not connection.reusable
        with pytest.raises(ConnectionEnded, match="closed the connection"):
            await connection.ask(b"", b"")

    asyncio.run(steps())


def test_an_answer_that_comes_before_the_request_was_read_is_the_last_of_its_connection() -> None:
    async def steps() -> None:
        connection, transport = connected()
        asking = asyncio.ensure_future(connection.ask(b"head", b"x" * 2_000_000))
        await asyncio.sleep(0)
        transport.waiting = 1_000_000
        connection.data_received(OK.replace(b"200 OK", b"413 No"))
        assert (await asking).status == 413
        assert not connection.reusable, "the app waits for the rest"

    asyncio.run(steps())


@given(
    st.lists(st.binary(max_size=200) | st.sampled_from([OK, OK[:20], OK[20:], b"\r\n\r\n"]), max_size=6), st.booleans()
)
@example([b"HTTP/1.1 304 x\r\ncontent-length: 9\r\n\r\n", b"more"], True)
@example([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n"], True)
def test_any_bytes_are_an_answer_or_none(pieces: list[bytes], ends: bool) -> None:
    [answer], connection = answered(*pieces, ends=ends)
    if ends:
        assert answer != "still waiting"
        assert not connection.reusable
