"""Text that people look at: numbers with their nouns, and foreign text, which holds whatever someone wrote."""

from __future__ import annotations

import json
import unicodedata
from typing import Any


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return the number with its noun: `1 problem`, `2 problems`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def visible(text: str) -> str:
    r"""Return the text with every control and every invisible character as a JSON escape, such as `\u001b`.

    Terminals obey the former; the latter rearrange or hide what is beside them. Tabs and the ends of lines stay.
    JSON is still the same JSON.
    """
    if text.isprintable():
        return text
    return "\r\n".join("".join(map(_visible_character, line)) for line in text.split("\r\n"))


def json_text(value: Any, **how: Any) -> str:
    """Return the value as JSON that is readable in any language and harmless on a terminal.

    Args:
        value: of types that JSON has.
        how: further arguments of `json.dumps`.
    """
    return visible(json.dumps(value, **(how | {"ensure_ascii": False})))


def _visible_character(one: str) -> str:
    # Of all spaces Python calls only the ASCII one printable.
    if one.isprintable() or one in "\n\t" or unicodedata.category(one) == "Zs":
        return one
    return json.dumps(one)[1:-1]
