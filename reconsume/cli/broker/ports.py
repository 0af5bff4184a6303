"""Free ports of this machine."""

from __future__ import annotations

import secrets
import socket
from typing import Final

_HOST: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 32_000)
"""Below the system's ports for outgoing connections: such a port stays free while its owner is down."""


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now, and stay free while their owners are down."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((_HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def free_port() -> int:
    """Return one of them."""
    return free_ports(1)[0]
