"""Addresses that processes listen on: taken ports, IPv6, names."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from reconsume.bridge.http.listening import listening_sockets, shown_address
from reconsume.bridge.process import ports
from reconsume.delay_levels.errors import IllegalSetting


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of 127.0.0.1 that another process has."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        yield other.getsockname()[1]


def listen(host: str, port: int | None = 0, default: int = 0, *, setting: str = "management") -> list[str]:
    """The addresses that were had, each of which answers."""
    with ExitStack() as stack:
        made = [stack.enter_context(closing(one)) for one in listening_sockets(setting, host, port, default)]
        for one in made:
            stack.enter_context(closing(socket.create_connection(one.getsockname()[:2], 60)))
        return [shown_address(one) for one in made]


def needs_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


def test_every_role_has_ports_of_its_own() -> None:
    defaults = [getattr(ports, name) for name in ports.__all__]
    assert len(set(defaults)) == len(defaults) == 5


def test_a_default_management_port_that_is_taken_is_replaced_and_the_log_tells_by_which(
    taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        (address,) = listen("127.0.0.1", None, taken)
    assert address != f"127.0.0.1:{taken}"
    assert f"management: port {taken} is taken, using {address}" in caplog.text


def test_a_default_management_port_that_is_free_is_used() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
    assert listen("127.0.0.1", None, port) == [f"127.0.0.1:{port}"]


@pytest.mark.parametrize(
    ("setting", "option"),
    [("management", "--management"), ("sidecar.listen", "--listen"), ("console.listen", "--listen")],
)
def test_a_port_that_was_asked_for_and_is_taken_is_refused_with_the_option(
    taken: int, setting: str, option: str
) -> None:
    with pytest.raises(IllegalSetting) as refused:
        listen("127.0.0.1", taken, setting=setting)
    assert str(refused.value) == (
        f"setting {setting}: 127.0.0.1:{taken} is taken by another process; choose another port with "
        f"{option} HOST:PORT, 0 for any"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "", "a" * 300])
def test_an_address_that_is_not_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(IllegalSetting, match="choose another address with --management"):
        listen(host, None, 15_082)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_with_and_without_brackets(host: str) -> None:
    needs_ipv6()
    (address,) = listen(host)
    assert address.startswith("[::1]:")


def test_two_colons_are_every_address_of_ipv6_and_of_ipv4() -> None:
    needs_ipv6()
    with ExitStack() as stack:
        made = [stack.enter_context(closing(one)) for one in listening_sockets("management", "::", 0)]
        port = made[0].getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            stack.enter_context(closing(socket.create_connection((host, port), 60)))


def test_two_colons_are_ipv4_alone_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def without_ipv6(family: int = -1, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, *more)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    made = listening_sockets("management", "::", 0)
    monkeypatch.undo()
    with ExitStack() as stack:
        assert [stack.enter_context(closing(one)).getsockname()[0] for one in made] == ["0.0.0.0"]


@pytest.mark.parametrize("port", [0, None])
def test_a_name_of_several_addresses_is_listened_on_at_each(monkeypatch: pytest.MonkeyPatch, port: int | None) -> None:
    """`/etc/hosts` may name one address twice."""
    needs_ipv6()
    found = [(family, socket.SOCK_STREAM, 6, "", (host, 0)) for family, host in
             ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.1"))]  # fmt: skip
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    made = listening_sockets("console.listen", "localhost", port, 0)
    monkeypatch.undo()
    with ExitStack() as stack:
        addresses = [shown_address(stack.enter_context(closing(one))) for one in made]
    chosen = addresses[0].rpartition(":")[2]
    assert addresses == [f"[::1]:{chosen}", f"127.0.0.1:{chosen}"]
