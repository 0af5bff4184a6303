"""Static files of pages; their addresses change with their contents, so browsers keep them for a year."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.web.rendering import HTMX, ICON, STYLE

_FOR_A_YEAR: Final = {"cache-control": "public, max-age=31536000, immutable"}


async def style(request: Request) -> Response:
    """Return the style sheet."""
    del request
    return Response(STYLE, headers=_FOR_A_YEAR, media_type="text/css")


async def icon(request: Request) -> Response:
    """Return the icon of a browser's tab."""
    del request
    return Response(ICON, headers=_FOR_A_YEAR, media_type="image/svg+xml")


async def htmx(request: Request) -> Response:
    """Return the library that updates figures without a reload; its licence is beside it."""
    del request
    return Response(HTMX, headers=_FOR_A_YEAR, media_type="text/javascript")
