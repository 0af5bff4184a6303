"""Changes by people: jobs, resolutions, pauses, releases; each is logged with its caller."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.console.cluster import WISHES, ConsoleCluster
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import Changed

logger = SafeLogger(__name__)

_WHY_CHARACTERS: Final = 500


class Changes:
    """Changes dead letters for pages and API.

    Args:
        cluster: the cluster to change.
    """

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster

    def resolve(self, who: str, group: str, places: Collection[RecordAddress], why: str) -> list[Changed]:
        """Resolve open dead letters.

        Raises:
            IllegalSetting: the reason is missing.
        """
        return self._logged("resolved", who, group, self._cluster.resolve(group, places, who, _reason(why)))

    def reopen(self, who: str, group: str, places: Collection[RecordAddress]) -> list[Changed]:
        """Open resolved dead letters again."""
        return self._logged("opened", who, group, self._cluster.reopen(group, places))

    def create_job(self, who: str, draft: JobDraft, why: str, count: int | None = None) -> Job:
        """Create a job."""
        job = self._cluster.create_job(draft, who, why.strip()[:_WHY_CHARACTERS], count)
        edited = "" if draft.edit is None else f" edited={draft.edit.parts}"
        logger.info("job created job=%s kind=%s group=%r by=%s%s", job.name, draft.kind, draft.group, who, edited)
        return job

    def steer_job(self, who: str, name: str, wish: str, why: str = "") -> Job:
        """Pause, resume or cancel a job.

        Raises:
            IllegalSetting: an unknown request or job, or the job has ended.
        """
        if wish not in WISHES:
            raise IllegalSetting(f"request {wish[:80]!r} is unknown; use {', '.join(WISHES)}")
        job = self._cluster.steer_job(name, wish, who, why.strip()[:_WHY_CHARACTERS])
        logger.info("job %s job=%s group=%r by=%s", wish, name, job.spec.group, who)
        return job

    def pause_retries(self, who: str, group: str, *, is_paused: bool) -> None:
        """Pause or resume due retries of a group."""
        self._cluster.pause_retries(group, is_paused=is_paused)
        logger.info("retries %s group=%r by=%s", "paused" if is_paused else "resumed", group, who)

    def release(self, who: str, places: Collection[RecordAddress]) -> int:
        """Return records of the quarantine to the schedulers; all of them, or none."""
        number = self._cluster.release(places)
        logger.info("quarantine released records=%d by=%s", number, who)
        return number

    def resolve_quarantined(self, who: str, places: Collection[RecordAddress], why: str) -> int:
        """Close records of the quarantine for good, all or none.

        Raises:
            IllegalSetting: the reason is missing, or a record is not open.
        """
        number = self._cluster.resolve_quarantined(places, who, _reason(why))
        logger.info("quarantine resolved records=%d by=%s", number, who)
        return number

    @staticmethod
    def _logged(what: str, who: str, group: str, done: list[Changed]) -> list[Changed]:
        changed = sum(one.is_changed for one in done)
        logger.info("dead letters %s group=%r by=%s changed=%d of=%d", what, group, who, changed, len(done))
        return done


def _reason(why: str) -> str:
    if not (reason := why.strip()[:_WHY_CHARACTERS]):
        raise IllegalSetting("the reason is missing: say why these records need no delivery")
    return reason
