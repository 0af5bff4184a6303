"""What the addresses that only look answer. All of them ask Kafka, so they run in the pool of threads."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from reconsume.bridge.process.clock import Clock
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.bytes_shown import blob, header_rows, one_line, shorten
from reconsume.console.pages.filters import FilterForm, place_of
from reconsume.console.pages.views import causes_of, group_view, overview_of
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.web.faults import Refusal
from reconsume.console.web.rendering import ICON, STYLE, Renderer
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import STATES
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, Filter, Page

__all__ = ["Pages", "group_of", "letter_row"]

_OF_A_PAGE: Final = 50
_FOR_CAUSES: Final = 200
_KEY_CHARACTERS: Final = 40
_CAUSE_CHARACTERS: Final = 160
_REFRESH_SECONDS: Final = range(2, 3_601)
_FOR_A_YEAR: Final = {"cache-control": "public, max-age=31536000, immutable"}


def group_of(request: Request) -> str:
    """The group that the address names."""
    return unquote(request.path_params["group"], errors="replace")


def letter_row(one: DeadLetterRecord, *, hide: bool) -> dict[str, Any]:
    """A dead letter as a row of a table."""
    return {
        "place": one.place,
        "key": one_line(one.key, _KEY_CHARACTERS, hide=hide),
        "key_size": None if one.key is None else len(one.key),
        "stored_ms": one.stored_ms,
        "letter": one.letter,
        "state": state_name(one.state),
        "cause": shorten(one.letter.cause or "", _CAUSE_CHARACTERS),
    }


class Pages:
    """The pages that only look.

    Args:
        settings: of the process.
        cluster: is asked.
        renderer: makes the pages.
        clock: gives the time in milliseconds.
        token_of_forms: what every form of this process carries.
    """

    def __init__(
        self,
        settings: ConsoleProcessSettings,
        cluster: ConsoleCluster,
        renderer: Renderer,
        clock: Clock,
        token_of_forms: str,
    ) -> None:
        self._names = settings.names
        self._hide = settings.console.hide_values
        self._cluster = cluster
        self._renderer = renderer
        self._clock = clock
        self._token_of_forms = token_of_forms

    def overview(self, request: Request) -> Response:
        """All groups, those that need a human first."""
        wanted = request.query_params.get("q", "").strip()
        refresh = request.query_params.get("refresh", "")
        seconds = int(refresh) if re.fullmatch("[0-9]{1,4}", refresh) else 0
        content = {
            "found": overview_of(self._cluster.status(), wanted),
            "wanted": wanted,
            "refresh": seconds if seconds in _REFRESH_SECONDS else None,
        }
        return self._renderer.page(request, "overview.html", content)

    def group(self, request: Request) -> Response:
        """Settings, waits, and why its newest dead letters died."""
        group = group_of(request)
        view = group_view(group, self._cluster.groups(), self._cluster.status(), self._names)
        if view is None:
            raise Refusal(
                404,
                f"group {group!r} is not registered and has neither a retry nor a dead-letter topic: look for it in "
                "the overview, or register it: reconsume groups set",
            )
        topics = [
            (RETRY_PREFIX + group, self._names.retry(group)),
            (DLQ_PREFIX + group, self._names.dead_letter(group)),
        ]
        newest = self._newest(group)
        content = {"view": view, "topics": topics, "newest": newest, "causes": newest and causes_of(newest.records)}
        return self._renderer.page(request, "group.html", content)

    def _newest(self, group: str) -> Page | None:
        """None: no message of the group has died yet."""
        try:
            return self._cluster.page(group, Filter(), limit=_FOR_CAUSES)
        except TopicNotReady:
            return None

    def dead_letters(self, request: Request) -> Response:
        """A page of them, newest first."""
        group, form = group_of(request), FilterForm.of(request.query_params)
        before = request.query_params.get("before") or None
        page = self._cluster.page(group, form.wanted(self._clock()), before=before, limit=_OF_A_PAGE)
        content = {
            "group": group,
            "form": form,
            "before": before,
            "page": page,
            "rows": [letter_row(one, hide=self._hide) for one in page.records],
            "states": STATES,
            "token_of_forms": self._token_of_forms,
        }
        return self._renderer.page(request, "dead_letters.html", content)

    def record(self, request: Request) -> Response:
        """One dead letter, with all that it has."""
        group = group_of(request)
        place = place_of(f"{request.path_params['partition']}/{request.path_params['offset']}")
        one = self._cluster.one(group, place)
        content = {
            "group": group,
            "one": one,
            "letter": one.letter,
            "state": state_name(one.state),
            "topic": self._names.dead_letter(group),
            "key": blob(one.key, hide=self._hide),
            "value": blob(one.value, hide=self._hide),
            "headers": header_rows(one.headers, hide=self._hide),
            "commands": [f"reconsume dlq {what} {shlex.quote(group)} {place}" for what in ("show", "resend")],
            "token_of_forms": self._token_of_forms,
        }
        return self._renderer.page(request, "record.html", content)


async def style(request: Request) -> Response:
    """The one style sheet; its address changes with it."""
    del request
    return Response(STYLE, headers=_FOR_A_YEAR, media_type="text/css")


async def icon(request: Request) -> Response:
    """What a tab of a browser shows."""
    del request
    return Response(ICON, headers=_FOR_A_YEAR, media_type="image/svg+xml")
