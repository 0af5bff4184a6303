"""What an app's answer means: one table, a column for each profile."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from reconsume.sidecar.push.settings import Profile

__all__ = ["AppAnswer", "Meaning", "NoAnswer", "Row", "body_of", "meaning_of", "row_of", "was_cut_off"]

_BAD_GATEWAY: Final = 502
_BUSY: Final = frozenset({408, 409, 425, 429})
_GATEWAY: Final = frozenset({502, 503, 504})
_SUCCESS: Final = frozenset({"SUCCESS", "CONSUME_SUCCESS"})
_LATER: Final = frozenset({"RETRY", "RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT"})


@dataclass(frozen=True, slots=True)
class AppAnswer:
    """What came back.

    Attributes:
        headers: names in lower case.
        body: its beginning, as far as anybody looks into it.
        json: of the body, if it is an object.
        cut_off: headers or body are not whole; the status is.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    json: Mapping[str, Any] | None = None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No status came back.

    Attributes:
        reason: for people.
        timed_out: the app had the request and took too long; False if it could not be asked.
        cut_off: the connection ended after the request was sent.
        repeated: this request alone was cut off again and again, while others were answered.
    """

    reason: str
    timed_out: bool = False
    cut_off: bool = False
    repeated: bool = False


class Meaning(enum.Enum):
    """What is done."""

    ACK = "ack"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    DROP = "drop"
    HOLD = "hold"
    MISSING_ROUTE = "missing_route"
    """Hold for a while, then DEAD_LETTER."""


class Row(enum.Enum):
    """The rows of the table, and what each means to a native app."""

    native: Meaning

    def __new__(cls, answer: str, native: Meaning) -> Self:
        """Keep the meaning beside the row."""
        one = object.__new__(cls)
        one._value_, one.native = answer, native
        return one

    NO_STATUS = "2xx without a status", Meaning.ACK
    SUCCESS = "2xx with SUCCESS", Meaning.ACK
    RETRY = "2xx with RETRY", Meaning.RETRY
    DROP = "2xx with DROP", Meaning.DROP
    UNKNOWN = "2xx with another status", Meaning.RETRY
    CUT_OFF = "2xx that was cut off", Meaning.RETRY
    REFUSED = "400, 401, 403 and all other 4xx", Meaning.DEAD_LETTER
    NOT_FOUND = "404", Meaning.MISSING_ROUTE
    BUSY = "408, 409, 425, 429", Meaning.RETRY
    FAILED = "5xx of the app", Meaning.RETRY
    AWAY = "5xx of a proxy, or no connection", Meaning.HOLD
    TIMED_OUT = "no answer in time", Meaning.RETRY
    ENDS_APP = "the connection ends again and again, with this message alone", Meaning.RETRY
    REDIRECT = "3xx", Meaning.DEAD_LETTER


_OTHERWISE: Final[dict[Profile, dict[Row, Meaning]]] = {
    Profile.DAPR: {Row.REFUSED: Meaning.RETRY, Row.NOT_FOUND: Meaning.DEAD_LETTER, Row.REDIRECT: Meaning.RETRY},
    Profile.KNATIVE: {Row.NOT_FOUND: Meaning.RETRY},
}
"""What other columns of the table have in place of the native one."""


def meaning_of(answer: AppAnswer | NoAnswer, profile: Profile) -> tuple[Row, Meaning]:
    """The row and what it means in this profile; knative apps say nothing in their bodies."""
    row = row_of(answer, body_counts=profile is not Profile.KNATIVE)
    return row, _OTHERWISE.get(profile, {}).get(row, row.native)


def row_of(answer: AppAnswer | NoAnswer, *, body_counts: bool = True) -> Row:
    """Which row it is."""
    if isinstance(answer, NoAnswer):
        return Row.ENDS_APP if answer.repeated else Row.TIMED_OUT if answer.timed_out else Row.AWAY
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004 - as HTTP numbers its answers
        return _row_of_success(answer) if body_counts else Row.NO_STATUS
    if 300 <= status < 400:  # noqa: PLR2004
        return Row.REDIRECT
    if 400 <= status < 500:  # noqa: PLR2004
        if status == 404:  # noqa: PLR2004
            return Row.NOT_FOUND
        return Row.BUSY if status in _BUSY else Row.REFUSED
    return Row.AWAY if status in _GATEWAY and not _app_spoke(answer) else Row.FAILED


def was_cut_off(answer: AppAnswer | NoAnswer) -> bool:
    """Whether the app, as far as anybody can tell, had the request and ended without an answer; a proxy says 502."""
    if isinstance(answer, NoAnswer):
        return answer.cut_off
    return answer.status == _BAD_GATEWAY and row_of(answer) is Row.AWAY


def _row_of_success(answer: AppAnswer) -> Row:
    if answer.cut_off:  # its body may have said RETRY
        return Row.CUT_OFF
    if not answer.json or answer.json.get("status") in (None, ""):
        return Row.NO_STATUS
    status = answer.json["status"]
    if not isinstance(status, str):
        return Row.UNKNOWN
    if status in _SUCCESS:
        return Row.SUCCESS
    if status in _LATER:
        return Row.RETRY
    return Row.DROP if status == "DROP" else Row.UNKNOWN


def _app_spoke(answer: AppAnswer) -> bool:
    """A proxy knows nothing of these headers."""
    return "retry-after" in answer.headers or any(name.startswith("reconsume-") for name in answer.headers)


def body_of(answer: AppAnswer, profile: Profile) -> Mapping[str, Any]:
    """The keys that an app may use in a body."""
    return answer.json or {} if profile is not Profile.KNATIVE else {}
