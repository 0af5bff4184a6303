"""Dead letters as rows of tables, and their hidden parts."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request

from reconsume.console.pages.bytes_shown import one_line, shorten
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleCaller, ConsoleRole
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord

_KEY_CHARACTERS: Final = 40
CAUSE_CHARACTERS: Final = 160
"""The maximum of characters of a cause, and of a class, in a table."""


def row_of(one: DeadLetterRecord, *, hide: bool) -> dict[str, Any]:
    """Return a dead letter as a row of a table."""
    return {
        "place": one.place,
        "key": one_line(one.key, _KEY_CHARACTERS, hide=hide),
        "key_size": None if one.key is None else len(one.key),
        "stored_ms": one.stored_ms,
        "letter": one.letter,
        "state": state_name(one.state),
        "exception_class": shorten(one.letter.exception_class or "", CAUSE_CHARACTERS),
        "cause": shorten(one.letter.cause or "", CAUSE_CHARACTERS),
    }


def hides_values(settings: ConsoleSettings, caller: ConsoleCaller, group: str) -> bool:
    """Return whether a person sees only the sizes of keys, values and the users' headers."""
    return settings.hide_values or (settings.hide_values_from_viewers and not caller.may(ConsoleRole.OPERATOR, group))


def group_of(request: Request) -> str:
    """Return the group in the address."""
    return unquote(request.path_params["group"], errors="replace")
