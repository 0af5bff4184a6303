"""A single dead letter, edited in a form: its value and headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.filters import place_of
from reconsume.console.pages.forms import Form, last
from reconsume.console.pages.rows import group_of, hides_values
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.web.faults import Refusal
from reconsume.console.web.guard import require
from reconsume.console.web.rendering import Renderer
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import visible
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit, check_edit
from reconsume.delay_levels.wire.properties import Header, is_reserved
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.selection import MOST_EDITED
from reconsume.operations.record_address import RecordAddress

_VALUE_BYTES: Final = 32_768
"""Forms carry values with escapes, which take up to three times the space."""
_HEADER_BYTES: Final = 4_096
_NEW_HEADERS: Final = 3
FIELDS: Final = ("value", "header", "header_value", "removed", "new_name", "new_value")
"""The fields of an edit, which the page of the plan carries on."""


@dataclass(frozen=True, slots=True)
class EditableLetter:
    """The parts of a dead letter that a form can change.

    Attributes:
        value: the value as text; None if a form cannot carry it.
        headers: headers of the program with a single text value.
        kept: names of its other headers, which stay unchanged.
    """

    value: str | None
    headers: list[tuple[str, str]]
    kept: list[str]


def editable(one: DeadLetterRecord) -> EditableLetter:
    """Return the editable parts: text that a browser returns unchanged."""
    users = [header for header in one.headers if not is_reserved(header[0])]
    counts = Counter(name for name, _ in users)
    headers, kept = [], []
    for name, value in users:
        text = _line(value) if counts[name] == 1 and _line(name.encode(errors="replace")) == name else None
        if text is not None:
            headers.append((name, text))
        elif name not in kept:
            kept.append(name)
    return EditableLetter(_text(one.value or b"") if len(one.value or b"") <= _VALUE_BYTES else None, headers, kept)


def _text(value: bytes | None) -> str | None:
    """Return the text; None if a browser would change it, or a person could not see all of it."""
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
    return text if text is not None and visible(text) == text else None


def _line(value: bytes | None) -> str | None:
    text = None if value is not None and len(value) > _HEADER_BYTES else _text(value)
    return None if text is None or "\n" in text or "\r" in text else text


def edit_of(one: DeadLetterRecord, form: Form) -> LetterEdit:
    """Return a person's changes to a dead letter; unchanged fields are left out.

    Raises:
        IllegalSetting: nothing was changed, or something that cannot be edited.
    """
    may = editable(one)
    known, names, texts = dict(may.headers), form.get("header", []), form.get("header_value", [])
    removed = set(form.get("removed", []))
    changed: dict[str, str | None] = {}
    for name, text in zip(names, texts, strict=False):
        if name not in known:
            raise IllegalSetting(f"header {name[:80]!r} is unknown to this form; go back and reload the page")
        if name in removed or text != known[name]:
            changed[name] = None if name in removed else text
    for name, text in zip(map(str.strip, form.get("new_name", [])), form.get("new_value", []), strict=False):
        if name and (name in known or name in may.kept or name in changed):
            raise IllegalSetting(f"header {name[:80]!r} exists already; change it in its own field")
        if name:
            changed[name] = text
    value = None
    if may.value is not None and "value" in form:
        value = typed_value(may.value, last(form, "value"))
    if value is None and not changed:
        raise IllegalSetting("nothing was changed: change the value or a header, or resend the dead letter as it is")
    if "\0" in "".join([*changed, *filter(None, changed.values())]) or b"\0" in (value or b""):
        raise IllegalSetting("the edit has a NUL character, which a form cannot carry; use reconsume dlq resend")
    return check_edit(LetterEdit(value, changed), MOST_EDITED)


def typed_value(before: str, typed: str) -> bytes | None:
    """Return the new value; None if it was not changed.

    Browsers send all line ends as CR LF, so the line ends of the old value are restored.
    """
    plain = typed.replace("\r\n", "\n")
    if plain == before.replace("\r\n", "\n"):
        return None
    has_crlf = "\r\n" in before and "\n" not in before.replace("\r\n", "")
    return (plain.replace("\n", "\r\n") if has_crlf else plain).encode()


def carried(form: Form) -> list[tuple[str, str]]:
    """Return the fields of an edit, for another form."""
    return [(name, text.replace("\r\n", "\n")) for name in FIELDS for text in form.get(name, [])]


class EditPages:
    """The form of an edit.

    Args:
        settings: the settings of the console.
        cluster: reads from Kafka.
        renderer: renders the page.
    """

    def __init__(self, settings: ConsoleSettings, cluster: ConsoleCluster, renderer: Renderer) -> None:
        self._settings = settings
        self._cluster = cluster
        self._renderer = renderer

    def edit(self, request: Request) -> Response:
        """Show the form; changes nothing."""
        group = group_of(request)
        caller = require(request, ConsoleRole.OPERATOR, group)
        refuse_if_hidden(hide=hides_values(self._settings, caller, group))
        place = place_of(f"{request.path_params['partition']}/{request.path_params['offset']}")
        one = self._cluster.one(group, place)
        content = {"group": group, "one": one, "editable": editable(one), "new_headers": _NEW_HEADERS}
        return self._renderer.page(request, "edit.html", content)


def refuse_if_hidden(*, hide: bool) -> None:
    """Refuse an edit if values are hidden.

    Raises:
        Refusal: values are hidden.
    """
    if hide:
        raise Refusal(403, "values are hidden in this console (console.hide_values), so they cannot be edited here")


def edited_letter(cluster: ConsoleCluster, group: str, places: Iterable[RecordAddress]) -> DeadLetterRecord:
    """Return the dead letter that a form edits.

    Raises:
        IllegalSetting: the form names several.
    """
    found = list(places)
    if len(found) != 1:
        raise IllegalSetting(f"{len(found)} dead letters: an edit is for one; select only one")
    return cluster.one(group, found[0])


def headers_before(one: DeadLetterRecord, names: Iterable[str]) -> dict[str, str | None]:
    """Return the texts of headers before an edit; None for a new header."""
    known: dict[str, Header] = {name: (name, value) for name, value in one.headers}
    return {name: _line(known[name][1]) if name in known else None for name in names}
