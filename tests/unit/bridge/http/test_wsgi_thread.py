"""The management server among idle, slow and wrong clients, on real sockets."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from reconsume.bridge.http.listening import listening_sockets
from reconsume.bridge.http.open_connections import ConnectionLimits
from reconsume.bridge.http.wsgi_thread import WORKERS, Refused, Start, WsgiThread, size_of_request
from tests.support.waiting import PATIENCE, wait_until

PATIENT = ConnectionLimits(idle_seconds=600, head_seconds=600, body_seconds=600, write_seconds=600)


def ok(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode() + environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0))]


@contextmanager
def serving(application: Callable[..., Iterable[bytes]] = ok, limits: ConnectionLimits = PATIENT) -> Iterator[str]:
    server = WsgiThread(application, listening_sockets("management", "127.0.0.1", 0), "served", limits)
    try:
        yield server.address
    finally:
        server.close()


def connect(address: str, sent: bytes = b"") -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), PATIENCE)
    made.sendall(sent)
    return made


def get(address: str, path: str = "/livez") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    with closing(connection):
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nhost: x\r\n", b"PUT / HTTP/1.1\r\ncontent-length: 9\r\n\r\n1"]
)
def test_a_probe_is_answered_among_300_clients_that_send_nothing_or_too_little(sent: bytes) -> None:
    with serving() as address, ExitStack() as stack:
        before = threading.active_count()
        for _ in range(300):
            stack.enter_context(closing(connect(address, sent)))
        assert get(address) == (200, b"/livez")
        assert threading.active_count() <= before  # fewer: those of an earlier test end


def test_the_connection_that_waited_longest_makes_room() -> None:
    with serving(limits=ConnectionLimits(connections=2, idle_seconds=600)) as address, ExitStack() as stack:
        first, second = (stack.enter_context(closing(connect(address))) for _ in range(2))
        assert get(address)[0] == 200
        assert first.recv(1) == b""
        second.sendall(b"GET /second HTTP/1.0\r\n\r\n")
        assert answer_of(second).endswith(b"/second")


@pytest.mark.parametrize("sent", [b"GET /livez HTTP/1.1\r\n", b"PUT / HTTP/1.1\r\ncontent-length: 9\r\n\r\n1"])
def test_a_client_that_sends_too_slowly_is_ended(sent: bytes) -> None:
    with serving(limits=ConnectionLimits(idle_seconds=2)) as address:
        assert answer_of(connect(address, sent)).startswith(b"HTTP/1.0 408 ")


def test_a_client_that_sends_nothing_is_ended() -> None:
    with serving(limits=ConnectionLimits(idle_seconds=0.2)) as address:
        assert answer_of(connect(address)) == b""


def test_a_client_that_does_not_read_its_answer_is_ended() -> None:
    def large(_environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        start("200 OK", [])
        return [b"x" * 50_000_000]

    with serving(large, ConnectionLimits(write_seconds=0.2)) as address:
        connection = connect(address, b"GET / HTTP/1.0\r\n\r\n")
        with closing(connection):
            wait_until(lambda: is_reset(connection), "the server ends the connection")


def is_reset(connection: socket.socket) -> bool:
    """Whether the other end gave up: writing into it fails then, without reading what it had sent."""
    try:
        connection.sendall(b"x")
    except ConnectionError:
        return True
    return False


def test_more_requests_than_threads_wait_their_turn() -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        begun.release()
        assert go_on.wait(PATIENCE)
        return ok(environ, start)

    with serving(slow) as address:
        asked = [connect(address, b"GET /%d HTTP/1.0\r\n\r\n" % number) for number in range(WORKERS + 5)]
        for _ in range(WORKERS):
            assert begun.acquire(timeout=PATIENCE)
        go_on.set()
        assert [answer_of(one).rpartition(b"\n")[2] for one in asked] == [b"/%d" % n for n in range(WORKERS + 5)]


def test_an_answer_that_has_begun_is_given_when_the_server_closes() -> None:
    go_on, begun = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        begun.set()
        assert go_on.wait(PATIENCE)
        return ok(environ, start)

    with serving(slow) as address:
        asked = connect(address, b"GET /last HTTP/1.0\r\n\r\n")
        assert begun.wait(PATIENCE)
        go_on.set()
    assert answer_of(asked).endswith(b"/last")


def test_an_application_that_fails_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(_environ: dict[str, Any], _start: Start) -> Iterable[bytes]:
        raise ValueError("planted")

    with serving(wrong) as address:
        assert [get(address)[0] for _ in range(WORKERS + 1)] == [500] * (WORKERS + 1)
    assert "planted" in caplog.text


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, 431),
        (b"PUT / HTTP/1.1\r\ncontent-length: 70000\r\n\r\n", 413),
        (b"PUT / HTTP/1.1\r\ncontent-length: " + b"9" * 5_000 + b"\r\n\r\n", 413),
        (b"PUT / HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"\x16\x03\x01 \x02\x00\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(sent: bytes, status: int) -> None:
    with serving() as address:
        assert b"%d" % status in answer_of(connect(address, sent))


def test_a_request_in_pieces_and_one_with_bare_line_feeds() -> None:
    with serving() as address:
        connection = connect(address, b"PUT /a HTTP/1.1\r\nCont")
        connection.sendall(b"ent-Length: 3\r\n\r\nx")
        connection.sendall(b"yz")
        assert answer_of(connection).endswith(b"/axyz")
        assert answer_of(connect(address, b"GET /b HTTP/1.0\n\n")).endswith(b"/b")


@pytest.mark.parametrize(
    ("received", "size"),
    [
        (b"", None),
        (b"GET / HTTP/1.0\r\n", None),
        (b"GET / HTTP/1.0\r\n\r\n", 18),
        (b"PUT / HTTP/1.0\r\nContent-Length: 5\r\n\r\n", 42),
        (b"PUT / HTTP/1.0\r\nx-content-length: 5\r\n\r\ncontent-length: 7\r\n", 39),
    ],
)
def test_the_size_of_a_request(received: bytes, size: int | None) -> None:
    assert size_of_request(received) == size


def test_a_length_that_no_number_of_python_has_is_refused() -> None:
    with pytest.raises(Refused, match="413"):
        size_of_request(b"PUT / HTTP/1.0\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5_000))


def test_a_head_without_an_end_is_refused_at_its_limit() -> None:
    assert size_of_request(b"x" * 65_536) is None
    with pytest.raises(Refused):
        size_of_request(b"x" * 65_537)


@pytest.mark.parametrize("begins", [False, True])
def test_an_application_that_fails_in_the_middle_of_its_answer_gives_no_half_of_it(
    begins: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        if begins:
            yield b"half of it"
        raise RuntimeError("a defect")

    with serving(fails) as address:
        status, body = get(address)
    assert (status, body) == (500, b"500 Internal Server Error\n")
    assert "a defect" in caplog.text
