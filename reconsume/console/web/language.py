"""The language of a page: what was asked for, else what the browser says."""

from __future__ import annotations

from typing import Final

from reconsume.console.web.texts import LANGUAGES

__all__ = ["choose_language"]

_OTHERWISE: Final = "en"


def choose_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """A language that there is.

    Args:
        asked: of the query, `?lang=`.
        kept: of the cookie.
        accepted: `accept-language`.
    """
    for one in (asked, kept):
        if one in LANGUAGES:
            return one
    wishes = sorted(((_weight(part), -place, part) for place, part in enumerate(accepted.split(","))), reverse=True)
    for weight, _, part in wishes:
        tag = part.partition(";")[0].strip().lower().partition("-")[0]
        if weight > 0 and tag in LANGUAGES:
            return tag
    return _OTHERWISE


def _weight(part: str) -> float:
    """Of `zh-CN;q=0.9`; what cannot be read weighs nothing."""
    _, found, weight = part.replace(" ", "").partition(";q=")
    try:
        return float(weight) if found else 1.0
    except ValueError:
        return 0.0
