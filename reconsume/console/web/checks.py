"""Where a request comes from. Pure: values of headers in, a verdict out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def host_is_allowed(host: str, others: Collection[str]) -> bool:
    """Whether a console of this machine alone may answer to this `host`.

    A page of another site can have its own name lead to 127.0.0.1 (DNS rebinding); then the browser takes the console
    for a part of that site, and only the name tells.
    """
    name = _without_port(host.lower())
    return name in _LOOPBACK or name in {one.lower() for one in others}


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def is_from_another_site(fetch_site: str | None, origin: str | None, host: str) -> bool:
    """Whether a form was sent by a page that is not ours. Test: tests/unit/console/pages/test_pages.py.

    Args:
        fetch_site: `sec-fetch-site`, which browsers send over HTTPS and to this machine.
        origin: `origin`; `null` where it is kept secret, as our own pages ask for (`no-referrer`). Then only
            `fetch_site`, or in the end the token of the form, tells.
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
