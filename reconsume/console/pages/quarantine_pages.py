"""The quarantine: its records, and their release."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.filters import places_of
from reconsume.console.pages.forms import Form, last
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.web.guard import require
from reconsume.console.web.rendering import Renderer
from reconsume.operations.record_address import RecordAddress

_OF_A_PAGE: Final = 100


class QuarantinePages:
    """Pages of the quarantine, which needs a role for all groups.

    Args:
        cluster: reads the quarantine.
        changes: releases and resolves records.
        renderer: renders the pages.
    """

    def __init__(self, cluster: ConsoleCluster, changes: Changes, renderer: Renderer) -> None:
        self._cluster = cluster
        self._changes = changes
        self._renderer = renderer

    def quarantine(self, request: Request) -> Response:
        """Show the records, oldest first."""
        require(request, ConsoleRole.VIEWER)
        return self._page(request, "")

    def release(self, request: Request, form: Form) -> Response:
        """Return the chosen records to the schedulers."""
        caller = require(request, ConsoleRole.ADMIN)
        places = places_of(form.get("shown" if "all" in form else "place", []))
        return self._page(request, "released", self._changes.release(caller.name, places), places)

    def resolve(self, request: Request, form: Form) -> Response:
        """Close the selected records for good."""
        caller = require(request, ConsoleRole.ADMIN)
        places = places_of(form.get("place", []))
        done = self._changes.resolve_quarantined(caller.name, places, last(form, "why"))
        return self._page(request, "resolved", done, places)

    def _page(self, request: Request, done: str, number: int = 0, handled: Collection[RecordAddress] = ()) -> Response:
        """Show the open records, and above them what was done with how many.

        Brokers acknowledge a commit a moment before readers see it.
        """
        found, has_more = self._cluster.quarantine(_OF_A_PAGE)
        records = [one for one in found if one.place not in handled]
        content = {"records": records, "has_more": has_more, "done": done, "number": number}
        return self._renderer.page(request, "quarantine.html", content, here="/quarantine")
