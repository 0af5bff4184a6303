"""The proxy of the environment (`https_proxy`, `http_proxy`, `no_proxy`) for Java, which ignores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from reconsume.delay_levels.errors import IllegalSetting

_DIRECT: Final = ("localhost", "127.*", "[::1]")


@dataclass(frozen=True, slots=True)
class JavaProxy:
    """A proxy for downloads.

    Attributes:
        name: its place for people, without a password; empty without a proxy.
        properties: Java's system properties.
    """

    name: str
    properties: Mapping[str, str]

    @classmethod
    def of_environment(cls) -> Self:
        """Return the proxy for https.

        Raises:
            IllegalSetting: the variable names no proxy that Java can use.
        """
        found = getproxies()
        text, spared = found.get("https", found.get("all", "")), found.get("no", "")
        if not text or spared.strip() == "*":
            return cls("", {})
        try:
            address = urlsplit(text if "://" in text else f"http://{text}")
            host, port = address.hostname, address.port or 80
        except ValueError:
            address, host, port = urlsplit(""), None, 0
        if not host or address.scheme not in ("http", "https"):
            raise IllegalSetting("https_proxy names no HTTP proxy; write http://HOST:PORT, or unset it")
        properties = {
            f"{scheme}.proxy{name}": value
            for scheme in ("http", "https")
            for name, value in (("Host", host), ("Port", str(port)))
        }
        properties["http.nonProxyHosts"] = "|".join([*_DIRECT, *_spared(spared)])
        if address.username:
            properties |= {
                "http.proxyUser": unquote(address.username),
                "http.proxyPassword": unquote(address.password or ""),
            }
            properties["jdk.http.auth.tunneling.disabledSchemes"] = ""  # Java refuses plain passwords by default
        return cls(f"{host}:{port}", properties)

    def arguments(self) -> str:
        """Return the content of a file of arguments for Java: a command line would show the password to all users."""
        return "".join(f"{json.dumps(f'-D{name}={value}')}\n" for name, value in self.properties.items())


def _spared(no_proxy: str) -> list[str]:
    """Return Java's patterns: a name there means its subdomains too."""
    names = [one.strip().lstrip("*").lstrip(".") for one in no_proxy.split(",")]
    return [pattern for name in names if name for pattern in (name, f"*.{name}")]
