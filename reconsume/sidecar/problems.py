"""Errors of the API by RFC 9457, `application/problem+json`, one kind for each reaction of a caller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from reconsume.delay_levels.errors import (
    GroupIsFull,
    IllegalName,
    IllegalSetting,
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    RecordNotFound,
    RecordTooLarge,
    SendBackFailed,
    SubscriptionGroupNotExist,
    TopicNotAllowed,
    TopicNotReady,
)

PROBLEM_JSON: Final = "application/problem+json"
_AGAIN_SECONDS: Final = 5
"""RocketMQ's clients repeat a failed send-back after this time (RocketMQ: CC-12)."""

_TYPE: Final = "urn:reconsume:problem:"
_TRY_AGAIN: Final = 503
_KINDS: Final[dict[str, tuple[int, str]]] = {
    "body-too-large": (413, "The body is too large"),
    "consume-disabled": (403, "The consumer group may not consume"),
    "group-is-full": (429, "The consumer group has as many messages waiting as it may"),
    "headers-too-large": (431, "Request Header Fields Too Large"),
    "idempotency-key-reused": (409, "The idempotency key was used for something else"),
    "illegal-name": (422, "A name that Kafka cannot hold"),
    "illegal-value": (422, "A value was refused"),
    "kafka-away": (503, "Kafka has not acknowledged it"),
    "kafka-refused": (502, "Kafka refuses the sidecar"),
    "no-http": (400, "Bad Request"),
    "no-json": (400, "The body is no JSON"),
    "other-site": (403, "A web page of another site"),
    "reconsume-times-disagree": (409, "The record was sent back a different number of times"),
    "record-not-found": (404, "The record does not exist"),
    "record-too-large": (413, "The record is too large for its topic"),
    "records-failed": (503, "Some records were not sent back"),
    "send-back-failed": (503, "Kafka has not acknowledged it"),
    "starting": (503, "The sidecar is starting"),
    "token-not-allowed": (403, "The token does not open it"),
    "too-many-requests": (429, "Too many requests"),
    "too-many-waiting": (503, "Too many calls wait for Kafka"),
    "too-slow": (408, "Request Timeout"),
    "topic-not-allowed": (403, "Not a topic for messages"),
    "topic-not-found": (404, "The topic does not exist"),
    "unauthorized": (401, "A token is needed"),
    "unexpected": (500, "The sidecar could not do it"),
    "unknown-group": (404, "The consumer group is not registered"),
    "unsupported-media-type": (415, "The body is not declared as JSON"),
}
"""Status and title of each kind."""
_OF_ERRORS: Final[tuple[tuple[type[ReconsumeError], str], ...]] = (
    (SubscriptionGroupNotExist, "unknown-group"),
    (RecordNotFound, "record-not-found"),
    (TopicNotAllowed, "topic-not-allowed"),
    (TopicNotReady, "topic-not-found"),
    (KafkaNotReachable, "kafka-away"),
    (GroupIsFull, "group-is-full"),
    (SendBackFailed, "send-back-failed"),
    (RecordTooLarge, "record-too-large"),
    (KafkaRefused, "kafka-refused"),
    (IllegalName, "illegal-name"),
    (IllegalSetting, "illegal-value"),
    (ReconsumeError, "unexpected"),
)


class Problem(Exception):
    """An error response.

    Args:
        kind: the last part of `type`, such as `record-not-found`.
        detail: what failed, where, why, and the way out. Never a payload, never a secret.
        status: HTTP status, if it differs from that of the kind.
        title: title, if it differs.
        retry_after: seconds until the same call may succeed; always set for 503.
        more: further members.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        status: int | None = None,
        title: str | None = None,
        retry_after: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.status, self.title = status or _KINDS[kind][0], title or _KINDS[kind][1]
        self.retry_after = _AGAIN_SECONDS if self.status == _TRY_AGAIN else retry_after
        self.more = more

    @property
    def body(self) -> dict[str, Any]:
        """Return the body of the response."""
        facts = {"type": _TYPE + self.kind, "title": self.title, "status": self.status, "detail": self.detail}
        return facts | self.more

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the response."""
        headers = {} if self.retry_after is None else {"retry-after": str(math.ceil(self.retry_after))}
        if self.status == 401:  # noqa: PLR2004 - RFC 9110 wants the challenge with it
            headers["www-authenticate"] = "Bearer"
        return headers


def problem_of(error: Problem | ReconsumeError) -> Problem:
    """Return the problem for an error of reconsume."""
    if isinstance(error, Problem):
        return error
    # Delay topic and inbox have both refused it, and would do so again.
    cause = error.__cause__ if isinstance(error, SendBackFailed) else None
    reason = cause if isinstance(cause, KafkaRefused) else error
    kind = next(kind for of, kind in _OF_ERRORS if isinstance(reason, of))
    return Problem(kind, str(error), retry_after=_AGAIN_SECONDS if isinstance(error, GroupIsFull) else None)


def of_several(parts: Sequence[dict[str, Any] | Problem]) -> Problem:
    """Return one problem for a list of which some failed: a 2xx would let a caller commit unacknowledged records.

    The call may be repeated if one part may: acknowledged records are not written a second time.
    """
    failed = [part for part in parts if isinstance(part, Problem)]
    again = [part for part in failed if part.retry_after is not None]
    worst = next((part for part in again if part.status == _TRY_AGAIN), (again or failed)[0])
    return Problem(
        "records-failed",
        f"{len(failed)} of {len(parts)} records were not sent back, the first: {failed[0].detail}; see records",
        status=worst.status,
        retry_after=worst.retry_after,
        records=[part.body if isinstance(part, Problem) else part for part in parts],
    )
