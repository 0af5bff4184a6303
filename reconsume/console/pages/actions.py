"""Changes with immediate effect: resolutions of dead letters, the pause of a group."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from reconsume.console.changes import Changes
from reconsume.console.pages.filters import places_of
from reconsume.console.pages.forms import Form, last
from reconsume.console.pages.rows import group_of, hides_values, row_of
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.web.guard import require
from reconsume.console.web.rendering import Links, Renderer


class Actions:
    """Changes, by forms.

    Args:
        settings: the settings of the console.
        changes: makes the changes.
        renderer: renders the pages.
    """

    def __init__(self, settings: ConsoleSettings, changes: Changes, renderer: Renderer) -> None:
        self._settings = settings
        self._changes = changes
        self._renderer = renderer

    def resolve(self, request: Request, form: Form) -> Response:
        """Resolve or reopen the chosen dead letters; repeating the form changes nothing."""
        group = group_of(request)
        caller, places = require(request, ConsoleRole.OPERATOR, group), places_of(form.get("place", []))
        if "reopen" in form:
            what, done = "opened", self._changes.reopen(caller.name, group, places)
        else:
            what, done = "resolved", self._changes.resolve(caller.name, group, places, last(form, "why"))
        hide = hides_values(self._settings, caller, group)
        content = {
            "group": group,
            "rows": [
                row_of(one.record, hide=hide) | {"status": what if one.is_changed else one.before} for one in done
            ],
            "changed": sum(one.is_changed for one in done),
            "sent_status": what,
            "what": what,
        }
        # A switch of the language leads to a page that needs no form.
        return self._renderer.page(request, "resolve_done.html", content, here=Links().group(group, "dead-letters"))

    def pause(self, request: Request, form: Form) -> Response:
        """Pause or resume the retries of a group."""
        group = group_of(request)
        caller = require(request, ConsoleRole.OPERATOR, group)
        self._changes.pause_retries(caller.name, group, is_paused=last(form, "paused") == "yes")
        return RedirectResponse(Links().group(group), 303)
