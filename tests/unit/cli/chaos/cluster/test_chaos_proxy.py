"""The proxy between clients and a broker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from reconsume.cli.broker.ports import free_port
from reconsume.cli.chaos.cluster.proxy import Proxy

SENT = b"x" * 20_000


@pytest.fixture
def sink() -> Iterator[socket.socket]:
    """A server that takes one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def seconds_to_pass(port: int, sink: socket.socket) -> float:
    """Send all through a new connection and wait until it has arrived."""
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        arrives, _ = sink.accept()
        with arrives:
            arrives.settimeout(30)
            begun = time.monotonic()
            threading.Thread(target=client.sendall, args=(SENT,)).start()
            left = len(SENT)
            while left:
                left -= len(arrives.recv(left))
            return time.monotonic() - begun


def test_a_slow_link_passes_on_no_more_than_its_bytes_per_second(sink: socket.socket) -> None:
    port = free_port()
    with Proxy(port, sink.getsockname()[1]) as proxy:
        proxy.limit(40_000)
        assert seconds_to_pass(port, sink) > 0.45
