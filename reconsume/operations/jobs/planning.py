"""The plan of a job: counts by cause, hour and origin topic, without writing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.delay_levels.wire.dead_letter_states import OPEN
from reconsume.delay_levels.wire.jobs.job_records import JobSpec
from reconsume.delay_levels.wire.resend import SEND
from reconsume.operations.dead_letter_index.letters import Counted
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, require_letters
from reconsume.operations.jobs.letters import LetterWindow
from reconsume.operations.jobs.selection import JobDraft, Selection, fix

_HOUR_MS: Final = 3_600_000
_MOST_VALUES: Final = 1_000
OTHERS: Final = "(others)"


@dataclass(slots=True)
class JobPlan:
    """The current plan of a job.

    Attributes:
        count: the number of selected dead letters.
        acted: the number that it would send or resolve; the others are left out.
        statuses: counts by status: for a resend the keys of `REASONS`, otherwise the states.
        causes: by label, the most frequent first, and when the first and the last of them died.
        hours: by the hour in which they died (milliseconds), in order.
        origins: by origin topic, the most frequent first.
        is_whole: whether all dead letters were counted, else only the newest.
    """

    count: int = 0
    acted: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    causes: list[Counted] = field(default_factory=list)
    hours: list[Counted] = field(default_factory=list)
    origins: list[Counted] = field(default_factory=list)
    is_whole: bool = True


class _Histogram:
    """Counts values; those beyond a thousand are counted together.

    Args:
        most: how many values are counted apart.
    """

    def __init__(self, most: float = _MOST_VALUES) -> None:
        self._most = most
        self._found: dict[str, tuple[int, int, int]] = {}

    def add(self, value: str, at_ms: int) -> None:
        name = value if value in self._found or len(self._found) < self._most else OTHERS
        number, first, last = self._found.get(name, (0, at_ms, at_ms))
        self._found[name] = number + 1, min(first, at_ms), max(last, at_ms)

    def counted(self) -> list[Counted]:
        found = [Counted(value, *numbers) for value, numbers in self._found.items()]
        return sorted(found, key=lambda one: (-one.number, one.value))


def plan(
    cluster: Cluster,
    draft: JobDraft,
    told: Callable[[DeadLetterRecord, str], None] = lambda _one, _status: None,
    *,
    most: int | None = None,
) -> JobPlan:
    """Return what a job of this draft would do now (a dry run). Reads the letters, and writes nothing.

    Args:
        cluster: the installation.
        draft: the draft of the job.
        told: called with each letter and its status.
        most: read only so many of the newest letters of the group, a part of each partition; None reads all.

    Raises:
        IllegalSetting: the draft contradicts itself, or names too many records.
        RecordNotFound: a picked record does not exist.
        TopicNotReady: the group has no dead-letter topic, or `DELAY.0s` is missing.
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    spec = _newest(whole := fix(cluster, draft), most)
    selection, found = Selection(spec), JobPlan(is_whole=spec == whole)
    # The values of hours are numbers, which time limits: ten years have 87,660.
    causes, hours, origins = _Histogram(), _Histogram(math.inf), _Histogram()
    missing = set(draft.records or ())
    for partition in sorted(spec.spans):
        for start, end in selection.windows(partition, 0):
            window = LetterWindow(cluster, spec, selection, partition, start, end, to_the_last=False)
            for one in window.letters():
                status, is_acted = _status(spec.kind, window, one)
                told(one, status)
                missing.discard(one.place)
                found.count += 1
                found.acted += is_acted
                found.statuses[status] += 1
                causes.add(selection.label(one), one.stored_ms)
                hours.add(str(one.stored_ms // _HOUR_MS * _HOUR_MS), one.stored_ms)
                origins.add(one.letter.origin_topic or "", one.stored_ms)
    require_letters(draft.group, missing)
    found.causes, found.origins = causes.counted(), origins.counted()
    found.hours = sorted(hours.counted(), key=lambda one: one.first_ms)
    return found


def _newest(spec: JobSpec, most: int | None) -> JobSpec:
    if most is None:
        return spec
    share = most // max(1, len(spec.spans))
    return replace(spec, spans={one: (max(start, end - share), end) for one, (start, end) in spec.spans.items()})


def _status(kind: str, window: LetterWindow, one: DeadLetterRecord) -> tuple[str, bool]:
    if kind == "resend":
        status = window.verdict(one).status
        return status, status == SEND
    state = state_name(one.state)
    return state, state == OPEN
