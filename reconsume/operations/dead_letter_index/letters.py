"""Values of the index: a dead letter, which ones are wanted, and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState

__all__ = ["MOST_OF_KEY", "Counted", "IndexFull", "IndexedLetter", "LetterFilter", "OpenLetters", "Progress"]

MOST_OF_KEY: Final = 512
"""Bytes of a record's key that the index holds."""


class IndexFull(ReconsumeError):
    """The index has reached its size, or its disk is full; it stays as it is."""


@dataclass(frozen=True, slots=True)
class IndexedLetter:
    """A dead letter without its value.

    Attributes:
        label: its cause, as `CauseLabels` gives it.
        size: bytes of key and value.
        headers: names and texts; what goes beyond 4 KiB is left out.
        state: what became of it; None while it is open.
    """

    key: DeadLetterKey
    group: str
    message_id: str
    origin_topic: str | None
    record_key: bytes | None
    label: str
    exception_class: str | None
    cause: str | None
    attempt: int | None
    replay_times: int
    size: int
    headers: Mapping[str, str]
    state: DeadLetterState | None = None


class Progress(NamedTuple):
    """How far a partition is read.

    Attributes:
        topic_id: of Kafka; a topic that was made again has another one.
        next: the first offset that was not read.
    """

    topic_id: str
    next: int


class OpenLetters(NamedTuple):
    """The open dead letters of a group.

    Attributes:
        last_hour: those of them that were stored in the last hour.
        last_day: those of the last 24 hours.
        oldest_ms: when the oldest was stored.
    """

    number: int
    last_hour: int
    last_day: int
    oldest_ms: int


class Counted(NamedTuple):
    """So many dead letters of one kind, and when the first and the last of them were stored."""

    value: str
    number: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are wanted; None takes any.

    Attributes:
        text: is in the cause or the exception's class; the case of ASCII letters does not matter.
        header: a name and a text; the header has exactly that text.
        since_ms: stored then or later.
        until_ms: stored before that.
    """

    group: str | None = None
    state: str | None = None
    label: str | None = None
    text: str | None = None
    key: bytes | None = None
    message_id: str | None = None
    header: tuple[str, str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition and its values."""
        conditions: dict[str, Any] = {
            '"group" = ?': self.group,
            "state = ?": self.state,
            "label = ?": self.label,
            "message_id = ?": self.message_id,
            "key = ?": self.key and self.key[:MOST_OF_KEY],
            "stored_ms >= ?": self.since_ms,
            "stored_ms < ?": self.until_ms,
        }
        if self.text is not None:
            like = "%" + self.text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
            conditions[r"(coalesce(exception_class, '') || ' ' || coalesce(cause, '')) LIKE ? ESCAPE '\'"] = like
        if self.header is not None:
            conditions["json_extract(headers, ?) = ?"] = self.header
        used = {one: value for one, value in conditions.items() if value is not None}
        values: list[Any] = []
        for one, value in used.items():
            values += (f"$.{json.dumps(value[0])}", value[1]) if one.startswith("json_extract") else (value,)
        return " AND ".join(used) or "1", values
