"""Dead letters as rows of tables."""

from __future__ import annotations

from typing import Any, Final

from reconsume.cli.output import one_line
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterState
from reconsume.operations.decoding.payloads import Schemas, decode_payload
from reconsume.operations.jobs.letter_files import moment

_CAUSE_CHARACTERS: Final = 100


def state_row(state: DeadLetterState | None) -> dict[str, str | None]:
    """Return a state as a row: time, name and reason."""
    if state is None:
        return {}
    told = {"job": state.job, "newer": state.newer, "why": state.why, "by": state.by}
    return {"state_since": moment(state.at_ms)} | {f"state_{name}": text for name, text in told.items() if text}


def decoded(what: str, payload: bytes | None, schemas: Schemas | None) -> dict[str, Any]:
    """Return a decoded key or value, if that says more than its bytes as text."""
    found = decode_payload(payload, schemas)
    told = {"format": found.format, "schema": found.schema, "note": found.note}
    if found.format not in ("null", "empty", "text"):
        told |= {"decoded": found.text + ("…" if found.is_cut else "")}
    return {f"{what}_{name}": one for name, one in told.items() if one not in (None, "")}


def cut(text: str) -> str:
    """Return a text on one line, shortened for a table."""
    line = one_line(text)
    return line if len(line) <= _CAUSE_CHARACTERS else line[: _CAUSE_CHARACTERS - 1] + "…"
