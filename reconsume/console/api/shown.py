"""Conversions of operations' results to the API's answers."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from reconsume.bridge.reading.counting import Count
from reconsume.console.api.job_models import ShownEvent, ShownJob, ShownKind, ShownPlan
from reconsume.console.api.models import (
    ShownBytes,
    ShownCause,
    ShownCount,
    ShownDecoded,
    ShownGroup,
    ShownGroupPage,
    ShownHeader,
    ShownLane,
    ShownLetter,
    ShownLife,
    ShownOverview,
    ShownQuarantined,
    ShownRecord,
    ShownRung,
    ShownState,
    ShownStep,
    ShownVerdict,
    ShownWaits,
)
from reconsume.console.cluster import CauseCounts
from reconsume.console.pages.views import GroupPage, Overview
from reconsume.console.snapshot import Snapshot
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterState
from reconsume.delay_levels.wire.properties import is_ours
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.decoding.payloads import DecodedPayload, Schemas, decode_payload
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import Job
from reconsume.operations.lives.group_waits import GroupWaits
from reconsume.operations.lives.message_life import MessageLife
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.resolve import Changed


def shown_count(count: Count) -> ShownCount:
    """Show a number of records."""
    return ShownCount(number=count.number, exact=count.exact)


def shown_overview(found: Overview, snapshot: Snapshot, left: int | None) -> ShownOverview:
    """Show the installation."""
    groups = []
    for one in found.groups:
        letters = None if found.open_letters is None else found.open_letters.get(one.group)
        number, hour, day, oldest = (
            (None, None, None, None) if found.open_letters is None else (letters or (0, 0, 0, None))
        )
        groups.append(
            ShownGroup(
                group=one.group,
                dead_letters=shown_count(one.dead_letters),
                retry_lag=shown_count(one.retry_lag),
                open_letters=number,
                new_in_hour=hour,
                new_in_day=day,
                oldest_open_ms=oldest,
                new_by_hour=None if found.open_letters is None else list(found.new_by_hour.get(one.group, [0] * 24)),
                is_paused=one.group in found.paused,
                parked=shown_count(one.parked),
            )
        )
    lanes = [
        ShownLane(
            topic=one.topic,
            waiting=shown_count(one.waiting),
            overdue=shown_count(one.overdue),
            next_due_ms=one.next_due_ms,
        )
        for one in found.lanes
    ]
    return ShownOverview(
        at_ms=found.at_ms,
        trouble=snapshot.trouble,
        left_to_index=left,
        schedulers=None if snapshot.schedulers is None else list(snapshot.schedulers),
        late_ms=found.late_ms,
        delay_topics=lanes,
        quarantined=shown_count(found.quarantined),
        groups=groups,
    )


def shown_group(view: GroupPage, counts: CauseCounts | None) -> ShownGroupPage:
    """Show a consumer group."""
    causes = None
    if counts is not None:
        causes = [
            ShownCause(
                label=one.value,
                number=one.number,
                share=one.number / counts.number,
                first_ms=one.first_ms,
                last_ms=one.last_ms,
            )
            for one in counts.causes
        ]
    return ShownGroupPage(
        group=view.group,
        is_registered=view.is_registered,
        retry_max_times=None if view.config is None else view.config.retry_max_times,
        retry_policy=None if view.policy is None else str(view.policy),
        dead_letters=None if view.counts is None else shown_count(view.counts.dead_letters),
        retry_lag=None if view.counts is None else shown_count(view.counts.retry_lag),
        is_paused=view.config is not None and bool(view.config.retry_paused),
        parked=None if view.counts is None else shown_count(view.counts.parked),
        causes=causes,
        ladder=[
            ShownRung(retry=one.retry, level=one.level, wait_ms=one.wait_ms, topic=one.topic) for one in view.rungs
        ],
    )


def shown_letter(one: DeadLetterRecord, *, hide: bool) -> ShownLetter:
    """Show a dead letter in a list."""
    return ShownLetter(**_letter(one, hide=hide))


def _letter(one: DeadLetterRecord, *, hide: bool) -> dict[str, object]:
    letter = one.letter
    return {
        "place": str(one.place),
        "state": state_name(one.state),
        "stored_ms": one.stored_ms,
        "key": None if hide else _text(one.key),
        "exception_class": letter.exception_class,
        "cause": letter.cause,
        "message_id": letter.origin_message_id,
        "origin_topic": letter.origin_topic,
        "retries": letter.retries,
        "replay_times": letter.replay_times,
    }


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def shown_record(one: DeadLetterRecord, schemas: Schemas | None, *, hide: bool) -> ShownRecord:
    """Show a whole dead letter."""
    return ShownRecord.model_validate(
        _letter(one, hide=hide)
        | {
            "topic": one.topic,
            "stacktrace": one.letter.stacktrace,
            "born_ms": one.letter.born_ms,
            "first_failure_ms": one.letter.first_failure_ms,
            "became": None if one.state is None else _state(one.state),
            "key_bytes": _bytes(one.key, hide=hide),
            "value": _bytes(one.value, hide=hide),
            "key_decoded": None if hide else _decoded(decode_payload(one.key, schemas)),
            "value_decoded": None if hide else _decoded(decode_payload(one.value, schemas)),
            "headers": [
                ShownHeader(name=name, value=_bytes(value, hide=hide and not is_ours(name)))
                for name, value in one.headers
            ],
        }
    )


def _state(state: DeadLetterState) -> ShownState:
    return ShownState(
        state=state.state, at_ms=state.at_ms, by=state.by, why=state.why, job=state.job, newer=state.newer
    )


def _decoded(found: DecodedPayload) -> ShownDecoded:
    return ShownDecoded(
        format=found.format, text=found.text, is_cut=found.is_cut, schema_id=found.schema, note=found.note
    )


def shown_life(life: MessageLife) -> ShownLife:
    """Show the records of a message."""
    steps = [ShownStep.model_validate(one, from_attributes=True) for one in life.steps]
    return ShownLife(steps=steps, read=life.read, is_whole=life.is_whole)


def shown_waits(waits: GroupWaits) -> ShownWaits:
    """Show the waiting records of a group."""
    return ShownWaits(by_topic=dict(waits.by_topic), read=waits.read, is_whole=waits.is_whole)


def _bytes(value: bytes | None, *, hide: bool) -> ShownBytes | None:
    if value is None:
        return None
    return ShownBytes(size=len(value), is_hidden=hide, base64=None if hide else base64.b64encode(value).decode())


def shown_changes(done: Iterable[Changed]) -> list[ShownVerdict]:
    """Show the outcomes for resolved or reopened dead letters."""
    return [ShownVerdict(place=str(one.record.place), status=one.before, is_changed=one.is_changed) for one in done]


def shown_quarantined(one: QuarantineRecord) -> ShownQuarantined:
    """Show a record in the quarantine."""
    return ShownQuarantined(
        place=str(one.place),
        stored_ms=one.stored_ms,
        reason=one.quarantined.reason,
        topic=str(one.quarantined.source),
        size=len(one.key or b"") + len(one.value or b""),
    )


def shown_job(job: Job, now_ms: float) -> ShownJob:
    """Show a job."""
    spec, progress = job.spec, job.progress
    return ShownJob(
        name=job.name,
        kind=spec.kind,
        group=spec.group,
        status=job.status(now_ms),
        at_ms=spec.at_ms,
        by=spec.by,
        why=spec.why,
        rate=spec.rate,
        count=spec.count,
        handled=job.handled,
        counts=dict(progress.counts),
        reasons={outcome: list(said) for outcome, said in progress.reasons.items()},
        failure=progress.why,
        events=[ShownEvent(at_ms=one.at_ms, by=one.by, wish=one.wish, why=one.why) for one in job.events],
    )


def shown_plan(plan: JobPlan) -> ShownPlan:
    """Show the plan of a job."""
    causes, hours, origins = (
        [ShownKind.model_validate(one, from_attributes=True) for one in counted]
        for counted in (plan.causes, plan.hours, plan.origins)
    )
    return ShownPlan(
        count=plan.count, acted=plan.acted, statuses=dict(plan.statuses), causes=causes, hours=hours, origins=origins
    )
