"""Listen addresses of a process, and the token for callers from other machines."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from reconsume.bridge.process.environment import read_secret_file
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import IllegalSetting

_FEWEST_CHARACTERS: Final = 16
_BACKLOG: Final = 2048
_MISSING_HERE: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""The error of a machine without IPv6, or without IPv4."""
_TRIES: Final = 10
"""Tries for a free port: the port of the first address may be taken on the second."""

logger = SafeLogger(__name__)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host; a name other than `localhost` counts as reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(section: str, host: str, token: SecretStr | None, token_file: Path | None) -> str | None:
    """Return the token that callers must send; None if they need none.

    Args:
        section: the section of the settings, such as `sidecar`.
        host: the listen address.
        token: the token itself.
        token_file: or a file that holds it.

    Raises:
        IllegalSetting: the token cannot be read, is too short, is illegal in a header, or is missing although other
            machines can reach the host.
    """
    if token is not None:
        found, where = token.get_secret_value().strip(), f"{section}.token"
    elif token_file is not None:
        found = read_secret_file(f"setting {section}.token_file", token_file).strip()
        where = f"{section}.token_file {token_file}"
    elif is_loopback(host):
        return None
    else:
        raise IllegalSetting(
            f"setting {section}.listen.host: other machines can reach {host}, so it needs a token; name "
            f"a file with one by --token-file (or RECONSUME_{section.upper()}__TOKEN_FILE), or listen on "
            "127.0.0.1"
        )
    if len(found) < _FEWEST_CHARACTERS:
        raise IllegalSetting(
            f"setting {where}: a token needs at least {_FEWEST_CHARACTERS} characters, this one has {len(found)}; "
            "make one: openssl rand -hex 32"
        )
    if not (found.isascii() and found.isprintable()):
        raise IllegalSetting(
            f"setting {where}: a token must be one line of printable ASCII, for an HTTP header carries it; make one: "
            "openssl rand -hex 32"
        )
    return found


def listening_sockets(setting: str, host: str, port: int | None, default: int = 0) -> list[socket.socket]:
    """Listen on every address of a host; `::` is all addresses, of IPv6 and of IPv4.

    Args:
        setting: the setting, such as `sidecar.listen`; its last word is the option of the command line.
        host: an address, or a name.
        port: 0 picks a free port; None picks the default port, or a free one if that is taken.
        default: the default port of the role.

    Raises:
        IllegalSetting: the address cannot be used.
    """
    host = host.strip("[]")
    wanted = default if port is None else port
    try:
        try:
            return _listen(host, wanted)
        except OSError as error:
            if port is not None or error.errno != errno.EADDRINUSE:
                raise
        found = _listen(host, 0)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a legal host name
        raise IllegalSetting(_refusal(setting, _shown(host, wanted), error)) from None
    logger.warning("%s: port %d is taken, using %s", setting, wanted, shown_address(found[0]))
    return found


def shown_address(listening: socket.socket) -> str:
    """Return `host:port`, or `[host]:port`."""
    return _shown(*listening.getsockname()[:2])


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refusal(setting: str, address: str, error: Exception) -> str:
    option = f"--{setting.rpartition('.')[2]} HOST:PORT"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"setting {setting}: {address} is taken by another process; choose another port with {option}, 0 for any"
    return f"setting {setting}: {address} cannot be listened on ({error}); choose another address with {option}"


def _listen(host: str, port: int) -> list[socket.socket]:
    for _ in range(_TRIES - 1):
        try:
            return _listen_once(host, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _listen_once(host, port)


def _listen_once(host: str, port: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    missing = OSError("the name has no address")
    # A name may have one address twice, as with two lines for localhost in /etc/hosts.
    for family, address in dict.fromkeys(_addresses(host)):
        try:
            where = (address[0], made[0].getsockname()[1] if made else port, *address[2:])
            made.append(socket.create_server(where, family=family, backlog=_BACKLOG))
            made[-1].setblocking(False)
        except OSError as error:
            if error.errno not in _MISSING_HERE:
                for one in made:
                    one.close()
                raise
            missing = error
    if not made:
        raise missing
    return made


def _addresses(host: str) -> Iterator[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    for one in ("::", "0.0.0.0") if host == "::" else (host,):  # noqa: S104 - asked for
        for family, _, _, _, address in socket.getaddrinfo(one, None, type=socket.SOCK_STREAM):
            yield family, address
