"""Headers of HTTP as text."""

from __future__ import annotations


def header_text(value: bytes) -> str:
    """Decode the value of a header: UTF-8, as nearly all programs write it, and anything else as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
