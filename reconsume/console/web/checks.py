"""The rights of a request to the console. Pure: values of headers in, a verdict out."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_BASIC: Final = "basic "
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LONGEST_NAME: Final = 64
NOBODY: Final = "-"


class ConsoleUser(NamedTuple):
    """The caller: the name that the browser gave, for the log, and whether the password was the token."""

    name: str
    is_known: bool


def user_of(authorization: str, token: str | None) -> ConsoleUser:
    """Return the user of the header `authorization`: HTTP Basic with any user name, and the token as password.

    The time it takes tells nothing of how much of the token was right.
    """
    name, password = _basic(authorization)
    return ConsoleUser(_printable(name) or NOBODY, token is None or same_secret(password, token))


def same_secret(shown: str, secret: str) -> bool:
    """Whether they are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(shown.encode(errors="surrogatepass"), secret.encode())


def token_of_forms(token: str | None) -> str:
    """Return the token in the forms of this console, which another site cannot know.

    Made of the token where there is one: several consoles behind one name then take each other's forms.
    """
    if token is None:
        return secrets.token_urlsafe(24)
    return hmac.digest(token.encode(), b"forms of reconsume console", "sha256").hex()


def _basic(authorization: str) -> tuple[str, str]:
    if authorization[: len(_BASIC)].lower() != _BASIC:
        return "", ""
    try:
        text = base64.b64decode(authorization[len(_BASIC) :].strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return "", ""
    name, _, password = text.partition(":")
    return name, password


def _printable(name: str) -> str:
    """A name as it may stand in a log: one line, not long."""
    return "".join(one if one.isprintable() else "?" for one in name[:_LONGEST_NAME])


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
