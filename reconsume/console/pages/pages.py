"""Read-only pages."""

from __future__ import annotations

import shlex
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from reconsume.bridge.kafka.schema_registry import SchemaRegistry
from reconsume.bridge.process.clock import Clock
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.bytes_shown import blob, header_rows
from reconsume.console.pages.filters import FilterForm, place_of
from reconsume.console.pages.rows import group_of, hides_values, row_of
from reconsume.console.pages.views import GroupPage, causes_of, group_view, overview_of, visible_to
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.snapshot import Snapshot
from reconsume.console.web.faults import Refusal
from reconsume.console.web.guard import caller_of, require
from reconsume.console.web.rendering import Renderer
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import STATES
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import Page

_OF_A_PAGE: Final = 50
_FOR_CAUSES: Final = 200


class Pages:
    """The read-only pages.

    Args:
        settings: the settings of the process.
        cluster: reads from Kafka.
        renderer: renders the pages.
        clock: returns milliseconds.
        schemas: a schema registry, if there is one.
    """

    def __init__(
        self,
        settings: ConsoleProcessSettings,
        cluster: ConsoleCluster,
        renderer: Renderer,
        clock: Clock,
        schemas: SchemaRegistry | None = None,
    ) -> None:
        self._names = settings.names
        self._console = settings.console
        self._cluster = cluster
        self._renderer = renderer
        self._clock = clock
        self._schemas = schemas

    def overview(self, request: Request) -> Response:
        """Show all groups, those that need attention first."""
        wanted = request.query_params.get("q", "").strip()
        snapshot = self._cluster.latest()
        if snapshot is None:
            return self._renderer.pending(request, self._cluster.left_to_index())
        content = {
            "found": overview_of(visible_to(caller_of(request), snapshot), wanted),
            "snapshot": snapshot,
            "left": self._cluster.left_to_index(),
            "index_trouble": self._cluster.index_trouble(),
            "wanted": wanted,
        }
        return self._renderer.page(request, "overview.html", content)

    def group(self, request: Request) -> Response:
        """Show settings, waits, and the causes of the newest dead letters."""
        group = group_of(request)
        seen = self._seen(request, group)
        if seen is None:
            return self._renderer.pending(request, self._cluster.left_to_index())
        snapshot, view = seen
        topics = [
            (RETRY_PREFIX + group, self._names.retry(group)),
            (DLQ_PREFIX + group, self._names.dead_letter(group)),
        ]
        counts = self._cluster.causes(group)
        newest = self._newest(group) if counts is None else None
        content = {
            "view": view,
            "snapshot": snapshot,
            "index_trouble": self._cluster.index_trouble(),
            "topics": topics,
            "newest": newest,
            "causes": newest and causes_of(newest.records),
            "labels": None if counts is None else counts.causes,
            "open_letters": 0 if counts is None else counts.number,
            "hours": self._cluster.hours(group),
            "waits": None,
            "is_paused": snapshot.groups.is_paused(group),
        }
        return self._renderer.page(request, "group.html", content)

    def _seen(self, request: Request, group: str) -> tuple[Snapshot, GroupPage] | None:
        """Return a group in the last reading; None before the first reading."""
        require(request, ConsoleRole.VIEWER, group)
        snapshot, view = view_of(self._cluster, group, self._names)
        if snapshot is None:
            return None
        if view is None:
            raise Refusal(
                404,
                f"group {group!r} is not registered and has neither a retry nor a dead-letter topic: look for it in "
                "the overview, or register it: reconsume groups set",
            )
        return snapshot, view

    def waits(self, request: Request) -> Response:
        """Show the waits before each retry, with the group's waiting records; reads Kafka."""
        group = group_of(request)
        seen = self._seen(request, group)
        if seen is None:
            return self._renderer.pending(request, self._cluster.left_to_index())
        return self._renderer.page(request, "waits.html", {"view": seen[1], "waits": self._cluster.waits(group)})

    def hours(self, request: Request) -> Response:
        """Show the delivered retries in each hour; reads Kafka."""
        group = group_of(request)
        if self._seen(request, group) is None:
            return self._renderer.pending(request, self._cluster.left_to_index())
        content = {"group": group, "retries": self._cluster.retry_hours(group)}
        return self._renderer.page(request, "hours.html", content)

    def _newest(self, group: str) -> Page | None:
        """Return the newest dead letters; None if the group has none yet."""
        try:
            return self._cluster.page(group, DeadLetterFilter(), limit=_FOR_CAUSES)
        except TopicNotReady:
            return None

    def dead_letters(self, request: Request) -> Response:
        """Show a page of dead letters, newest first."""
        group, form = group_of(request), FilterForm.of(request.query_params)
        require(request, ConsoleRole.VIEWER, group)
        hide = hides_values(self._console, caller_of(request), group)
        before = request.query_params.get("before") or None
        page = self._cluster.page(group, form.wanted(self._clock()), before=before, limit=_OF_A_PAGE)
        content = {
            "group": group,
            "form": form,
            "before": before,
            "page": page,
            "rows": [row_of(one, hide=hide) for one in page.records],
            "states": STATES,
        }
        return self._renderer.page(request, "dead_letters.html", content)

    def record(self, request: Request) -> Response:
        """Show a whole dead letter."""
        group = group_of(request)
        require(request, ConsoleRole.VIEWER, group)
        place = place_of(f"{request.path_params['partition']}/{request.path_params['offset']}")
        one, hide = self._cluster.one(group, place), hides_values(self._console, caller_of(request), group)
        content = {
            "group": group,
            "one": one,
            "letter": one.letter,
            "state": state_name(one.state),
            "topic": self._names.dead_letter(group),
            "key": blob(one.key, self._schemas, hide=hide),
            "value": blob(one.value, self._schemas, hide=hide),
            "headers": header_rows(one.headers, hide=hide),
            "is_hidden": hide,
            "commands": [f"reconsume dlq {what} {shlex.quote(group)} {place}" for what in ("show", "resend")],
            "label": self._cluster.label(group, one),
            "others": self._cluster.of_message(group, one.letter),
            "life": None,
        }
        return self._renderer.page(request, "record.html", content)

    def life(self, request: Request) -> Response:
        """Show waits, deliveries and deaths of a dead letter's message; reads Kafka."""
        group = group_of(request)
        require(request, ConsoleRole.VIEWER, group)
        place = place_of(f"{request.path_params['partition']}/{request.path_params['offset']}")
        one = self._cluster.one(group, place)
        content = {
            "group": group,
            "one": one,
            "letter": one.letter,
            "others": self._cluster.of_message(group, one.letter),
            "life": self._cluster.life(group, one),
            "dead_letter_topic": self._names.dead_letter(group),
        }
        return self._renderer.page(request, "life.html", content)


def view_of(cluster: ConsoleCluster, group: str, names: TopicNames) -> tuple[Snapshot | None, GroupPage | None]:
    """Return the last reading and a group in it; read anew if it lacks the group."""
    snapshot = cluster.latest()
    view = None if snapshot is None else group_view(group, snapshot.groups, snapshot.status, names)
    if snapshot is not None and view is None:
        snapshot = cluster.fresh()
        view = None if snapshot is None else group_view(group, snapshot.groups, snapshot.status, names)
    return snapshot, view
