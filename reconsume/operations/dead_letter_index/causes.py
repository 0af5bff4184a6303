"""Labels of causes, so that a thousand dead letters with the same cause count together."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Final

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import regular_expression

UNKNOWN_CAUSE: Final = "(no cause)"
_LONGEST: Final = 120
_READ: Final = 500
"""The number of characters of a class, and of a cause, that count."""
_LARGEST: Final = 2**31 - 1
"""The largest number in the header of a SQLite file."""
_PARTS: Final = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)\]]+"), "<url>"),
    (re.compile(r"\b[^\s@'\"<>(]+@[^\s@'\"<>)]+\.[a-zA-Z]{2,}\b"), "<address>"),
    (re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?![\w.])"), "<host>"),
    (re.compile(r"(?<![\w.-])(?:[a-zA-Z0-9][a-zA-Z0-9-]*\.)+[a-zA-Z0-9-]*[a-zA-Z0-9]:\d{1,5}\b"), "<host>"),
    (re.compile(r"(?<![\w.-])(?:[a-z0-9][a-z0-9-]*\.){2,}[a-z]{2,}(?![\w.-])"), "<host>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"), "<id>"),
    (re.compile(r"\d+(?:[.,:_/-]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)
"""Parts that vary from message to message, and their placeholders."""


class CauseLabels:
    """Assigns a label to each cause.

    Args:
        rules: labels by regular expressions; the first that matches the class or the cause counts. Otherwise the label
            is the class, and the text without ids, numbers and host names.

    Raises:
        IllegalSetting: an invalid expression, or a blank label.
    """

    def __init__(self, rules: Mapping[str, str] | None = None) -> None:
        self._rules: list[tuple[re.Pattern[str], str]] = []
        for pattern, label in (rules or {}).items():
            self._rules.append((regular_expression(pattern, "cause_labels:"), label))
            if not label.strip():
                raise IllegalSetting(f"cause_labels: the label of {pattern!r} is blank; give it a name")

    @property
    def fingerprint(self) -> int:
        """Return a number that changes with the rules, and so with the labels in an index."""
        rules = [(pattern.pattern, label) for pattern, label in (*self._rules, *_PARTS)]
        return zlib.crc32(repr(rules).encode(errors="backslashreplace")) & _LARGEST

    def label(self, exception_class: str | None, cause: str | None) -> str:
        """Return the label of a cause, at most 120 characters."""
        kind, text = (exception_class or "")[:_READ], (cause or "")[:_READ]
        said = ": ".join(filter(None, (kind, text)))
        for pattern, label in self._rules:
            if pattern.search(said):
                return label[:_LONGEST]
        name = kind.rpartition(".")[2]
        line = text.partition("\n")[0]
        for pattern, stand_in in _PARTS:
            line = pattern.sub(stand_in, line)
        found = ": ".join(filter(None, (name, line.strip())))
        return found[:_LONGEST] or UNKNOWN_CAUSE
