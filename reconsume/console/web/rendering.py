"""Templates with their texts, links and times. Contents of records are text, never markup."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from reconsume import __version__
from reconsume.bridge.process.clock import Clock
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.sign_in.access import ConsoleCaller, ConsoleRole
from reconsume.console.sign_in.sign_in import SignIn
from reconsume.console.web.texts import LANGUAGES, NAMES_OF_LANGUAGES, WORDS
from reconsume.delay_levels.human_text import visible

LIVE: Final = "live"
"""The id of the part of a page that updates itself."""
RELOAD: Final = {"hx-refresh": "true"}
"""The header that makes htmx reload the whole page, in place of an update of a part."""
_PACKAGE: Final = "reconsume.console"
_COOKIE: Final = "lang"
_REFRESH_SECONDS: Final = range(2, 3_601)
_YEAR_SECONDS: Final = 31_536_000
_LATE: Final = 0.85
"""In the last part of a chart a tick has no text, which would run over the edge of a phone's screen."""
_SIZES: Final = (86_400_000, 3_600_000, 60_000, 1_000)
_KEPT_IN_A_PATH: Final = "/%:@!$&'()*+,;=~"


def _static(name: str) -> bytes:
    return files(_PACKAGE).joinpath("static", name).read_bytes()


STYLE: Final = _static("style.css")
ICON: Final = _static("icon.svg")
HTMX: Final = _static("htmx.js")


def bars(numbers: Sequence[int]) -> str:
    """Return a row of bars as an SVG path, each 4 wide and at most 20 high; any number above 0 is visible."""
    most = max(numbers)
    heights = [max(1, round(20 * one / most)) if one else 0 for one in numbers]
    return "".join(f"M{4 * place} 20v-{high}h3v{high}z" for place, high in enumerate(heights) if high)


def hour_ticks(first_ms: int, count: int) -> list[tuple[float, str]]:
    """Return a tick for each noon and midnight (UTC) of a chart by hour.

    Args:
        first_ms: the start of the first hour.
        count: the number of hours.

    Returns:
        The position in percent and the text, which is empty near the end.
    """
    ticks = []
    for place in range(count):
        moment = dt.datetime.fromtimestamp(first_ms / 1000, dt.UTC) + dt.timedelta(hours=place)
        if moment.hour in (0, 12):
            text = moment.strftime("%m-%d" if moment.hour == 0 else "%H:%M")
            ticks.append((round(100 * place / count, 2), text if place < _LATE * count else ""))
    return ticks


class Links:
    """Addresses of pages.

    Args:
        language: the language in the address of this page, which its links keep.
        path: the path of this page.
        query: the query of this page.
    """

    def __init__(self, language: str | None = None, path: str = "/", query: Mapping[str, str] | None = None) -> None:
        self._language = language
        self._path = path
        self._query = dict(query or {})

    def here(self, /, **query: str | int | None) -> str:
        """Return the address of this page with changes to its query; None removes a parameter."""
        return self.to(self._path, **(self._query | query))

    def to(self, path: str, /, **query: str | int | None) -> str:
        """Return the address of a page; None and empty values are left out."""
        asked = {name: str(value) for name, value in query.items() if value not in (None, "")}
        if self._language is not None:
            asked.setdefault(_COOKIE, self._language)
        return path + ("?" + urlencode(asked) if asked else "")

    def group(self, group: str, /, *parts: object, **query: str | int | None) -> str:
        """Return the address of a page of a group."""
        path = "/".join(["/groups", quote(group, safe=""), *(quote(str(part), safe="/") for part in parts)])
        return self.to(path, **query)


def utc(milliseconds: int | None) -> str | None:
    """Return a moment for people; an impossible date stays a number."""
    if milliseconds is None:
        return None
    try:
        moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + " UTC"


def spell(milliseconds: int, units: str = "d h m s") -> str:
    """Return a time span in its two largest units: `2h 5m`; below a second `0s`."""
    left, names = abs(milliseconds), units.split()
    words: list[str] = []
    for size, unit in zip(_SIZES, names, strict=True):
        if left >= size and len(words) < 2:  # noqa: PLR2004 - the two largest
            words.append(f"{left // size}{unit}")
            left %= size
        elif words:
            break
    return " ".join(words) or f"0{names[-1]}"


def exact(text: str) -> Markup:
    """Return text for a form field, which must hold it unchanged, including invisible characters."""
    return escape(text)


