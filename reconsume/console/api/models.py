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
    headers: list[ShownHeader]


class AskedPlaces(_Asked):
    """Dead letters, or records of the quarantine."""

    places: Places


class AskedResend(AskedPlaces):
    """Dead letters to send again."""

    replay_id: str | None = None
    """The same id again sends what is missing; None makes one."""


class AskedResolve(AskedPlaces):
    """Dead letters that need no resend."""

    why: str


class ShownVerdict(_Shown):
    """The outcome for a dead letter, planned or done."""

    place: str
    status: str
    """Of a resend `send`, or why not."""
    is_changed: bool


class ShownVerdicts(_Shown):
    """The outcomes for dead letters, planned or done."""

    replay_id: str | None = None
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
