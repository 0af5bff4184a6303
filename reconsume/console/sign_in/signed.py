"""Signed values that a browser keeps and cannot change."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any, Final

_ALGORITHM: Final = "sha256"


def sign(key: bytes, purpose: str, content: dict[str, Any], until_ms: float) -> str:
    """Return the content as signed text, valid until a moment.

    Args:
        key: the key of this console, or of all consoles behind one name.
        purpose: a value for one purpose is refused for another.
        content: a JSON object.
        until_ms: the end of its validity.
    """
    text = json.dumps([content, int(until_ms)], separators=(",", ":"))
    body = base64.urlsafe_b64encode(text.encode()).decode()
    return f"{body}.{_mac(key, purpose, body)}"


def open_signed(key: bytes, purpose: str, text: str, now_ms: float) -> dict[str, Any] | None:
    """Return the content of a signed text; None if the signature is wrong or it has expired."""
    body, _, mac = text.rpartition(".")
    if not hmac.compare_digest(mac.encode(errors="surrogatepass"), _mac(key, purpose, body).encode()):
        return None
    content, until_ms = json.loads(base64.urlsafe_b64decode(body))
    return content if now_ms < until_ms else None


def _mac(key: bytes, purpose: str, body: str) -> str:
    return hmac.digest(key, f"{purpose}\n{body}".encode(errors="surrogatepass"), _ALGORITHM).hex()
