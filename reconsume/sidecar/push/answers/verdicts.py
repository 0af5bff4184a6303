"""From an answer to what is done: its meaning, and what the app says more in headers and body."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from reconsume.consumers.listeners.concurrently import TIMEOUT_LEVEL
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL, is_named
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.wire.send_back_copy import Cause
from reconsume.sidecar.push.answers.answers import AppAnswer, Meaning, NoAnswer, Row, body_of, meaning_of
from reconsume.sidecar.push.requests.percent import decoded
from reconsume.sidecar.push.settings import Profile

__all__ = ["PushVerdict", "judge", "level_at_least"]

_SUSPEND: Final = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
_TEXT: Final = 1_024
_STACK: Final = 4_096
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PushVerdict:
    """What is done with the messages of a request.

    Attributes:
        level: of a retry.
        acknowledged: so many messages from the front are done all the same.
        suspend_ms: in an order: try again in place after so long, -1 for the default; None to send back.
        cause: what a dead letter shows.
        one_by_one: the messages are delivered again at once, each alone: only one that fails alone is a dead letter.
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
    """What becomes of a request.

    Args:
        answer: what came back.
        profile: of the subscription.
        size: messages in the request.
        now_ms: for a `Retry-After` that is a date.
        policy: gives the group's levels; most answers need none.
        dead_letter_on: types of errors that are not worth a retry.
    """
    row, meaning = meaning_of(answer, profile)
    if isinstance(answer, NoAnswer):
        level = TIMEOUT_LEVEL if answer.timed_out else 0
        return PushVerdict(row, meaning, level, cause=Cause(answer.reason, row.name))
    body = body_of(answer, profile)
    if meaning is Meaning.ACK:
        verdict = _acknowledged(PushVerdict(row, meaning), answer, body, profile, size)
    else:
        verdict = PushVerdict(row, meaning, cause=_cause(answer, body, row))
        if meaning is Meaning.RETRY:
            verdict = _qualified(verdict, answer, body, now_ms, policy)
    return _unless_hopeless(verdict, size, dead_letter_on)


def _unless_hopeless(verdict: PushVerdict, size: int, dead_letter_on: Collection[str]) -> PushVerdict:
    """No retry for a type that is listed, unless the app wishes for one; of several messages it may be any."""
    kind = None if verdict.cause is None else verdict.cause.exception_class
    has_wish = verdict.level != 0 or verdict.suspend_ms is not None
    if verdict.meaning is not Meaning.RETRY or has_wish or not is_named(kind, dead_letter_on):
        return verdict
    if size - verdict.acknowledged > 1:
        return replace(verdict, one_by_one=True)
    return replace(verdict, meaning=Meaning.DEAD_LETTER, level=DEAD_LETTER_LEVEL)


def _acknowledged(
    verdict: PushVerdict, answer: AppAnswer, body: Mapping[str, Any], profile: Profile, size: int
) -> PushVerdict:
    """A batch with an `ackIndex` may be done in part (RocketMQ: CC-06 to CC-09)."""
    if profile is not Profile.ROCKETMQ_BATCH:
        return verdict
    index = _number(answer.headers.get("reconsume-ack-index"), body.get("ackIndex"))
    if index is None or index >= size - 1:
        return verdict
    level = _level(answer, body) or 0
    meaning = Meaning.DEAD_LETTER if level < 0 else Meaning.RETRY
    said = _cause(answer, body, verdict.row)
    if index < -1:
        cause = Cause(f"ackIndex {index}: -1 sends the whole batch back, {size - 1} acknowledges it", "ackIndex")
        return PushVerdict(verdict.row, meaning, level, cause=cause)
    cause = replace(said, message=f"ackIndex {index}: {said.message}")
    return PushVerdict(verdict.row, meaning, level, acknowledged=index + 1, cause=cause)


def _qualified(
    verdict: PushVerdict, answer: AppAnswer, body: Mapping[str, Any], now_ms: float, policy: Callable[[], RetryPolicy]
) -> PushVerdict:
    level = _level(answer, body)
    if level is None:
        seconds = _retry_after(answer.headers.get("retry-after"), now_ms)
        level = 0 if seconds is None else level_at_least(seconds, policy())
    if level < 0:
        return replace(verdict, meaning=Meaning.DEAD_LETTER, level=DEAD_LETTER_LEVEL)
    suspend = _number(answer.headers.get("reconsume-suspend-ms"), None)
    if suspend is None and body.get("status") == _SUSPEND:
        suspend = _number(None, body.get("suspendCurrentQueueTimeMillis"))
        suspend = -1 if suspend is None else suspend
    return replace(verdict, level=level, suspend_ms=suspend)


def _level(answer: AppAnswer, body: Mapping[str, Any]) -> int | None:
    return _number(answer.headers.get("reconsume-delay-level"), body.get("delayLevelWhenNextConsume"))


def level_at_least(seconds: float, policy: RetryPolicy) -> int:
    """The lowest level that waits as long; the highest one where none does."""
    for level in range(1, policy.max_level + 1):
        if policy.delay_ms(level) >= seconds * 1000:
            return level
    return policy.max_level


def _retry_after(text: str | None, now_ms: float) -> float | None:
    """Seconds; None where it is neither a number nor a date."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    # "-0000" and the old forms come without a zone; HTTP dates are in GMT.
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now_ms / 1000)


def _number(header: str | None, in_body: object) -> int | None:
    """A whole number; the header wins. What is none counts as not said."""
    for said in (header, in_body):
        if isinstance(said, bool) or said is None:
            continue
        if isinstance(said, str):
            text = said.strip()
            if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 11):  # noqa: PLR2004 - 2^31
                continue
            said = int(text)  # noqa: PLW2901 - the same in another form
        if isinstance(said, int):
            return max(-_LARGEST, min(said, _LARGEST))
    return None


def _cause(answer: AppAnswer, body: Mapping[str, Any], row: Row) -> Cause:
    """Why, as the app says it; else what it answered, with the beginning of the body."""
    error = body.get("error")
    told: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    headers = answer.headers
    kind = _text(headers.get("reconsume-error-type"), told.get("type"))
    message = _text(headers.get("reconsume-error-message"), told.get("message"))
    if message is None:
        knative = [f"{name[4:]}: {decoded(value)}" for name, value in headers.items() if name.startswith("kne-")]
        message = "; ".join(knative)[:_TEXT] or None
    if message is None and isinstance(error, str):
        message = error[:_TEXT]
    if message is None:
        beginning = answer.body[:_TEXT].decode(errors="replace").strip()
        message = f"the app answered {answer.status}" + (f": {beginning}" if beginning else "")
    otherwise = "APP_DROP" if row is Row.DROP else f"HTTP {answer.status}"
    stack = told.get("stack")
    return Cause(message, kind or otherwise, stack[:_STACK] if isinstance(stack, str) else None)


def _text(header: str | None, in_body: object) -> str | None:
    if header:
        return decoded(header)[:_TEXT]
    return in_body[:_TEXT] if isinstance(in_body, str) and in_body else None
