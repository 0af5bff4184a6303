"""Records of the JOBS topic: work on many dead letters that continues after a crash.

A job has up to three records: its definition (key `<job>`, written once), the requests of people (`<job>/wish`), and
its progress (`<job>/progress`), which its runner writes in the transactions of the work itself. Values are JSON
objects.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.foreign_values import shown
from reconsume.delay_levels.wire.names import check_group
from reconsume.delay_levels.wire.properties import LARGEST, LARGEST_PARTITION, is_reserved, json_object, json_value

VERSION: Final = 1
"""Jobs of a later version are left to programs of that version: an unknown filter might select too much."""
_VERSION_WITH_HEADER: Final = 2
_TEXTS_OF_FILTERS: Final = ("text", "key", "message_id", "origin_topic", "state", "label", "header")
KINDS: Final = ("resend", "resolve")
TARGETS: Final = ("retry", "origin")
RUN: Final = "run"
PAUSE: Final = "pause"
CANCEL: Final = "cancel"
_WISHES: Final = (RUN, PAUSE, CANCEL)
_KEY: Final = re.compile(r"([A-Za-z0-9._-]{1,100})(/wish|/progress)?", re.ASCII)
_EVENTS_KEPT: Final = 50
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """The dead letters that a list shows or a job selects; None selects any.

    Attributes:
        text: a part of the cause, the exception's class or the stack trace; case does not matter.
        key: the record's key, as UTF-8; `message_id`: the origin message id.
        since_ms: they became dead letters then or later; `until_ms`: earlier.
        state: a key of `STATES`; of a job, their state when it was created.
        label: the label of the cause, by `label_rules`.
        label_rules: labels by regular expressions, from the setting `cause_labels`.
        header: a header and its text, `name=text`; of headers with one name the last counts.
    """

    text: str | None = None
    key: str | None = None
    message_id: str | None = None
    origin_topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    state: str | None = None
    label: str | None = None
    label_rules: Mapping[str, str] = field(default_factory=dict)
    header: str | None = None


@dataclass(frozen=True, slots=True)
class LetterEdit:
    """The changes to a resent dead letter.

    Attributes:
        value: the new value; None keeps the old one.
        headers: new texts by name; None removes the header.
    """

    value: bytes | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def parts(self) -> str:
        """The changed parts, for the header `REPLAY_EDITED`."""
        return ",".join(["value"] * (self.value is not None) + ["headers"] * bool(self.headers))


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The definition of a job; never changed.

    Attributes:
        kind: one of `KINDS`.
        at_ms: the time of creation.
        by: who created it.
        topic: the dead-letter topic.
        topic_id: Kafka's id of the topic: a recreated topic has other dead letters.
        spans: for each partition the first offset and the one after the last.
        records: the places of those that were picked, by partition; None takes those that `wanted` takes.
        count: how many it took when it was created; None where nobody has counted.
        rate: the most records in a second; None: as many as go.
        max_replays: a message that was sent again so often is left out.
        target: one of `TARGETS`.
    """

    kind: str
    group: str
    at_ms: int
    by: str
    why: str
    topic: str
    topic_id: str
    spans: Mapping[int, tuple[int, int]]
    wanted: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    records: Mapping[int, Sequence[int]] | None = None
    count: int | None = None
    rate: int | None = None
    max_replays: int = 2
    target: str = "retry"
    edit: LetterEdit | None = None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A request to a job: by whom, when and why."""

    at_ms: int
    by: str
    wish: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job.

    Attributes:
        runner: the process that runs it.
        following: the next offset, by partition.
        counts: how many records had each outcome.
        reasons: the first records of each outcome, with the reasons.
        ended: `DONE` or `FAILED`; empty before the end.
        why: the reason of a failure.
    """

    runner: str = ""
    following: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ended: str = ""
    why: str = ""


def spec_key(job: str) -> bytes:
    """Return the key of a job's definition."""
    return job.encode()


def wish_key(job: str) -> bytes:
    """Return the key of the requests to a job."""
    return f"{job}/wish".encode()


def progress_key(job: str) -> bytes:
    """Return the key of a job's progress."""
    return f"{job}/progress".encode()


def parse_job_key(key: bytes | None) -> tuple[str, str]:
    """Return the job of a record, and its kind: `` (definition), `wish` or `progress`.

    Raises:
        MalformedProperty: the key is something else.
    """
    match = _KEY.fullmatch((key or b"").decode(errors="replace"))
    if match is None:
        raise MalformedProperty(f"key {(key or b'')[:120]!r} is not <job>, <job>/wish or <job>/progress")
    return match[1], (match[2] or "/")[1:]


def encode_spec(spec: JobSpec) -> bytes:
    """Return the value of a definition, without fields that have their default."""
    version = VERSION if spec.wanted.header is None else _VERSION_WITH_HEADER
    value = {"version": version, **_without_defaults(spec)}
    value["spans"] = {str(one): list(span) for one, span in spec.spans.items()}
    if spec.records is not None:
        value["records"] = {str(one): list(offsets) for one, offsets in spec.records.items()}
    if spec.wanted != DeadLetterFilter():
        value["wanted"] = _without_defaults(spec.wanted)
    if spec.edit is not None:
        edited = None if spec.edit.value is None else base64.b64encode(spec.edit.value).decode()
        value["edit"] = {"value": edited, "headers": dict(spec.edit.headers)}
    return _json(value)


