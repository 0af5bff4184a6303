"""The answers of all addresses. They ask Kafka, so they run in the pool of threads."""

from __future__ import annotations

import logging
import re
import shlex
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from reconsume.bridge.process.clock import Clock
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.bytes_shown import blob, header_rows, one_line, shorten
from reconsume.console.pages.filters import MOST_PLACES, FilterForm, place_of, places_of
from reconsume.console.pages.views import causes_of, group_view, overview_of
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.web.checks import NOBODY, same_secret
from reconsume.console.web.faults import Refusal
from reconsume.console.web.rendering import ICON, STYLE, Links, Renderer
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import STATES
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, Filter, Page
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import SEND, ResendVerdict, new_replay_id

logger = logging.getLogger(__name__)

Form = dict[str, list[str]]
_REPLAY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_WHY_CHARACTERS: Final = 500
_FIELDS: Final = 2 * MOST_PLACES + 10
_OF_A_PAGE: Final = 50
_FOR_CAUSES: Final = 200
_KEY_CHARACTERS: Final = 40
_CAUSE_CHARACTERS: Final = 160
_REFRESH_SECONDS: Final = range(2, 3_601)
_FOR_A_YEAR: Final = {"cache-control": "public, max-age=31536000, immutable"}


class Pages:
    """The pages, those that only look and those that send dead letters again.

    Args:
        settings: of the process.
        cluster: is asked.
        renderer: makes the pages.
        clock: gives the time in milliseconds.
        token_of_forms: what every form of this process carries.
        resent: counts, by outcome.
    """

    def __init__(
        self,
        settings: ConsoleProcessSettings,
        cluster: ConsoleCluster,
        renderer: Renderer,
        clock: Clock,
        token_of_forms: str,
        resent: Counter,
    ) -> None:
        self._names = settings.names
        self._hide = settings.console.hide_values
        self._cluster = cluster
        self._renderer = renderer
        self._clock = clock
        self._token_of_forms = token_of_forms
        self._resent = resent

    def overview(self, request: Request) -> Response:
        """All groups, those that need a human first."""
        wanted = request.query_params.get("q", "").strip()
        refresh = request.query_params.get("refresh", "")
        seconds = int(refresh) if re.fullmatch("[0-9]{1,4}", refresh) else 0
        content = {
            "found": overview_of(self._cluster.status(), wanted, self._cluster.open_letters(self._clock())),
            "left": self._cluster.left_to_index(),
            "wanted": wanted,
            "refresh": seconds if seconds in _REFRESH_SECONDS else None,
        }
        return self._renderer.page(request, "overview.html", content)

    def group(self, request: Request) -> Response:
        """Settings, waits, and why its newest dead letters died."""
        group = _group(request)
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
        labels = self._cluster.causes(group)
        newest = self._newest(group) if labels is None else None
        content = {
            "view": view,
            "topics": topics,
            "newest": newest,
            "causes": newest and causes_of(newest.records),
            "labels": labels,
            "open_letters": sum(one.number for one in labels or ()),
        }
        return self._renderer.page(request, "group.html", content)

    def _newest(self, group: str) -> Page | None:
        """None: no message of the group has died yet."""
        try:
            return self._cluster.page(group, Filter(), limit=_FOR_CAUSES)
        except TopicNotReady:
            return None

    def dead_letters(self, request: Request) -> Response:
        """A page of them, newest first."""
        group, form = _group(request), FilterForm.of(request.query_params)
        before = request.query_params.get("before") or None
        page = self._cluster.page(group, form.wanted(self._clock()), before=before, limit=_OF_A_PAGE)
        content = {
            "group": group,
            "form": form,
            "before": before,
            "page": page,
            "rows": [self._row(one) for one in page.records],
            "states": STATES,
        }
        return self._renderer.page(request, "dead_letters.html", content)

    def record(self, request: Request) -> Response:
        """One dead letter, with all that it has."""
        group = _group(request)
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
        }
        return self._renderer.page(request, "record.html", content)

    def _row(self, one: DeadLetterRecord) -> dict[str, Any]:
        """A dead letter as a row of a table."""
        return {
            "place": one.place,
            "key": one_line(one.key, _KEY_CHARACTERS, hide=self._hide),
            "key_size": None if one.key is None else len(one.key),
            "stored_ms": one.stored_ms,
            "letter": one.letter,
            "state": state_name(one.state),
            "cause": shorten(one.letter.cause or "", _CAUSE_CHARACTERS),
        }

    async def resend_plan(self, request: Request) -> Response:
        """Show what would happen, and ask."""
        form = await self._form(request)
        return await run_in_threadpool(self._plan, request, form)

    async def resend_run(self, request: Request) -> Response:
        """Do it; the same form again sends nothing twice."""
        form = await self._form(request)
        return await run_in_threadpool(self._run, request, form)

    async def resolve(self, request: Request) -> Response:
        """Resolve the chosen dead letters, or open them again; the same form again changes nothing."""
        form = await self._form(request)
        return await run_in_threadpool(self._resolve, request, form)

    async def _form(self, request: Request) -> Form:
        """Return the submitted form.

        Raises:
            Refusal: it is too large, is no form, or does not carry the token of our forms.
        """
        try:
            text = (await request.body()).decode("ascii")
            form = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
        except ValueError:
            raise Refusal(400, "what was sent is no form of this console, or one with too many fields") from None
        if not same_secret(_last(form, "form_token"), self._token_of_forms):
            raise Refusal(
                403,
                "the form is not of this console, or of one that was started again since: go back, reload the page "
                "that the form stands on, and send it again",
            )
        return form

    def _plan(self, request: Request, form: Form) -> Response:
        group = _group(request)
        # Of the form with the check boxes one button takes all that are shown.
        places = places_of(form.get("shown" if "all" in form else "place", []))
        verdicts = self._cluster.plan(group, places)
        return self._answer(request, group, new_replay_id("console", self._clock()), verdicts, "resend_plan.html")

    def _run(self, request: Request, form: Form) -> Response:
        group, replay_id = _group(request), _last(form, "replay_id")
        if _REPLAY_ID.fullmatch(replay_id) is None:
            raise IllegalSetting(f"replay id {replay_id[:100]!r}: at most 100 letters, digits, '.', '_' and '-'")
        places = places_of(form.get("place", []))
        verdicts = self._resend(request.scope.get("caller", NOBODY), group, places, replay_id)
        return self._answer(request, group, replay_id, verdicts, "resend_done.html")

    def _resend(self, who: str, group: str, places: list[RecordAddress], replay_id: str) -> list[ResendVerdict]:
        try:
            verdicts = self._cluster.resend(group, places, replay_id, who)
        except ReconsumeError as error:
            logger.warning(
                "resend by %s of %d dead letters of group %r failed, replay %s: %s",
                *(who, len(places), group, replay_id, error),
            )
            raise
        sent = sum(one.status == SEND for one in verdicts)
        logger.info(
            "resend by %s: %d of %d dead letters of group %r sent, replay %s",
            *(who, sent, len(verdicts), group, replay_id),
        )
        for one in verdicts:
            self._resent.labels(one.status).inc()
        return verdicts

    def _resolve(self, request: Request, form: Form) -> Response:
        group, places = _group(request), places_of(form.get("place", []))
        who, why = request.scope.get("caller", NOBODY), _last(form, "why").strip()
        if "reopen" in form:
            done = self._cluster.reopen(group, places)
        elif why:
            done = self._cluster.resolve(group, places, who, why[:_WHY_CHARACTERS])
        else:
            raise IllegalSetting("the reason is missing: go back and write why these dead letters need no resend")
        changed = sum(one.is_changed for one in done)
        what = "opened" if "reopen" in form else "resolved"
        logger.info("dead letters %s group=%r by=%s changed=%d of=%d", what, group, who, changed, len(done))
        rows = [self._row(one.record) | {"status": what if one.is_changed else one.before} for one in done]
        content = {"group": group, "rows": rows, "changed": changed, "sent_status": what, "what": what}
        return self._renderer.page(request, "resolve_done.html", content, here=Links().group(group, "dead-letters"))

    def _answer(
        self, request: Request, group: str, replay_id: str, verdicts: list[ResendVerdict], template: str
    ) -> Response:
        content = {
            "group": group,
            "replay_id": replay_id,
            "rows": [self._row(one.record) | {"status": one.status} for one in verdicts],
            "send": sum(one.status == SEND for one in verdicts),
            "sent_status": SEND,
        }
        # Who chooses another language gets a page that can be asked for without a form.
        return self._renderer.page(request, template, content, here=Links().group(group, "dead-letters"))


def _group(request: Request) -> str:
    """The group that the address names."""
    return unquote(request.path_params["group"], errors="replace")


def _last(form: Form, name: str) -> str:
    return form.get(name, [""])[-1]


async def style(request: Request) -> Response:
    """The one style sheet; its address changes with it."""
    del request
    return Response(STYLE, headers=_FOR_A_YEAR, media_type="text/css")


async def icon(request: Request) -> Response:
    """Return the icon of a browser's tab."""
    del request
    return Response(ICON, headers=_FOR_A_YEAR, media_type="image/svg+xml")