def displayed(value: object) -> object:
    """Return a value as templates show it; markup of our own templates stays markup."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class Renderer:
    """Renders pages.

    Args:
        settings: the settings of the process.
        clock: returns milliseconds.
        sign_in: knows the token in the forms of a person.
    """

    def __init__(self, settings: ConsoleProcessSettings, clock: Clock, sign_in: SignIn) -> None:
        self._console = settings.console
        self._clock = clock
        self._sign_in = sign_in
        self._environment = Environment(
            loader=PackageLoader(_PACKAGE),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=displayed,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"number": "{:,}".format, "utc": utc, "spell": spell, "exact": exact}
        self._environment.filters |= {"bars": bars, "hour_ticks": hour_ticks}
        self._environment.globals |= {
            "settings": {
                "read_only": self._console.read_only,
                "hide_values": self._console.hide_values,
                "has_reports": self._console.reports_folder is not None,
            },
            "where": {"servers": settings.bootstrap_servers, "prefix": settings.topic_prefix, "version": __version__},
            "style_version": hashlib.sha256(STYLE).hexdigest()[:12],
            "htmx_version": hashlib.sha256(HTMX).hexdigest()[:12],
            "names_of_languages": NAMES_OF_LANGUAGES,
        }

    def page(
        self, request: Request, template: str, content: Mapping[str, Any], status: int = 200, here: str | None = None
    ) -> HTMLResponse:
        """Render a page in the language of the browser.

        Args:
            request: the request.
            template: the file of the template.
            content: the values for the template.
            status: the HTTP status.
            here: the path for a switch of the language; None for this page.
        """
        asked = request.query_params.get(_COOKIE)
        language = choose_language(asked, request.cookies.get(_COOKIE), request.headers.get("accept-language", ""))
        path = "/" + quote(here or request.scope["path"], safe=_KEPT_IN_A_PATH).lstrip("/")
        query = {} if here else {name: value for name, value in request.query_params.items() if name != _COOKIE}
        links = Links(asked if asked in LANGUAGES else None, path, query)
        words = SimpleNamespace(**WORDS[language])
        caller: ConsoleCaller | None = request.scope.get("caller")
        text = self._environment.get_template(template).render(
            content,
            caller=caller,
            has_sessions=self._sign_in.has_sessions,
            can_sign_out=self._sign_in.has_sessions and caller is not None,
            token_of_forms="" if caller is None else self._sign_in.token_of_forms(caller),
            may=partial(self._may, caller),
            w=words,
            language=language,
            links=links,
            here=links.here(),
            refresh=_refresh(request.query_params.get("refresh", "")),
            is_live=not {"refresh", "live"} & set(request.query_params),
            switches=_switches(request, here),
            ago=partial(_ago, words, self._clock()),
        )
        response = HTMLResponse(text, status)
        if asked in LANGUAGES:
            response.set_cookie(_COOKIE, language, max_age=_YEAR_SECONDS, httponly=True, samesite="strict")
        return response

    def pending(self, request: Request, left: int | None) -> HTMLResponse:
        """Render a page that reloads: the first reading of the installation has not ended.

        Args:
            request: the request.
            left: records that the index has still to read.
        """
        response = self.page(request, "pending.html", {"left": left})
        # It has no part that htmx could put in the place of the old figures.
        response.headers.update(RELOAD)
        return response

    def _may(self, caller: ConsoleCaller | None, role: str, group: str | None = None) -> bool:
        """Return whether a page offers the actions of a role, for a group or for all groups."""
        can_change = role == "viewer" or not self._console.read_only
        return caller is not None and can_change and caller.may(ConsoleRole[role.upper()], group)


def _refresh(asked: str) -> int | None:
    """Return the seconds before a page without JavaScript reloads."""
    seconds = int(asked) if re.fullmatch("[0-9]{1,4}", asked) else 0
    return seconds if seconds in _REFRESH_SECONDS else None


def _ago(words: SimpleNamespace, now_ms: float, milliseconds: int) -> str:
    """Return a moment relative to now."""
    left = milliseconds - int(now_ms)
    pattern: str = words.from_now if left >= 0 else words.ago
    return pattern.format(spell(left, words.units))


def _switches(request: Request, here: str | None) -> dict[str, str]:
    """Return the address of this page in each language."""
    path = "/" + quote(here or request.scope["path"], safe=_KEPT_IN_A_PATH).lstrip("/")
    query = [] if here else [one for one in parse_qsl(request.url.query) if one[0] != _COOKIE]
    return {language: f"{path}?{urlencode([*query, (_COOKIE, language)])}" for language in LANGUAGES}


def choose_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """Choose an available language.

    Args:
        asked: from the query, `?lang=`.
        kept: from the cookie.
        accepted: from the header `accept-language`.
    """
    for one in (asked, kept):
        if one in LANGUAGES:
            return one
    wishes = sorted(((_weight(part), -place, part) for place, part in enumerate(accepted.split(","))), reverse=True)
    for weight, _, part in wishes:
        tag = part.partition(";")[0].strip().lower().partition("-")[0]
        if weight > 0 and tag in LANGUAGES:
            return tag
    return "en"


def _weight(part: str) -> float:
    """Return the weight in `zh-CN;q=0.9`; an unreadable one is 0."""
    _, found, weight = part.replace(" ", "").partition(";q=")
    try:
        return float(weight) if found else 1.0
    except ValueError:
        return 0.0
