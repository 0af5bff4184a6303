"""People whom a proxy has signed in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from reconsume.bridge.http.header_text import header_text
from reconsume.console.settings import ProxySettings
from reconsume.console.sign_in.access import SignedIn, printable

_PARTS: Final = re.compile(r"[,;|]")


class ProxySignIn:
    """Trusts the headers of requests from a proxy's address, and no others.

    Args:
        settings: names of headers, and the addresses of proxies.
    """

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._networks = [ipaddress.ip_network(one, strict=False) for one in settings.addresses]

    def identity_of(self, peer: str | None, headers: Mapping[str, str]) -> SignedIn | None:
        """Return the person; None without a proxy's headers.

        Args:
            peer: the remote address of the connection.
            headers: the headers of the request, with names in lower case, decoded as Latin-1.
        """
        name, teams = (
            header_text(headers.get(one, "").encode("latin-1"))
            for one in (self._settings.user_header, self._settings.teams_header)
        )
        name = printable(name.strip())
        if not name or not self._is_proxy(peer):
            return None
        return SignedIn(name, frozenset(team.strip() for team in _PARTS.split(teams) if team.strip()))

    def _is_proxy(self, peer: str | None) -> bool:
        try:
            address = ipaddress.ip_address(peer or "")
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)
