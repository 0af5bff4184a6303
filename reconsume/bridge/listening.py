"""Where a process listens for people and programs, and the token that it wants of those from other machines."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["is_loopback", "listening_socket", "read_token"]

_FEWEST_CHARACTERS: Final = 16
_BACKLOG: Final = 2048


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; a name other than `localhost` may be anything."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(section: str, host: str, token: SecretStr | None, token_file: Path | None) -> str | None:
    """The token that callers must show; None if they need none.

    Args:
        section: of the settings, such as `sidecar`.
        host: that is listened on.
        token: itself.
        token_file: or what holds it.

    Raises:
        IllegalSetting: it cannot be read, is too short, or is missing although other machines can reach the host.
    """
    if token is not None:
        found, where = token.get_secret_value().strip(), f"{section}.token"
    elif token_file is not None:
        found, where = _read(section, token_file), f"{section}.token_file {token_file}"
    elif is_loopback(host):
        return None
    else:
        raise IllegalSetting(
            f"setting {section}.listen.host: {host} can be reached from other machines, and there is no token; name "
            f"a file that holds one with --token-file (or RECONSUME_{section.upper()}__TOKEN_FILE), or listen on "
            "127.0.0.1"
        )
    if len(found) < _FEWEST_CHARACTERS:
        raise IllegalSetting(
            f"setting {where}: a token needs at least {_FEWEST_CHARACTERS} characters, this one has {len(found)}; "
            "make one: openssl rand -hex 32"
        )
    return found


def _read(section: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise IllegalSetting(f"setting {section}.token_file: {file} cannot be read: {error}") from None


def listening_socket(section: str, host: str, port: int) -> socket.socket:
    """Listen; port 0 takes a free one.

    Raises:
        IllegalSetting: the address cannot be had.
    """
    made = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        if made is not None:
            made.close()
        raise IllegalSetting(
            f"setting {section}.listen: {host}:{port} cannot be listened on ({error}); use another port, or 0 for any"
        ) from None
    return made
