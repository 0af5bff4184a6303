"""The meaning of an app's answer: a table with a column for each profile, and refinements in the answer itself."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self

from reconsume.consumers.listeners.concurrently import TIMEOUT_LEVEL
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL, is_named
from reconsume.delay_levels.foreign_values import plain_text
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.wire.send_back_copy import Cause
from reconsume.sidecar.push.requests.cloud_events import decoded
from reconsume.sidecar.push.settings import Profile

_BAD_GATEWAY: Final = 502
_BUSY: Final = frozenset({408, 409, 425, 429})
_GATEWAY: Final = frozenset({502, 503, 504})
_SUSPEND: Final = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
_TEXT: Final = 1_024
_STACK: Final = 4_096
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AppAnswer:
    """The answer of an app.

    Attributes:
        headers: names in lower case.
        body: the beginning of the body, as far as it is used.
        json: the body as JSON, if it is an object.
        cut_off: headers or body are incomplete; the status arrived.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    json: Mapping[str, Any] | None = None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No status arrived.

    Attributes:
        reason: a text for people.
        timed_out: the app got the request and took too long; False if the app was not reached.
        cut_off: the connection ended after the request was sent.
        repeated: this request was cut off repeatedly, while others were answered.
    """

    reason: str
    timed_out: bool = False
    cut_off: bool = False
    repeated: bool = False


class Meaning(enum.Enum):
    """The action for an answer."""

    ACK = "ack"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    DROP = "drop"
    HOLD = "hold"
    MISSING_ROUTE = "missing_route"
    """Hold for a while, then DEAD_LETTER."""


class Row(enum.Enum):
    """The rows of the table, and the meaning of each for a native app."""

    native: Meaning

    def __new__(cls, answer: str, native: Meaning) -> Self:
        """Keep the meaning beside the row."""
        one = object.__new__(cls)
        one._value_, one.native = answer, native
        return one

    SUCCESS = "2xx with SUCCESS or without a status", Meaning.ACK
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


_STATUSES: Final[dict[object, Row]] = {
    **dict.fromkeys((None, "", "SUCCESS", "CONSUME_SUCCESS"), Row.SUCCESS),
    **dict.fromkeys(("RETRY", "RECONSUME_LATER", _SUSPEND), Row.RETRY),
    "DROP": Row.DROP,
}
_OTHERWISE: Final[dict[Profile, dict[Row, Meaning]]] = {
    Profile.DAPR: {Row.REFUSED: Meaning.RETRY, Row.NOT_FOUND: Meaning.DEAD_LETTER, Row.REDIRECT: Meaning.RETRY},
    Profile.KNATIVE: {Row.CUT_OFF: Meaning.ACK, Row.NOT_FOUND: Meaning.RETRY},
}
"""The meanings that differ in other columns of the table."""


@dataclass(frozen=True, slots=True)
class PushVerdict:
    """The action for the messages of a request.

    Attributes:
        level: the level of a retry.
        acknowledged: the number of messages at the front that are done.
        suspend_ms: of an orderly retry: the wait before the next try in place, -1 for the default; None sends back.
        cause: the cause that a dead letter shows; None for a pure acknowledgement.
        one_by_one: deliver the messages again at once, each alone: only one that fails alone is a dead letter.
    """

    row: Row
    meaning: Meaning
    level: int = 0
    acknowledged: int = 0
    suspend_ms: int | None = None
    cause: Cause | None = None
    one_by_one: bool = False


def judge(
    answer: AppAnswer | NoAnswer,
    profile: Profile,
    *,
    size: int,
    now_ms: float,
    policy: Callable[[], RetryPolicy],
    dead_letter_on: Collection[str] = (),
) -> PushVerdict:
    """Return the verdict on a request.

    Args:
        answer: the answer, or its absence.
        profile: the profile of the subscription.
        size: the number of messages in the request.
        now_ms: the time, for a `Retry-After` with a date.
        policy: returns the group's levels, which few answers need.
        dead_letter_on: types of errors that are not worth a retry.
    """
    if profile is Profile.KNATIVE and isinstance(answer, AppAnswer):
        answer = replace(answer, json=None)  # in this profile, bodies have no meaning
    row = _row_of(answer)
    verdict = PushVerdict(row, _OTHERWISE.get(profile, {}).get(row, row.native))
    if isinstance(answer, NoAnswer):
        level = TIMEOUT_LEVEL if answer.timed_out else 0
        return replace(verdict, level=level, cause=Cause(answer.reason, row.name))
    if verdict.meaning is Meaning.ACK:
        if profile is not Profile.ROCKETMQ_BATCH:
            return verdict
        verdict = _acknowledged(verdict, answer, size)
    else:
        verdict = replace(verdict, cause=_cause(answer, row))
    if verdict.meaning is Meaning.RETRY:
        verdict = _qualified(verdict, answer, now_ms, policy)
    return _unless_hopeless(verdict, size, dead_letter_on)


def was_cut_off(answer: AppAnswer | NoAnswer) -> bool:
    """Return whether the app seems to have got the request and ended without an answer; a proxy says 502."""
    if isinstance(answer, NoAnswer):
        return answer.cut_off
    return answer.status == _BAD_GATEWAY and not _app_spoke(answer)


def _row_of(answer: AppAnswer | NoAnswer) -> Row:
    if isinstance(answer, NoAnswer):
        return Row.ENDS_APP if answer.repeated else Row.TIMED_OUT if answer.timed_out else Row.AWAY
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004 - as HTTP numbers its answers
        return _row_of_success(answer)
    if 300 <= status < 400:  # noqa: PLR2004
        return Row.REDIRECT
    if 400 <= status < 500:  # noqa: PLR2004
        if status == 404:  # noqa: PLR2004
            return Row.NOT_FOUND
        return Row.BUSY if status in _BUSY else Row.REFUSED
    return Row.AWAY if status in _GATEWAY and not _app_spoke(answer) else Row.FAILED


def _row_of_success(answer: AppAnswer) -> Row:
    if answer.cut_off:  # its body may have said RETRY
        return Row.CUT_OFF
    status = (answer.json or {}).get("status")
    return _STATUSES.get(status, Row.UNKNOWN) if isinstance(status, str | None) else Row.UNKNOWN


def _app_spoke(answer: AppAnswer) -> bool:
    """Return whether the app itself answered: proxies do not set these headers."""
    return "retry-after" in answer.headers or any(name.startswith("reconsume-") for name in answer.headers)


def _acknowledged(verdict: PushVerdict, answer: AppAnswer, size: int) -> PushVerdict:
    """Retry the messages after the `ackIndex` of a batch (RocketMQ: CC-06 to CC-09); all after an invalid one."""
    index = _number(answer, "reconsume-ack-index", "ackIndex")
    said = answer.headers.get("reconsume-ack-index", (answer.json or {}).get("ackIndex"))
    if (index is None and said is None) or (index is not None and index >= size - 1):
        return verdict
    if index is None or index < -1:
        shown = plain_text(lambda: str(said), _TEXT) if index is None else index
        cause = Cause(f"ackIndex {shown}: -1 sends the whole batch back, {size - 1} acknowledges it", "ackIndex")
    else:
        told = _cause(answer, verdict.row)
        cause = replace(told, message=f"ackIndex {index}: {told.message}")
    acknowledged = 0 if index is None else max(0, index + 1)
    return replace(verdict, meaning=Meaning.RETRY, acknowledged=acknowledged, cause=cause)


def _qualified(
    verdict: PushVerdict, answer: AppAnswer, now_ms: float, policy: Callable[[], RetryPolicy]
) -> PushVerdict:
    level = _number(answer, "reconsume-delay-level", "delayLevelWhenNextConsume")
    if level is None:
        seconds = _retry_after(answer.headers.get("retry-after"), now_ms)
        level = 0 if seconds is None else _level_at_least(seconds, policy())
    if level < 0:
        return replace(verdict, meaning=Meaning.DEAD_LETTER, level=DEAD_LETTER_LEVEL)
    suspend = _number(answer, "reconsume-suspend-ms")
    if suspend is None and answer.json is not None and answer.json.get("status") == _SUSPEND:
        suspend = _whole(answer.json.get("suspendCurrentQueueTimeMillis"))
        suspend = -1 if suspend is None else suspend
    return replace(verdict, level=level, suspend_ms=suspend)


def _unless_hopeless(verdict: PushVerdict, size: int, dead_letter_on: Collection[str]) -> PushVerdict:
    """Do not retry a listed error type, unless the app requests a level or a time; in a batch, try one by one."""
    kind = None if verdict.cause is None else verdict.cause.exception_class
    has_wish = verdict.level != 0 or verdict.suspend_ms is not None
    if verdict.meaning is not Meaning.RETRY or has_wish or not is_named(kind, dead_letter_on):
        return verdict
    if size - verdict.acknowledged > 1:
        return replace(verdict, one_by_one=True)
    return replace(verdict, meaning=Meaning.DEAD_LETTER, level=DEAD_LETTER_LEVEL)


def _level_at_least(seconds: float, policy: RetryPolicy) -> int:
    """Return the lowest level that waits at least this long; else the highest level."""
    levels = range(1, policy.max_level)
    return next((one for one in levels if policy.delay_ms(one) >= seconds * 1000), policy.max_level)


def _retry_after(text: str | None, now_ms: float) -> float | None:
    """Return seconds; None if the text is neither a number nor a date."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # "-0000" and the old forms lack a zone; HTTP dates are in GMT.
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now_ms / 1000)


