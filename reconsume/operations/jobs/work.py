"""The actions of jobs on a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.writing.lane_partitions import LanePartitions
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.wire.allowed_topics import is_allowed
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESOLVED, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import JobProgress
from reconsume.delay_levels.wire.names import MAX_TOPIC_LENGTH
from reconsume.delay_levels.wire.resend import REASONS, SEND
from reconsume.operations.dead_letter_states import state_name, state_record
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.letters import LetterWindow
from reconsume.operations.jobs.records import Job
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import WITH_STATES, ResendVerdict, find_lane, resent_copy, resent_state

SENT: Final = "sent"
DONE_WITH: Final = {
    SENT: "sent again",
    "resolved_now": "resolved",
}
"""Outcomes of letters for which a job did its action."""
EXPIRED: Final = "expired"
TOO_LARGE: Final = "too_large"
LEFT_OUT: Final = {name: words for name, words in REASONS.items() if name != SEND} | {
    EXPIRED: "it is no longer kept",
    TOO_LARGE: "Kafka has refused it",
    "no_origin": "its origin topic is unknown",
    "no_target": "its origin topic does not exist any more",
    "not_allowed": "the schedulers' allowed_real_topics do not match its origin topic",
}
"""Outcomes of letters that stay unchanged, and the reasons."""
OUTCOMES: Final = DONE_WITH | LEFT_OUT


_REASONS_KEPT: Final = 5
_REASON_CHARACTERS: Final = 500


class LetterOutcome(NamedTuple):
    """The outcome of a letter.

    Attributes:
        outcome: a key of `OUTCOMES`.
        reason: the reason in words, if it is left out.
        records: the records to write for it.
    """

    place: RecordAddress
    message_id: str
    outcome: str
    reason: str = ""
    records: Sequence[NewRecord] = ()


class JobWork(Protocol):
    """The action of a kind of job."""

    def decide(self, window: LetterWindow, one: DeadLetterRecord) -> LetterOutcome:
        """Return the outcome for a letter, as known now."""


class Resending(JobWork):
    """Resends letters.

    Args:
        cluster: the installation.
        job: the job.
        states: the topic of states.
    """

    def __init__(self, cluster: Cluster, job: Job, states: str) -> None:
        self._cluster, self._job, self._states = cluster, job, states
        self._groups = read_groups(cluster)
        lanes, lane = LanePartitions(lambda: self._groups), cluster.names.delay(0)
        self._choose: Callable[[bytes | None], int] = partial(
            lanes.choose, lane, len(find_lane(cluster)), job.spec.group
        )
        self._origins: dict[str, tuple[str, str]] = {}

    def decide(self, window: LetterWindow, one: DeadLetterRecord) -> LetterOutcome:
        """Resend the letter, if the rules allow it."""
        verdict = window.verdict(one)
        outcome, reason = verdict.status, REASONS[verdict.status]
        if verdict.status == SEND:
            outcome, reason = self._target(one)
        records: list[NewRecord] = []
        if outcome == SENT:
            spec = self._job.spec
            to_origin = spec.target == "origin"
            records.append(
                resent_copy(self._cluster, self._choose, verdict, self._job.name, to_origin=to_origin, edit=spec.edit)
            )
        if outcome == SENT or verdict.status in WITH_STATES[1:]:
            records.append(self._state(verdict))
        return LetterOutcome(one.place, one.letter.origin_message_id, outcome, reason, records)

    def _state(self, verdict: ResendVerdict) -> NewRecord:
        state = resent_state(verdict, self._job.name, self._job.spec.by, int(self._cluster.clock()))
        return state_record(self._states, *state)

    def _target(self, one: DeadLetterRecord) -> tuple[str, str]:
        """Return whether a letter can go to its target, or why not."""
        if self._job.spec.target == "retry":
            return SENT, ""
        topic = one.letter.origin_topic
        if topic is None:
            return "no_origin", LEFT_OUT["no_origin"]
        if len(topic) > MAX_TOPIC_LENGTH:
            return "no_target", f"topic {topic[:MAX_TOPIC_LENGTH]}… cannot exist, because its name is too long"
        if topic not in self._origins:
            self._origins[topic] = self._origin(topic)
        return self._origins[topic]

    def _origin(self, topic: str) -> tuple[str, str]:
        try:
            found = topic == self._cluster.names.kafka_topic(topic) and self._cluster.admin.partitions([topic])
        except IllegalName:
            found = {}
        if not found:
            return "no_target", f"topic {topic} does not exist any more"
        allowed = self._groups.allowed_real_topics
        is_under_prefix = topic.startswith(self._cluster.names.prefix)
        if is_under_prefix or (allowed is not None and not is_allowed(topic, allowed)):
            return "not_allowed", f"the schedulers' allowed_real_topics do not match topic {topic}"
        return SENT, ""


class Resolving(JobWork):
    """Resolves open letters.

    Args:
        cluster: the installation.
        job: the job.
        states: the topic of states.
    """

    def __init__(self, cluster: Cluster, job: Job, states: str) -> None:
        self._cluster, self._job, self._states = cluster, job, states

    def decide(self, window: LetterWindow, one: DeadLetterRecord) -> LetterOutcome:
        """Resolve the letter, if it is open."""
        name = state_name(window.state(one))
        place, message_id = one.place, one.letter.origin_message_id
        if name != OPEN:
            outcome = {"RESENT": "replayed"}.get(name, name.lower())
            return LetterOutcome(place, message_id, outcome, LEFT_OUT[outcome])
        spec = self._job.spec
        state = DeadLetterState(RESOLVED, int(self._cluster.clock()), spec.by, spec.why, job=self._job.name)
        return LetterOutcome(
            place, message_id, "resolved_now", "", [state_record(self._states, one.key_of_state, state)]
        )


def with_outcomes(progress: JobProgress, outcomes: Sequence[LetterOutcome]) -> JobProgress:
    """Return the progress with these outcomes, and the first reasons of each, shortened: its record is one of Kafka."""
    counts, reasons = dict(progress.counts), {name: list(said) for name, said in progress.reasons.items()}
    for one in outcomes:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
        if one.reason and len(said := reasons.setdefault(one.outcome, [])) < _REASONS_KEPT:
            said.append(f"{one.place}: {one.reason[:_REASON_CHARACTERS]}")
    return replace(progress, counts=counts, reasons=reasons)
