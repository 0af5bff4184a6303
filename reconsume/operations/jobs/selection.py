"""The dead letters of a job: fixed at its creation, later deaths do not change it."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.delay_levels.errors import IllegalSetting, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import OPEN, STATES, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import TARGETS, DeadLetterFilter, JobSpec, LetterEdit, check_edit
from reconsume.delay_levels.wire.properties import LARGEST
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, find_partitions, find_spans, matches, require_letters
from reconsume.operations.record_address import RecordAddress

MOST_PICKED: Final = 50_000
"""Maximum of places of one job; they are in one record."""
MOST_EDITED: Final = 512 * 1024
"""Maximum of bytes of an edit."""
WINDOW: Final = 100_000
"""Offsets whose letters, states and histories are in memory at a time."""


@dataclass(frozen=True, slots=True)
class JobDraft:
    """A job to create.

    Attributes:
        kind: `resend` or `resolve`.
        wanted: the filter; without a state, it selects open dead letters.
        records: picked places instead of a filter.
        rate: the maximum of records per second; None for no limit.
        max_replays: a message that was resent this often is left out (the loop limit).
        target: `retry` (the group's retry topic) or `origin` (the origin topic, where every group sees it).
        edit: the changes, for one picked record.
    """

    kind: str
    group: str
    wanted: DeadLetterFilter = DeadLetterFilter()  # noqa: RUF009 - it is frozen
    records: Collection[RecordAddress] | None = None
    rate: int | None = None
    max_replays: int = 2
    target: str = "retry"
    edit: LetterEdit | None = None


def fix(cluster: Cluster, draft: JobDraft, *, by: str = "", why: str = "", count: int | None = None) -> JobSpec:
    """Return the job with its current selection.

    Raises:
        IllegalSetting: the draft contradicts itself, or names too many records.
        RecordNotFound: a picked record does not exist.
        TopicNotReady: the group has no dead-letter topic.
    """
    check_draft(draft)
    partitions = find_partitions(cluster, draft.group)
    topic = partitions[0][0]
    topic_id = cluster.admin.topic_ids({topic}).get(topic)
    if topic_id is None:
        raise TopicNotReady(f"topic {topic} is unavailable at the moment; run the command again")
    wanted = draft.wanted
    if draft.records is None and wanted.state is None:
        wanted = replace(wanted, state=OPEN)
    found = find_spans(cluster.admin, partitions, wanted)
    spans = {partition: span for (_, partition), span in found.items() if span[0] < span[1]}
    picked = None if draft.records is None else _picked(draft.group, draft.records, spans)
    if picked is not None:
        spans = {one: (offsets[0], offsets[-1] + 1) for one, offsets in picked.items()}
    return JobSpec(
        *(draft.kind, draft.group, int(cluster.clock()), by, why, topic, topic_id, spans, wanted, picked, count),
        *(draft.rate, draft.max_replays, draft.target, draft.edit),
    )


def check_draft(draft: JobDraft) -> JobDraft:
    """Return the draft, if it is possible.

    Raises:
        IllegalSetting: it contradicts itself, or names too many records.
    """
    if draft.wanted.state is not None and draft.wanted.state not in STATES:
        raise IllegalSetting(f"state {draft.wanted.state!r}: use one of {', '.join(STATES)}")
    if draft.target not in TARGETS:
        raise IllegalSetting(f"target {draft.target[:80]!r}: use {' or '.join(TARGETS)}")
    if draft.rate is not None and not 1 <= draft.rate <= LARGEST:
        raise IllegalSetting(
            f"rate {draft.rate}: use at least 1 record a second and at most {LARGEST}, or leave it out for no limit"
        )
    if not 1 <= draft.max_replays <= LARGEST:
        raise IllegalSetting(f"max_replays {draft.max_replays}: use at least 1 and at most {LARGEST}")
    if draft.records is not None and not 1 <= len(draft.records) <= MOST_PICKED:
        raise IllegalSetting(
            f"{len(draft.records):,} dead letters are named; name between 1 and {MOST_PICKED:,}, or use a filter"
        )
    if draft.records is not None and draft.wanted != DeadLetterFilter():
        raise IllegalSetting("a job takes a filter or named records, not both; leave one of them out")
    if draft.edit is not None:
        if draft.kind != "resend" or draft.records is None or len(draft.records) != 1:
            raise IllegalSetting("an edit needs the resend of exactly one named record; name one")
        check_edit(draft.edit, MOST_EDITED)
    CauseLabels(draft.wanted.label_rules)
    return draft


def _picked(group: str, records: Collection[RecordAddress], spans: dict[int, tuple[int, int]]) -> dict[int, list[int]]:
    places = {RecordAddress(*one) for one in records}
    empty = (0, 0)
    require_letters(group, [one for one in places if one.offset not in range(*spans.get(one.partition, empty))])
    picked: dict[int, list[int]] = {}
    for partition, offset in sorted(places):
        picked.setdefault(partition, []).append(offset)
    return picked


class Selection:
    """The dead letters of a job.

    Args:
        spec: the definition of the job.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._picked = None if spec.records is None else {one: sorted(at) for one, at in spec.records.items()}
        self._stateless = replace(spec.wanted, state=None)
        self._labels = CauseLabels(spec.wanted.label_rules)

    def windows(self, partition: int, start: int) -> Iterator[tuple[int, int]]:
        """Yield the windows of a partition that may have letters: first offset, and the one after the last."""
        start, end = max(start, self._spec.spans[partition][0]), self._spec.spans[partition][1]
        while start < end:
            if self._picked is None:
                stop = min(start + WINDOW, end)
            else:
                offsets = self._picked[partition]
                at = bisect.bisect_left(offsets, start)
                if at == len(offsets):
                    return
                start = offsets[at]
                stop = offsets[bisect.bisect_left(offsets, start + WINDOW) - 1] + 1
            yield start, stop
            start = stop

    def picked(self, partition: int, start: int, end: int) -> list[int]:
        """Return the picked offsets from `start` to before `end`; empty for a filter."""
        offsets = [] if self._picked is None else self._picked.get(partition, [])
        return offsets[bisect.bisect_left(offsets, start) : bisect.bisect_left(offsets, end)]

    def takes(self, one: DeadLetterRecord) -> bool:
        """Return whether a letter is selected, regardless of its state."""
        if self._picked is not None:
            return bool(self.picked(one.place.partition, one.place.offset, one.place.offset + 1))
        label = self._stateless.label
        return matches(self._stateless, one) and (label is None or self.label(one) == label)

    def takes_state(self, state: DeadLetterState | None) -> bool:
        """Whether a letter had the wanted state when the job was created."""
        then = None if state is not None and state.at_ms > self._spec.at_ms else state
        return self._spec.wanted.state is None or state_name(then) == self._spec.wanted.state

    def label(self, one: DeadLetterRecord) -> str:
        """Return the label of its cause."""
        return self._labels.label(one.letter.exception_class, one.letter.cause)