def _number(answer: AppAnswer, header: str, key: str | None = None) -> int | None:
    """Return the number in a header, or else in a key of the body."""
    said = _whole(answer.headers.get(header))
    return _whole((answer.json or {}).get(key)) if said is None and key is not None else said


def _whole(said: object) -> int | None:
    """Return a whole number, limited to its range; None for anything else.

    Some JSON libraries write 1.0 for 1.
    """
    if isinstance(said, str):
        text = said.strip()
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 11):  # noqa: PLR2004 - 2^31
            return None
        said = int(text)
    if isinstance(said, float) and said.is_integer() and abs(said) <= _LARGEST:
        said = int(said)
    return max(-_LARGEST, min(said, _LARGEST)) if isinstance(said, int) and not isinstance(said, bool) else None


def _cause(answer: AppAnswer, row: Row) -> Cause:
    """Return the cause that the app names; else its answer, with the beginning of the body."""
    error = (answer.json or {}).get("error")
    told: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    headers = answer.headers
    kind = _text(headers.get("reconsume-error-type"), told.get("type"))
    knative = "; ".join(f"{name[4:]}: {decoded(value)}" for name, value in headers.items() if name.startswith("kne-"))
    message = _text(headers.get("reconsume-error-message"), told.get("message")) or knative[:_TEXT] or _text("", error)
    if not message:
        beginning = answer.body[:_TEXT].decode(errors="replace").strip()
        message = f"the app answered {answer.status}" + (f": {beginning}" if beginning else "")
    otherwise = "APP_DROP" if row is Row.DROP else f"HTTP {answer.status}"
    stack = told.get("stack")
    return Cause(message, kind or otherwise, stack[:_STACK] if isinstance(stack, str) else None)


def _text(header: str | None, in_body: object) -> str | None:
    if header:
        return decoded(header)[:_TEXT]
    return in_body[:_TEXT] if isinstance(in_body, str) and in_body else None
