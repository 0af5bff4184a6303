"""Sending dead letters again: a page that asks, and the one that does it."""

from __future__ import annotations

import logging
import re
from typing import Any, Final
from urllib.parse import parse_qs

from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from reconsume.bridge.process.clock import Clock
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.filters import MOST_PLACES, places_of
from reconsume.console.pages.pages import group_of, letter_row
from reconsume.console.web.checks import NOBODY, same_secret
from reconsume.console.web.faults import Refusal
from reconsume.console.web.rendering import Links, Renderer
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import SEND, ResendVerdict, new_replay_id

__all__ = ["Resend"]

logger = logging.getLogger(__name__)

Form = dict[str, list[str]]
_REPLAY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_WHY_CHARACTERS: Final = 500
_FIELDS: Final = 2 * MOST_PLACES + 10


class Resend:
    """The forms that send something.

    Args:
        cluster: is told.
        renderer: makes the pages.
        clock: gives the time in milliseconds.
        token_of_forms: what every form of this process carries.
        resent: counts, by outcome.
        hide: show no keys.
    """

    def __init__(
        self,
        cluster: ConsoleCluster,
        renderer: Renderer,
        clock: Clock,
        *,
        token_of_forms: str,
        resent: Counter,
        hide: bool,
    ) -> None:
        self._cluster = cluster
        self._renderer = renderer
        self._clock = clock
        self._token_of_forms = token_of_forms
        self._resent = resent
        self._hide = hide

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
        """What was sent.

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
        group = group_of(request)
        # Of the form with the check boxes one button takes all that are shown.
        places = places_of(form.get("shown" if "all" in form else "place", []))
        verdicts = self._cluster.plan(group, places)
        content = {
            "group": group,
            "replay_id": new_replay_id("console", self._clock()),
            "token_of_forms": self._token_of_forms,
        }
        return self._answer(request, content, verdicts, "resend_plan.html")

    def _run(self, request: Request, form: Form) -> Response:
        group, replay_id = group_of(request), _last(form, "replay_id")
        if _REPLAY_ID.fullmatch(replay_id) is None:
            raise IllegalSetting(f"replay id {replay_id[:100]!r}: at most 100 letters, digits, '.', '_' and '-'")
        places = places_of(form.get("place", []))
        verdicts = self._resend(request.scope.get("caller", NOBODY), group, places, replay_id)
        return self._answer(request, {"group": group, "replay_id": replay_id}, verdicts, "resend_done.html")

    def _resend(self, who: str, group: str, places: list[RecordAddress], replay_id: str) -> list[ResendVerdict]:
        try:
            verdicts = self._cluster.resend(group, places, replay_id, who)
        except ReconsumeError as error:
            logger.warning(
                "resend by %s of %d dead letters of group %r, replay %s, did not end well: %s",
                *(who, len(places), group, replay_id, error),
            )
            raise
        sent = sum(one.status == SEND for one in verdicts)
        logger.info(
            "resend by %s: %d of %d dead letters of group %r were sent again, replay %s",
            *(who, sent, len(verdicts), group, replay_id),
        )
        for one in verdicts:
            self._resent.labels(one.status).inc()
        return verdicts

    def _resolve(self, request: Request, form: Form) -> Response:
        group, places = group_of(request), places_of(form.get("place", []))
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
        rows = [
            letter_row(one.record, hide=self._hide) | {"status": what if one.is_changed else one.before} for one in done
        ]
        content = {"group": group, "rows": rows, "changed": changed, "sent_status": what, "what": what}
        here = Links().group(group, "dead-letters")
        return self._renderer.page(request, "resolve_done.html", content, here=here)

    def _answer(
        self, request: Request, content: dict[str, Any], verdicts: list[ResendVerdict], template: str
    ) -> Response:
        rows = [letter_row(one.record, hide=self._hide) | {"status": one.status} for one in verdicts]
        told = {"rows": rows, "send": sum(one.status == SEND for one in verdicts), "sent_status": SEND}
        # Who chooses another language gets a page that can be asked for without a form.
        here = Links().group(content["group"], "dead-letters")
        return self._renderer.page(request, template, content | told, here=here)


def _last(form: Form, name: str) -> str:
    return form.get(name, [""])[-1]