def decode_spec(value: bytes) -> JobSpec:
    """Read the text of `encode_spec`.

    Raises:
        MalformedProperty: the value is something else, or of a later version.
    """
    found = json_object(value)
    if found.get("version") not in (VERSION, _VERSION_WITH_HEADER):
        raise MalformedProperty(
            f"version {found.get('version')!r:.40} of the job's record is unknown; this program reads versions "
            f"{VERSION} and {_VERSION_WITH_HEADER}"
        )
    with _Reading(value):
        spans = {_partition(one): (_number(start), _number(end)) for one, (start, end) in found["spans"].items()}
        records = found.get("records")
        edit = found.get("edit")
        spec = JobSpec(
            **{name: _text(found, name) for name in ("kind", "group", "by", "why", "topic", "topic_id")},
            at_ms=_count(found, "at_ms"),
            spans=spans,
            wanted=_filter(found.get("wanted", {})),
            records=None if records is None else {_partition(one): list(map(_number, records[one])) for one in records},
            count=None if found.get("count") is None else _count(found, "count"),
            rate=None if found.get("rate") is None else _count(found, "rate"),
            max_replays=_count({"max_replays": 2} | found, "max_replays"),
            target=found.get("target", "retry"),
            edit=None if edit is None else _edit(edit),
        )
        check_group(spec.group)
        if spec.kind not in KINDS or spec.target not in TARGETS or spec.rate == 0:
            raise ValueError
        return spec


def encode_wish(events: Sequence[JobEvent]) -> bytes:
    """Return the value of requests; the last event decides."""
    return _json([asdict(one) for one in events[-_EVENTS_KEPT:]])


def decode_wish(value: bytes) -> list[JobEvent]:
    """Read the text of `encode_wish`; raises `MalformedProperty` for other texts."""
    with _Reading(value):
        events = [
            JobEvent(_count(one, "at_ms"), *(_text(one, name) for name in ("by", "wish", "why")))
            for one in json_value(value)
        ]
        if not events or any(one.wish not in _WISHES for one in events):
            raise ValueError
        return events


def encode_job_progress(progress: JobProgress) -> bytes:
    """Return the value of a progress record."""
    return _json(_without_defaults(progress))


def decode_job_progress(value: bytes) -> JobProgress:
    """Read the text of `encode_job_progress`; raises `MalformedProperty` for others."""
    found = json_object(value)
    with _Reading(value):
        return JobProgress(
            runner=_text(found, "runner"),
            following={_partition(one): _number(offset) for one, offset in found.get("following", {}).items()},
            counts={str(one): _number(number) for one, number in found.get("counts", {}).items()},
            reasons={str(one): list(map(str, said)) for one, said in found.get("reasons", {}).items()},
            **{name: _text(found, name) for name in ("ended", "why")},
        )


def check_edit(edit: LetterEdit, most_bytes: int) -> LetterEdit:
    """Return an edit, if a record of JOBS can hold it.

    Raises:
        IllegalSetting: the edit changes nothing, changes headers of reconsume, or is too large.
    """
    if not edit.parts:
        raise IllegalSetting("an edit needs a new value or a header")
    for name in edit.headers:
        if is_reserved(name) or "\0" in name:  # Kafka's client would cut the name there
            raise IllegalSetting(f"header {shown(name)} is reserved, or has a NUL; change only your own headers")
    size = len(edit.value or b"") + sum(len(name) + len(text or "") for name, text in edit.headers.items())
    if size > most_bytes:
        raise IllegalSetting(
            f"the edit has {size:,} bytes, and a job holds at most {most_bytes:,}; produce a new message instead"
        )
    return edit


class _Reading:
    """Turns every error about a value into `MalformedProperty`."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _at: object) -> None:
        wrong = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, binascii.Error)
        if isinstance(error, wrong) and not isinstance(error, MalformedProperty):
            raise MalformedProperty(f"value {self._value[:80]!r} is not a job record: {error}") from error


def _filter(found: Mapping[str, Any]) -> DeadLetterFilter:
    texts = {name: found.get(name) for name in _TEXTS_OF_FILTERS}
    times = {name: found.get(name) for name in ("since_ms", "until_ms")}
    rules = found.get("label_rules", {})
    for one in (*texts.values(), *rules.values()):
        _of(one, str)
    for moment in times.values():
        _number(abs(_of(0 if moment is None else moment, int)))
    return DeadLetterFilter(**texts, **times, label_rules=dict(rules))


def _edit(found: Mapping[str, Any]) -> LetterEdit:
    value, headers = found.get("value"), found.get("headers", {})
    for one in headers.values():
        _of(one, str)
    return LetterEdit(None if value is None else base64.b64decode(value, validate=True), dict(headers))


def _of(value: _T, kind: type) -> _T:
    if value is not None and type(value) is not kind:
        raise TypeError(f"{value!r:.40} is not a {kind.__name__}")
    return value


def _text(found: Mapping[str, Any], name: str) -> str:
    if type(text := found.get(name, "")) is not str:
        raise TypeError(f"{name} is not a str")
    return text


def _count(found: Mapping[str, Any], name: str) -> int:
    return _number(found[name])


def _number(value: Any, largest: int = LARGEST) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r:.40} is not a whole number from 0 to {largest}")
    return value


def _partition(key: str) -> int:
    return _number(int(key), LARGEST_PARTITION)


def _without_defaults(one: Any) -> dict[str, Any]:
    """Return the fields without those that have their default; nested classes are left to the caller."""
    said = {name: getattr(one, name) for name in one.__slots__}
    left_out = ("spans", "wanted", "records", "edit")
    return {name: value for name, value in said.items() if name not in left_out and value not in (None, "", {})}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
