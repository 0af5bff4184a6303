"""Pages that change dead letters: what would happen, and what did."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.changes import Changes
from reconsume.console.pages.filters import places_of
from reconsume.console.pages.forms import Form, FormReader, last
from reconsume.console.pages.rows import group_of, hides_values, row_of
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.web.guard import caller_of, require
from reconsume.console.web.rendering import Links, Renderer
from reconsume.operations.resend import SEND, ResendVerdict


class Actions:
    """Plans and changes, by forms.

    Args:
        settings: of the console.
        changes: does them.
        renderer: makes the pages.
        forms: reads them.
    """

    def __init__(self, settings: ConsoleSettings, changes: Changes, renderer: Renderer, forms: FormReader) -> None:
        self._settings = settings
        self._changes = changes
        self._renderer = renderer
        self._forms = forms

    async def resend_plan(self, request: Request) -> Response:
        """Show what would happen, and ask."""
        form = await self._forms.read(request)
        return await run_in_threadpool(self._plan, request, form)

    async def resend_run(self, request: Request) -> Response:
        """Do it; the same form again sends nothing twice."""
        form = await self._forms.read(request)
        return await run_in_threadpool(self._run, request, form)

    async def resolve(self, request: Request) -> Response:
        """Resolve the chosen dead letters, or open them again; the same form again changes nothing."""
        form = await self._forms.read(request)
        return await run_in_threadpool(self._resolve, request, form)

    def _plan(self, request: Request, form: Form) -> Response:
        group = group_of(request)
        require(request, ConsoleRole.OPERATOR, group)
        # Of the form with the check boxes one button takes all that are shown.
        places = places_of(form.get("shown" if "all" in form else "place", []))
        verdicts = self._changes.plan(group, places)
        return self._answer(request, group, self._changes.new_replay_id(), verdicts, "resend_plan.html")

    def _run(self, request: Request, form: Form) -> Response:
        group, replay_id = group_of(request), last(form, "replay_id")
        caller = require(request, ConsoleRole.OPERATOR, group)
        verdicts = self._changes.resend(caller.name, group, places_of(form.get("place", [])), replay_id)
        return self._answer(request, group, replay_id, verdicts, "resend_done.html")

    def _resolve(self, request: Request, form: Form) -> Response:
        group = group_of(request)
        caller, places = require(request, ConsoleRole.OPERATOR, group), places_of(form.get("place", []))
        if "reopen" in form:
            what, done = "opened", self._changes.reopen(caller.name, group, places)
        else:
            what, done = "resolved", self._changes.resolve(caller.name, group, places, last(form, "why"))
        hide = self._hides(request, group)
        content = {
            "group": group,
            "rows": [
                row_of(one.record, hide=hide) | {"status": what if one.is_changed else one.before} for one in done
            ],
            "changed": sum(one.is_changed for one in done),
            "sent_status": what,
            "what": what,
        }
        return self._renderer.page(request, "resolve_done.html", content, here=Links().group(group, "dead-letters"))

    def _answer(
        self, request: Request, group: str, replay_id: str, verdicts: list[ResendVerdict], template: str
    ) -> Response:
        hide = self._hides(request, group)
        content = {
            "group": group,
            "replay_id": replay_id,
            "rows": [row_of(one.record, hide=hide) | {"status": one.status} for one in verdicts],
            "send": sum(one.status == SEND for one in verdicts),
            "sent_status": SEND,
        }
        # Who chooses another language gets a page that can be asked for without a form.
        return self._renderer.page(request, template, content, here=Links().group(group, "dead-letters"))

    def _hides(self, request: Request, group: str) -> bool:
        return hides_values(self._settings, caller_of(request), group)
