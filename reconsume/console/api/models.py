"""Requests and answers of the API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Places = Annotated[list[str], Field(min_length=1, max_length=1_000)]


class ApiFault(_Shown):
    """Why a request was refused."""

    status: int
    detail: str


class ShownCount(_Shown):
    """A number of records."""

    number: int
    exact: bool
    """False: it is estimated from offsets."""


class ShownLane(_Shown):
    """A delay topic."""

    topic: str
    waiting: ShownCount
    overdue: ShownCount
    next_due_ms: int | None


class ShownGroup(_Shown):
    """A consumer group in the overview."""

    group: str
    dead_letters: ShownCount
    """Those that Kafka keeps, whatever became of them."""
    retry_lag: ShownCount
    open_letters: int | None
    """None while the index is being filled; so are the next four."""
    new_in_hour: int | None
    new_in_day: int | None
    oldest_open_ms: int | None
    new_by_hour: list[int] | None
    """Of the last 24 hours, the oldest first."""
    is_paused: bool
    """Whether its due retries wait until a person resumes them."""
    parked: ShownCount
    """Due records that wait because of a pause."""


class ShownOverview(_Shown):
    """The installation, as it was seconds ago."""

    at_ms: int
    trouble: str
    """Why it is not newer; empty where it is."""
    left_to_index: int | None
    schedulers: list[str] | None
    """Names of the workers that are alive; None where no broker tells."""
    late_ms: int
    """For how long the record that has waited longest is due."""
    delay_topics: list[ShownLane]
    quarantined: ShownCount
    groups: list[ShownGroup]
    """Those that need a person first."""


class ShownCause(_Shown):
    """Open dead letters of one cause."""

    label: str
    number: int
    share: float
    first_ms: int
    last_ms: int


class ShownRung(_Shown):
    """The wait before one retry."""

    retry: int
    level: int
    wait_ms: int
    topic: str


class ShownGroupPage(_Shown):
    """One consumer group."""

    group: str
    is_registered: bool
    retry_max_times: int | None
    retry_policy: str | None
    dead_letters: ShownCount | None
    retry_lag: ShownCount | None
    is_paused: bool
    parked: ShownCount | None
    causes: list[ShownCause] | None
    """None while the index is being filled."""
    ladder: list[ShownRung]


class ShownLetter(_Shown):
    """A dead letter in a list."""

    place: str
    """Partition and offset in the dead-letter topic, such as `0/17`."""
    state: str
    stored_ms: int
    key: str | None
    """As text; None where there is none, where it is hidden, or where it is not UTF-8."""
    exception_class: str | None
    cause: str | None
    message_id: str
    origin_topic: str | None
    retries: int | None
    replay_times: int


class ShownLetters(_Shown):
    """A page of dead letters, the newest first."""

    letters: list[ShownLetter]
    older: str | None
    """`before` of the next page; None: there is none."""
    found: int | None
    """How many the filter takes; None where nobody has counted."""
    looked_at: int


class ShownState(_Shown):
    """The state of a dead letter."""

    state: str
    at_ms: int
    by: str
    why: str
    job: str
    newer: str


class ShownBytes(_Shown):
    """A key, a value or a header."""

    size: int
    is_hidden: bool
    base64: str | None
    """None where it is hidden."""


class ShownDecoded(_Shown):
    """A key or value as text."""

    format: str
    """`null`, `empty`, `json`, `text`, `avro`, `protobuf`, `json schema` or `hex`."""
    text: str
    is_cut: bool
    schema_id: int | None
    """The schema that the bytes name."""
    note: str
    """Why they are not decoded by that schema; else empty."""


class ShownHeader(_Shown):
    """A header."""

    name: str
    value: ShownBytes | None


class ShownRecord(ShownLetter):
    """A dead letter with all that it has."""

    topic: str
    stacktrace: str | None
    born_ms: int | None
    first_failure_ms: int | None
    became: ShownState | None
    """None while it is open."""
    key_bytes: ShownBytes | None
    value: ShownBytes | None
    key_decoded: ShownDecoded | None
    """None where it is hidden; so is the next one."""
    value_decoded: ShownDecoded | None
    headers: list[ShownHeader]


class ShownWaits(_Shown):
    """The waiting records of a group."""

    by_topic: dict[str, int]
    """By delay topic."""
    read: int
    """So many waiting records of all groups were read."""
    is_whole: bool
    """False: there are more than were read, so the counts are minimums."""


class ShownRetryHours(_Shown):
    """Retries of a group by the hour of their delivery."""

    by_hour: list[int]
    """Of the last 72 hours, the oldest first."""
    is_exact: bool
    """False: estimated from offsets."""
    since_ms: int | None
    """When the oldest retry that Kafka keeps was delivered."""


class ShownStep(_Shown):
    """A record of a message."""

    kind: Literal["waited", "delivered", "died"]
    at_ms: int
    topic: str
    partition: int
    offset: int
    attempt: int | None
    replay_id: str | None
    cause: str | None


class ShownLife(_Shown):
    """The records of a message that Kafka still has, in the order of time."""

    steps: list[ShownStep]
    read: int
    """So many records of all messages were read."""
    is_whole: bool
    """False: there are more than were read, so some steps may be missing."""


class AskedPause(_Asked):
    """Whether the retries of a group are paused."""

    paused: bool


class ShownReport(_Shown):
    """A report of `reconsume reconcile`; its page is `/reports/<name>`."""

    name: str
    at_ms: int
    verdict: Literal["ok", "findings"] | None
    """None where no figures lie beside the page; so is the next one."""
    attempts: int | None
    findings: dict[str, int]
    since: str | None
    until: str | None


class ShownReports(_Shown):
    """The newest reports."""

    reports: list[ShownReport]
    number: int
    """How many the folder has."""


class AskedPlaces(_Asked):
    """Dead letters, or records of the quarantine."""

    places: Places


class AskedResolve(AskedPlaces):
    """Dead letters that need no resend."""

    why: str


class ShownVerdict(_Shown):
    """The outcome for a dead letter."""

    place: str
    status: str
    """Its state before."""
    is_changed: bool


class ShownVerdicts(_Shown):
    """The outcomes for dead letters that were resolved or opened again."""

    changed: int
    letters: list[ShownVerdict]


class ShownQuarantined(_Shown):
    """A record that the schedulers could not deliver."""

    place: str
    stored_ms: int
    reason: str
    topic: str
    """Where it stood."""
    size: int


class ShownQuarantine(_Shown):
    """Records that wait in the quarantine, the oldest first."""

    records: list[ShownQuarantined]
    has_more: bool


class ShownReleased(_Shown):
    """How many records were released."""

    released: int


class AskedEdit(_Asked):
    """The changes to one dead letter that is resent; the dead letter keeps the original."""

    value: str | None = None
    """The new value as text; None keeps it."""
    value_base64: str | None = None
    """The new value as bytes, in place of `value`."""
    headers: dict[str, str | None] = {}
    """New texts by name; null removes the header."""


class AskedJob(_Asked):
    """A job on all dead letters that a filter takes, or on some."""

    kind: Literal["resend", "resolve"]
    group: str
    text: str | None = None
    key: str | None = None
    message_id: str | None = None
    since: str | None = None
    """A moment (`2026-11-22 10:00`, UTC), or how long ago (`2h`)."""
    until: str | None = None
    state: str | None = None
    """Where none is said, open ones."""
    label: str | None = None
    places: Annotated[list[str], Field(max_length=50_000)] | None = None
    """In place of a filter."""
    rate: Annotated[int, Field(ge=1)] | None = None
    """The most records in a second."""
    max_replays: Annotated[int, Field(ge=1)] = 2
    target: Literal["retry", "origin"] = "retry"
    edit: AskedEdit | None = None
    """For the resend of one place."""
    why: str = ""


class AskedWish(_Asked):
    """A person's request to a job."""

    wish: Literal["pause", "resume", "cancel"]
    why: str = ""


class ShownKind(_Shown):
    """So many dead letters of one kind."""

    value: str
    number: int
    first_ms: int
    last_ms: int


class ShownPlan(_Shown):
    """The plan of a job."""

    count: int
    acted: int
    """Those that it would send or resolve."""
    statuses: dict[str, int]
    causes: list[ShownKind]
    hours: list[ShownKind]
    origins: list[ShownKind]


class ShownEvent(_Shown):
    """A person's earlier request to a job."""

    at_ms: int
    by: str
    wish: str
    why: str


class ShownJob(_Shown):
    """A job."""

    name: str
    kind: str
    group: str
    status: str
    at_ms: int
    by: str
    why: str
    rate: int | None
    count: int | None
    handled: int
    counts: dict[str, int]
    reasons: dict[str, list[str]]
    failure: str
    events: list[ShownEvent]
