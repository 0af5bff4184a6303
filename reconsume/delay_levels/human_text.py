"""Text for people: numbers with nouns, and foreign text made harmless."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from reconsume.delay_levels.errors import IllegalSetting


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return the number with its noun: `1 problem`, `2 problems`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def pair(option: str, text: str, form: str) -> tuple[str, str]:
    """Split `NAME=VALUE`.

    Args:
        option: the option's name, for the error.
        text: its value.
        form: the form with an example, for the error.

    Raises:
        IllegalSetting: the name or `=` is missing.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise IllegalSetting(f"{option} {text!r}: write {form}")
    return name, value


def visible(text: str) -> str:
    r"""Return the text with control and invisible characters as JSON escapes, such as `\u001b`.

    Terminals obey control characters, and invisible ones rearrange or hide their neighbours. Tabs and line ends stay.
    JSON keeps its meaning.
    """
    if text.isprintable():
        return text
    return "\r\n".join("".join(map(_visible_character, line)) for line in text.split("\r\n"))


def json_text(value: Any, **how: Any) -> str:
    """Return the value as JSON that is readable in any language and harmless on a terminal.

    Args:
        value: a value of JSON types.
        how: further arguments of `json.dumps`.
    """
    return visible(json.dumps(value, **(how | {"ensure_ascii": False})))


def _visible_character(one: str) -> str:
    # The ASCII space is the only space that Python calls printable.
    if one.isprintable() or one in "\n\t" or unicodedata.category(one) == "Zs":
        return one
    return json.dumps(one)[1:-1]
