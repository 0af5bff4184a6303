"""Text and bytes in HTTP headers, as the CloudEvents HTTP binding encodes them (§3.1.3.2)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

__all__ = ["decoded", "header_name", "header_value"]

_PLAIN: Final = re.compile(r"[!#$&-~]*", re.ASCII)
_NOT_IN_VALUE: Final = re.compile(rb'[^!-~]|["%]')
_NOT_IN_NAME: Final = re.compile(rb"[^0-9A-Za-z.-]")


def header_value(value: str | bytes) -> str:
    """Space, `"`, `%` and all but printable ASCII become `%XX`, byte by byte: for UTF-8 that is the binding's rule."""
    if isinstance(value, str):
        if _PLAIN.fullmatch(value):  # nearly all are, and each delivery has a dozen
            return value
        data = value.encode(errors="surrogateescape")
    else:
        data = value
    return _NOT_IN_VALUE.sub(_escaped, data).decode("ascii")


def header_name(name: str) -> str:
    """What may stand in a header's name; underscores go too, because common proxies drop headers with them."""
    return _NOT_IN_NAME.sub(_escaped, name.encode(errors="surrogateescape")).decode("ascii")


def decoded(value: str) -> str:
    """One round of decoding; what is no UTF-8 becomes U+FFFD, so that an app's text never fails."""
    return unquote(value, errors="replace")


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]
