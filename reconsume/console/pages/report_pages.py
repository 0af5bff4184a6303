"""Reports of reconcile: a list, and the pages themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.reports import list_reports, read_page
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.web.faults import Refusal
from reconsume.console.web.guard import require
from reconsume.console.web.rendering import Renderer

REPORTS: Final = "/reports"
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
"""Anyone with write access to the folder can add a file: its page gets no scripts, no forms and no origin."""


class ReportPages:
    """Pages of reports, which need a role for all groups.

    Args:
        folder: the folder of the reports; None without reports.
        renderer: renders the list.
    """

    def __init__(self, folder: Path | None, renderer: Renderer) -> None:
        self._folder = folder
        self._renderer = renderer

    def reports(self, request: Request) -> Response:
        """Show the list, newest first."""
        require(request, ConsoleRole.VIEWER)
        found, number = list_reports(reports_folder(self._folder))
        return self._renderer.page(request, "reports.html", {"reports": found, "all_reports": number})

    def report(self, request: Request) -> Response:
        """Return the page of a report unchanged."""
        require(request, ConsoleRole.VIEWER)
        name = unquote(request.path_params["name"], errors="replace")
        # Browsers refuse a sandboxed page that also asks for isolation from its opener.
        headers = {"content-security-policy": _POLICY, "cross-origin-opener-policy": "unsafe-none"}
        return Response(read_page(reports_folder(self._folder), name), media_type="text/html", headers=headers)


def reports_folder(folder: Path | None) -> Path:
    """Return the folder.

    Raises:
        Refusal: no folder is set.
    """
    if folder is None:
        raise Refusal(404, "no folder of reports is set: see the setting console.reports_folder")
    return folder
