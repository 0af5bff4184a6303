"""Conversions of operations' results to the API's answers."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from reconsume.console.api.job_models import ShownEvent, ShownJob
from reconsume.console.api.models import (
    ShownBytes,
    ShownCause,
    ShownDecoded,
    ShownGroupPage,
    ShownHeader,
    ShownLetter,
    ShownOverview,
    ShownQuarantined,
    ShownRecord,
    ShownVerdict,
)
from reconsume.console.cluster import CauseCounts
from reconsume.console.pages.views import GroupPage, Overview
from reconsume.console.snapshot import Snapshot
from reconsume.delay_levels.wire.properties import is_reserved
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.decoding.payloads import DecodedPayload, Schemas, decode_payload
from reconsume.operations.jobs.records import Job
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.resolve import Changed
from reconsume.operations.status import GroupStatus


def shown_overview(found: Overview, snapshot: Snapshot, left: int | None, index_trouble: str) -> ShownOverview:
    """Show the installation."""
    return ShownOverview.model_validate(
        {
            "at_ms": found.at_ms,
            "trouble": snapshot.trouble,
            "left_to_index": left,
            "index_trouble": index_trouble,
            "leaderless": len(snapshot.status.leaderless),  # without names, which may be of hidden groups
            "schedulers": None if snapshot.schedulers is None else list(snapshot.schedulers),
            "late_ms": found.late_ms,
            "delay_topics": found.lanes,
            "quarantined": found.quarantined,
            "all_groups": found.all_groups,
            "found_groups": found.found_groups,
            "groups": [_group(one, found) for one in found.groups],
        }
    )


def _group(one: GroupStatus, found: Overview) -> dict[str, object]:
    letters = None if found.open_letters is None else found.open_letters.get(one.group)
    number, hour, day, oldest = (None,) * 4 if found.open_letters is None else (letters or (0, 0, 0, None))
    return {
        "group": one.group,
        "dead_letters": one.dead_letters,
        "retry_lag": one.retry_lag,
        "open_letters": number,
        "new_in_hour": hour,
        "new_in_day": day,
        "oldest_open_ms": oldest,
        "new_by_hour": None if found.open_letters is None else list(found.new_by_hour.get(one.group, [0] * 24)),
        "is_paused": one.group in found.paused,
        "parked": one.parked,
    }


def shown_group(view: GroupPage, counts: CauseCounts | None) -> ShownGroupPage:
    """Show a consumer group."""
    causes = None
    if counts is not None:
        causes = [
            ShownCause(label=label, number=number, share=number / counts.number, first_ms=first_ms, last_ms=last_ms)
            for label, number, first_ms, last_ms in counts.causes
        ]
    return ShownGroupPage.model_validate(
        {
            "group": view.group,
            "is_registered": view.is_registered,
            "retry_max_times": None if view.config is None else view.config.retry_max_times,
            "retry_policy": None if view.policy is None else str(view.policy),
            "dead_letters": None if view.counts is None else view.counts.dead_letters,
            "retry_lag": None if view.counts is None else view.counts.retry_lag,
            "is_paused": view.config is not None and bool(view.config.retry_paused),
            "parked": None if view.counts is None else view.counts.parked,
            "causes": causes,
            "ladder": view.rungs,
        }
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
            "became": one.state,
            "key_bytes": _bytes(one.key, hide=hide),
            "value": _bytes(one.value, hide=hide),
            "key_decoded": None if hide else _decoded(decode_payload(one.key, schemas)),
            "value_decoded": None if hide else _decoded(decode_payload(one.value, schemas)),
            "headers": [
                ShownHeader(name=name, value=_bytes(value, hide=hide and not is_reserved(name)))
                for name, value in one.headers
            ],
        }
    )


def _decoded(found: DecodedPayload) -> ShownDecoded:
    return ShownDecoded(
        format=found.format, text=found.text, is_cut=found.is_cut, schema_id=found.schema, note=found.note
    )


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
        events=[ShownEvent.model_validate(one) for one in job.events],
    )
