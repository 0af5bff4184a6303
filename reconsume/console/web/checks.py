"""Checks of a request's origin, from header values alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def host_is_allowed(host: str, others: Collection[str]) -> bool:
    """Return whether a console that listens on loopback only may answer to this `host`.

    A page of another site can point its own name to 127.0.0.1 (DNS rebinding). The browser then treats the console as
    part of that site, and only the host name reveals it.
    """
    name = _without_port(host.lower())
    return name in _LOOPBACK or name in {one.lower() for one in others}


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def is_from_another_site(fetch_site: str | None, origin: str | None, host: str) -> bool:
    """Return whether a page of another site sent a form.

    Args:
        fetch_site: `sec-fetch-site`, which browsers send over HTTPS and to this machine.
        origin: `origin`; `null` if it is withheld, as our own pages request (`no-referrer`). Then only `fetch_site`,
            or finally the token of the form, decides.
        host: `host`.
    """
    if fetch_site is not None:
        return fetch_site not in ("same-origin", "none") or _differs(origin, host)
    return _differs(origin, host)


def _differs(origin: str | None, host: str) -> bool:
    if origin is None or origin == "null":
        return False
    try:
        return urlsplit(origin).netloc.lower() != host.lower()
    except ValueError:
        return True
