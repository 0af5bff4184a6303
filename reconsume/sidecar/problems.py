"""Errors of the API as RFC 9457 has them: `application/problem+json`, one kind for each way a caller can react."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from reconsume.delay_levels.errors import (
    IllegalName,
    IllegalSetting,
    KafkaNotReachable,
    KafkaRefused,
    MalformedProperty,
    ReconsumeError,
    RecordNotFound,
    RecordTooLarge,
    SendBackFailed,
    SubscriptionGroupNotExist,
    TopicNotAllowed,
    TopicNotReady,
)

__all__ = ["AGAIN_SECONDS", "PROBLEM_JSON", "Problem", "of_several", "problem_of"]

PROBLEM_JSON: Final = "application/problem+json"
AGAIN_SECONDS: Final = 5
"""RocketMQ's clients try a send-back that failed again after so long (RocketMQ: CC-12)."""

_TYPE: Final = "urn:reconsume:problem:"
_TRY_AGAIN: Final = 503


class Problem(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        kind: the last part of `type`, such as `record-not-found`.
        title: the same for all of a kind.
        detail: what, where, why, way out. Never a payload, never a secret.
        retry_after: seconds until the same call may succeed.
        more: further members.
    """

    def __init__(
        self, status: int, kind: str, title: str, detail: str, retry_after: float | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.title = title
        self.detail = detail
        self.retry_after = retry_after
        self.more = more

    @property
    def body(self) -> dict[str, Any]:
        """What is sent."""
        facts = {"type": _TYPE + self.kind, "title": self.title, "status": self.status, "detail": self.detail}
        return facts | self.more

    @property
    def headers(self) -> dict[str, str]:
        """What is sent with it."""
        headers = {} if self.retry_after is None else {"retry-after": str(math.ceil(self.retry_after))}
        if self.status == 401:  # noqa: PLR2004 - RFC 9110 wants the challenge with it
            headers["www-authenticate"] = "Bearer"
        return headers


_KINDS: Final[tuple[tuple[type[ReconsumeError], int, str, str], ...]] = (
    (SubscriptionGroupNotExist, 404, "unknown-group", "The consumer group is not registered"),
    (RecordNotFound, 404, "record-not-found", "There is no such record"),
    (TopicNotAllowed, 403, "topic-not-allowed", "Not a topic for messages"),
    (TopicNotReady, 404, "topic-not-found", "The topic does not exist"),
    (KafkaNotReachable, _TRY_AGAIN, "kafka-away", "Kafka has not acknowledged it"),
    (SendBackFailed, _TRY_AGAIN, "send-back-failed", "Kafka has not acknowledged it"),
    (RecordTooLarge, 413, "record-too-large", "The record is too large for its topic"),
    (KafkaRefused, 502, "kafka-refused", "Kafka refuses the sidecar"),
    (MalformedProperty, 422, "malformed-header", "A header of reconsume does not hold what it must"),
    (IllegalName, 422, "illegal-name", "A name that Kafka cannot hold"),
    (IllegalSetting, 422, "illegal-value", "A value was refused"),
)


def problem_of(error: ReconsumeError) -> Problem:
    """How a caller is told of one of our errors."""
    for kind, status, name, title in _KINDS:
        if isinstance(error, kind):
            return Problem(status, name, title, str(error), AGAIN_SECONDS if status == _TRY_AGAIN else None)
    return Problem(500, "unexpected", "The sidecar could not do it", str(error))


def of_several(parts: Sequence[dict[str, Any] | Problem]) -> Problem:
    """One problem for a list of which some failed: a 2xx would let a caller commit what is not acknowledged.

    It may be tried again if one of them may: what was acknowledged is not written a second time.
    """
    failed = [part for part in parts if isinstance(part, Problem)]
    worst = next((part for part in failed if part.status == _TRY_AGAIN), failed[0])
    return Problem(
        worst.status,
        "records-failed",
        "Some records were not sent back",
        f"{len(failed)} of {len(parts)} records were not sent back, the first: {failed[0].detail}; see records",
        worst.retry_after,
        records=[part.body if isinstance(part, Problem) else part for part in parts],
    )
