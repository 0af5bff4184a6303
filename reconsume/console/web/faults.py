"""Texts and statuses of errors on pages."""

from __future__ import annotations

from typing import Final

from reconsume.delay_levels.errors import (
    IllegalSetting,
    KafkaNotReachable,
    KafkaRefused,
    MalformedProperty,
    ReconsumeError,
    RecordNotFound,
    SendBackFailed,
    SubscriptionGroupNotExist,
    TopicNotReady,
    WorkerFenced,
    WriterReplaced,
)
from reconsume.operations.dead_letter_index.letters import IndexDamaged


class ConsoleBusy(ReconsumeError):
    """The console does a request that costs much, and takes no other one meanwhile."""


_STATUSES: Final[tuple[tuple[type[ReconsumeError], int], ...]] = (
    (SubscriptionGroupNotExist, 404),
    (RecordNotFound, 404),
    (TopicNotReady, 404),
    (KafkaNotReachable, 503),
    (SendBackFailed, 503),
    (WorkerFenced, 503),
    (WriterReplaced, 503),
    (IndexDamaged, 503),
    (ConsoleBusy, 503),
    (KafkaRefused, 403),
    (MalformedProperty, 400),
    (IllegalSetting, 400),
)


class Refusal(Exception):
    """An error response of the console itself.

    Args:
        status: the HTTP status; a text `error_<status>` exists.
        detail: what failed, where, why, and the way out; in English, as all errors.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def status_of(error: ReconsumeError) -> int:
    """Return the HTTP status for an error of reconsume."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
