"""Dead letters as rows of tables and files."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

from reconsume.cli.output import one_line
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterState
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.decoding.payloads import Schemas, decode_payload

_CAUSE_CHARACTERS: Final = 100
COLUMNS: Final = (
    "record",
    "state",
    "dead_since",
    "message_id",
    "origin_topic",
    "retries",
    "exception_class",
    "cause",
    "replay_times",
    "key",
    "value",
)


def state_row(state: DeadLetterState | None) -> dict[str, str | None]:
    """Return what became of a dead letter: when, by whom, and why."""
    if state is None:
        return {}
    told = {"job": state.job, "newer": state.newer, "why": state.why, "by": state.by}
    return {"state_since": moment(state.at_ms)} | {f"state_{name}": text for name, text in told.items() if text}


def summary(one: DeadLetterRecord) -> dict[str, Any]:
    """Return what a list says of a dead letter."""
    letter = one.letter
    return {
        "record": str(one.place),
        "state": state_name(one.state),
        "dead_since": moment(one.stored_ms),
        "message_id": letter.origin_message_id,
        "origin_topic": letter.origin_topic,
        "retries": letter.retries,
        "exception_class": letter.exception_class,
        "cause": letter.cause,
        "replay_times": letter.replay_times,
    }


def decoded(what: str, payload: bytes | None, schemas: Schemas | None) -> dict[str, Any]:
    """Return how a key or value is decoded, as far as that tells more than its bytes as text."""
    found = decode_payload(payload, schemas)
    told = {"format": found.format, "schema": found.schema, "note": found.note}
    if found.format not in ("null", "empty", "text"):
        told |= {"decoded": found.text + ("…" if found.is_cut else "")}
    return {f"{what}_{name}": one for name, one in told.items() if one not in (None, "")}


def content(one: DeadLetterRecord) -> dict[str, Any]:
    """Nothing is cut here."""
    headers = [[name, _whole(value)] for name, value in one.headers]
    return {"key": _whole(one.key), "value": _whole(one.value), "headers": headers}


def _whole(value: bytes | None) -> str | dict[str, str] | None:
    """Text; what is no UTF-8 as `{"base64": …}`, so that nobody takes the one for the other."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def moment(milliseconds: int | None) -> str | None:
    """Of a header it may be anything; what no calendar has is shown as it is."""
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def cut(text: str) -> str:
    """Return a text on one line, not too long for a table."""
    line = one_line(text)
    return line if len(line) <= _CAUSE_CHARACTERS else line[: _CAUSE_CHARACTERS - 1] + "…"
