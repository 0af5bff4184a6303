"""Values of the index: a dead letter, filters, and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Final, NamedTuple, Self

from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.dead_letter_states import OPEN, DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.resend import short_id, short_key

_MOST_OF_HEADERS: Final = 4_096
_MOST_OF_TEXT: Final = 2_000
"""The maximum of characters of a class, a cause, and each text of a state."""
_HAS_HEADER: Final = (
    "instr(headers, ?) AND EXISTS (SELECT 1 FROM json_each(headers) WHERE json_each.key = ? AND json_each.value = ?)"
)
"""The search for the text spares most rows the parsing, which takes four times as long."""
_FIELDS: Final = (
    *("group", "message_id", "born_ms", "origin_topic", "record_key", "label", "exception_class", "cause", "attempt"),
    *("replay_times", "size"),
)


class IndexDamaged(ReconsumeError):
    """The index cannot be read: its file is damaged, and the process that fills it begins again, or its disk fails."""


class IndexFull(ReconsumeError):
    """The index has reached its maximum size, or its disk is full; it stays unchanged."""


@dataclass(frozen=True, slots=True)
class IndexedLetter:
    """A dead letter without its value.

    Attributes:
        born_ms: timestamp of the first copy; None if unknown.
        label: the label of its cause, from `CauseLabels`.
        size: bytes of key, value and headers.
        headers: names and texts; the index keeps those that fit into 4,096 characters.
        state: its state; None while it is open.
    """

    key: DeadLetterKey
    group: str
    message_id: str
    born_ms: int | None
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
    """The progress of a partition.

    Attributes:
        topic_id: Kafka's id of the topic; a recreated topic has another one.
        next: the first unread offset.
    """

    topic_id: str
    next: int


class OpenLetters(NamedTuple):
    """The open dead letters of a group.

    Attributes:
        last_hour: the number stored in the last hour.
        last_day: the number stored in the last 24 hours.
        oldest_ms: when the oldest was stored.
    """

    number: int
    last_hour: int
    last_day: int
    oldest_ms: int


class Counted(NamedTuple):
    """The number of dead letters of one kind, and when the first and the last of them were stored."""

    value: str
    number: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class LetterFilter(DeadLetterFilter):
    """A filter of a group's dead letters, or of all groups'; texts are not searched in stack traces."""

    group: str | None = None

    @classmethod
    def of(cls, group: str, wanted: DeadLetterFilter) -> Self:
        """Return the filter for one group."""
        return cls(group=group, **{one.name: getattr(wanted, one.name) for one in fields(wanted)})

    @property
    def table(self) -> str:
        """Return the table with the index to search; SQLite alone would read all letters of the group by time."""
        if self.message_id is not None:
            return "letters INDEXED BY by_message"
        return "letters" if self.key is None else "letters INDEXED BY by_key"

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition and its values."""
        conditions: dict[str, Any] = {
            '"group" = ?': self.group,
            "state = ?": self.state,
            "label = ?": self.label,
            "message_id = ?": self.message_id and short_id(self.message_id),
            "origin_topic = ?": self.origin_topic and short_id(self.origin_topic),
            "key = ?": None if self.key is None else short_key(self.key.encode()),
            "stored_ms >= ?": self.since_ms,
            "stored_ms < ?": self.until_ms,
        }
        if self.text is not None:
            like = "%" + self.text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
            conditions[r"(coalesce(exception_class, '') || ' ' || coalesce(cause, '')) LIKE ? ESCAPE '\'"] = like
        used = {one: value for one, value in conditions.items() if value is not None}
        values = list(used.values())
        if self.header is not None:
            name, _, text = self.header.partition("=")
            used[_HAS_HEADER] = self.header
            values += _as_json({name: text})[1:-1], name, text
        return " AND ".join(used) or "1", values


def letter_row(one: IndexedLetter) -> tuple[Any, ...]:
    """Return the values of a letter's row, without its state; foreign programs may have written texts of any length."""
    return (
        *(*one.key, one.group, short_id(one.message_id), one.born_ms, one.origin_topic and short_id(one.origin_topic)),
        *(one.record_key and short_key(one.record_key), one.label),
        *(text and text[:_MOST_OF_TEXT] for text in (one.exception_class, one.cause)),
        *(one.attempt, one.replay_times, one.size, _bounded(one.headers)),
    )


def state_row(one: DeadLetterState | None) -> tuple[Any, ...]:
    """Return the values of a state; None is open."""
    state, at_ms, *texts = (OPEN, 0, "", "", "", "") if one is None else astuple(one)
    return state, at_ms, *(text[:_MOST_OF_TEXT] for text in texts)


def letter_of_row(row: Sequence[Any]) -> IndexedLetter:
    """Return the letter of a row with its state."""
    state = DeadLetterState(*row[16:])
    found: dict[str, Any] = dict(zip(_FIELDS, row[4:15], strict=True))
    return IndexedLetter(
        key=DeadLetterKey(*row[:4]),
        headers=json.loads(row[15]),
        state=None if state.state == OPEN else state,
        **found,
    )


def _bounded(headers: Mapping[str, str]) -> str:
    kept: dict[str, str] = {}
    left = _MOST_OF_HEADERS
    for name, text in headers.items():
        if (size := len(name) + len(text)) <= left:
            left -= size
            kept[name] = text
    return _as_json(kept)


def _as_json(headers: Mapping[str, str]) -> str:
    return json.dumps(headers, ensure_ascii=False)
