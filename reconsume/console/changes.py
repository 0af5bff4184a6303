"""People's changes: resends, resolutions, jobs, releases; each is logged with its caller."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Final

from prometheus_client import Counter

from reconsume.bridge.process.clock import Clock
from reconsume.console.cluster import WISHES, ConsoleCluster
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import SEND, ResendVerdict, new_replay_id
from reconsume.operations.resolve import Changed

logger = logging.getLogger(__name__)

_REPLAY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_WHY_CHARACTERS: Final = 500


class Changes:
    """Changes dead letters for pages and API.

    Args:
        cluster: is changed.
        clock: gives the time in milliseconds.
        resent: counts, by outcome.
    """

    def __init__(self, cluster: ConsoleCluster, clock: Clock, resent: Counter) -> None:
        self._cluster = cluster
        self._clock = clock
        self._resent = resent

    def new_replay_id(self) -> str:
        """Return an id for a resend."""
        return new_replay_id("console", self._clock())

    def plan(self, group: str, places: Collection[RecordAddress]) -> list[ResendVerdict]:
        """Return what a resend would do."""
        return self._cluster.plan(group, places)

    def resend(self, who: str, group: str, places: Collection[RecordAddress], replay_id: str) -> list[ResendVerdict]:
        """Send dead letters again; the same call again sends nothing twice.

        Raises:
            IllegalSetting: the replay id is none.
        """
        if _REPLAY_ID.fullmatch(replay_id) is None:
            raise IllegalSetting(f"replay id {replay_id[:100]!r}: at most 100 letters, digits, '.', '_' and '-'")
        try:
            verdicts = self._cluster.resend(group, places, replay_id, who)
        except ReconsumeError as error:
            logger.warning(
                "resend by %s: %d dead letters of group %r failed, replay %s: %s",
                *(who, len(places), group, replay_id, error),
            )
            raise
        sent = sum(one.status == SEND for one in verdicts)
        logger.info(
            "resend by %s: %d of %d dead letters of group %r sent, replay %s",
            *(who, sent, len(verdicts), group, replay_id),
        )
        for one in verdicts:
            self._resent.labels(one.status).inc()
        return verdicts

    def resolve(self, who: str, group: str, places: Collection[RecordAddress], why: str) -> list[Changed]:
        """Resolve open dead letters.

        Raises:
            IllegalSetting: the reason is missing.
        """
        reason = why.strip()[:_WHY_CHARACTERS]
        if not reason:
            raise IllegalSetting("the reason is missing: say why these dead letters need no resend")
        return self._logged("resolved", who, group, self._cluster.resolve(group, places, who, reason))

    def reopen(self, who: str, group: str, places: Collection[RecordAddress]) -> list[Changed]:
        """Open resolved dead letters again."""
        return self._logged("opened", who, group, self._cluster.reopen(group, places))

    def plan_job(self, draft: JobDraft) -> JobPlan:
        """Return what a job would do."""
        return self._cluster.plan_job(draft)

    def create_job(self, who: str, draft: JobDraft, why: str, count: int | None = None) -> Job:
        """Create a job."""
        job = self._cluster.create_job(draft, who, why.strip()[:_WHY_CHARACTERS], count)
        logger.info("job created job=%s kind=%s group=%r by=%s", job.name, draft.kind, draft.group, who)
        return job

    def steer_job(self, who: str, name: str, wish: str, why: str = "") -> Job:
        """Pause a job, have it go on, or end it.

        Raises:
            IllegalSetting: an unknown request or job, or the job has ended.
        """
        if wish not in WISHES:
            raise IllegalSetting(f"{wish[:80]!r} is no wish; use {', '.join(WISHES)}")
        job = self._cluster.steer_job(name, wish, who, why.strip()[:_WHY_CHARACTERS])
        logger.info("job %s job=%s group=%r by=%s", wish, name, job.spec.group, who)
        return job

    def release(self, who: str, places: Collection[RecordAddress]) -> int:
        """Give records of the quarantine back to the schedulers; all of them, or none."""
        number = self._cluster.release(places)
        logger.info("quarantine released records=%d by=%s", number, who)
        return number

    @staticmethod
    def _logged(what: str, who: str, group: str, done: list[Changed]) -> list[Changed]:
        changed = sum(one.is_changed for one in done)
        logger.info("dead letters %s group=%r by=%s changed=%d of=%d", what, group, who, changed, len(done))
        return done
