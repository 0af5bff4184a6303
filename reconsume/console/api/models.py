"""Requests and answers of the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reconsume.delay_levels.foreign_values import check_json


class ShownModel(BaseModel):
    """An answer, or a part of one; `model_validate` takes its fields from attributes, too."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)


class AskedModel(BaseModel):
    """A request; unknown fields, and texts that UTF-8 cannot hold, are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_texts(cls, asked: Any) -> Any:
        if isinstance(asked, dict):  # other values are refused, or are a model already
            check_json("the request", asked)
        return asked


Places = Annotated[list[str], Field(min_length=1, max_length=1_000)]


class ApiFault(ShownModel):
    """The reason of a refusal."""

    status: int
    detail: str


class ShownCount(ShownModel):
    """A number of records."""

    number: int
    exact: bool
    """False if estimated from offsets."""


class ShownLane(ShownModel):
    """A delay topic."""

    topic: str
    waiting: ShownCount
    overdue: ShownCount
    next_due_ms: int | None


class ShownGroup(ShownModel):
    """A consumer group in the overview."""

    group: str
    dead_letters: ShownCount
    """All records that Kafka keeps, in any state."""
    retry_lag: ShownCount
    open_letters: int | None
    """None while the index is being filled; so are the next four."""
    new_in_hour: int | None
    new_in_day: int | None
    oldest_open_ms: int | None
    new_by_hour: list[int] | None
    """For the last 24 hours, oldest first."""
    is_paused: bool
    """Whether due retries wait until a person resumes them."""
    parked: ShownCount
    """Due records that wait because of a pause."""


class ShownOverview(ShownModel):
    """The installation, a few seconds old."""

    at_ms: int
    trouble: str
    """Why it is not newer; empty if it is current."""
    left_to_index: int | None
    index_trouble: str
    """Why the index is not up to date; empty if it is."""
    leaderless: int
    """The number of partitions without a leader, whose records are not counted."""
    schedulers: list[str] | None
    """Names of live workers; None if unknown."""
    late_ms: int
    """How long the most overdue record has been due."""
    delay_topics: list[ShownLane]
    quarantined: ShownCount
    all_groups: int
    found_groups: int
    """The number of groups whose names contain `q`; `groups` has the first 500."""
    groups: list[ShownGroup]
    """Those that need attention first."""


class ShownCause(ShownModel):
    """Open dead letters of one cause."""

    label: str
    number: int
    share: float
    first_ms: int
    last_ms: int


class ShownRung(ShownModel):
    """The wait before one retry."""

    retry: int
    level: int
    wait_ms: int
    topic: str


class ShownGroupPage(ShownModel):
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


class ShownLetter(ShownModel):
    """A dead letter in a list."""

    place: str
    """Partition and offset in the dead-letter topic, such as `0/17`."""
    state: str
    stored_ms: int
    key: str | None
    """The key as text; None if it is missing, hidden or not UTF-8."""
    exception_class: str | None
    cause: str | None
    message_id: str
    origin_topic: str | None
    retries: int | None
    replay_times: int


class ShownLetters(ShownModel):
    """A page of dead letters, newest first."""

    letters: list[ShownLetter]
    older: str | None
    """`before` of the next page; None if this is the last page."""
    found: int | None
    """The number of matching dead letters; None if unknown."""
    looked_at: int


class ShownState(ShownModel):
    """The state of a dead letter."""

    state: str
    at_ms: int
    by: str
    why: str
    job: str
    newer: str


class ShownBytes(ShownModel):
    """A key, a value or a header."""

    size: int
    is_hidden: bool
    base64: str | None
    """None if it is hidden."""


class ShownDecoded(ShownModel):
    """A key or value as text."""

    format: str
    """`null`, `empty`, `json`, `text`, `avro`, `protobuf`, `json schema` or `hex`."""
    text: str
    is_cut: bool
    schema_id: int | None
    """The schema that the bytes name."""
    note: str
    """Why that schema was not used; else empty."""


class ShownHeader(ShownModel):
    """A header."""

    name: str
    value: ShownBytes | None


class ShownRecord(ShownLetter):
    """A whole dead letter."""

    topic: str
    stacktrace: str | None
    born_ms: int | None
    first_failure_ms: int | None
    became: ShownState | None
    """None while it is open."""
    key_bytes: ShownBytes | None
    value: ShownBytes | None
    key_decoded: ShownDecoded | None
    """None if it is hidden; so is the next one."""
    value_decoded: ShownDecoded | None
    headers: list[ShownHeader]


class ShownWaits(ShownModel):
    """The waiting records of a group, by delay topic."""

    by_topic: dict[str, int]
    read: int
    """The number of waiting records of all groups that were read."""
    is_whole: bool
    """False if not all waiting records were read; the counts are then minimums."""


class ShownRetryHours(ShownModel):
    """Retries of a group by the hour of their delivery."""

    first_ms: int
    """The start of the oldest hour, in milliseconds."""
    by_hour: list[int]
    """For the last 72 hours, oldest first."""
    is_exact: bool
    """False if estimated from offsets, or if a partition has no leader."""
    since_ms: int | None
    """When the oldest kept retry was delivered."""


class ShownStep(ShownModel):
    """A record of a message."""

    kind: Literal["waited", "delivered", "died"]
    at_ms: int
    topic: str
    partition: int
    offset: int
    attempt: int | None
    replay_id: str | None
    cause: str | None


class ShownLife(ShownModel):
    """The records of a message that Kafka still has, in the order of time."""

    steps: list[ShownStep]
    read: int
    """The number of records of all messages that were read."""
    is_whole: bool
    """False if not all records were read; some steps may be missing."""


class AskedPause(AskedModel):
    """A request to pause or resume the retries of a group."""

    paused: bool


class ShownReport(ShownModel):
    """A report of `reconsume reconcile`; its page is `/reports/<name>`."""

    name: str
    at_ms: int
    verdict: Literal["ok", "findings"] | None
    """None without readable figures beside the page; so is the next one."""
    attempts: int | None
    findings: dict[str, int]
    since: str | None
    until: str | None


class ShownReports(ShownModel):
    """The newest reports."""

    reports: list[ShownReport]
    number: int
    """The number of reports in the folder."""


class AskedPlaces(AskedModel):
    """Places of dead letters, or of records in the quarantine."""

    places: Places


class AskedResolve(AskedPlaces):
    """Dead letters that need no resend."""

    why: str


class ShownVerdict(ShownModel):
    """The outcome for a dead letter."""

    place: str
    status: str
    """Its earlier state."""
    is_changed: bool


class ShownVerdicts(ShownModel):
    """The outcomes for dead letters that were resolved or opened again."""

    changed: int
    letters: list[ShownVerdict]


class ShownQuarantined(ShownModel):
    """A record that the schedulers could not deliver."""

    place: str
    stored_ms: int
    reason: str
    topic: str
    """The place before the quarantine."""
    size: int


class ShownQuarantine(ShownModel):
    """Records in the quarantine, oldest first."""

    records: list[ShownQuarantined]
    has_more: bool


class ShownReleased(ShownModel):
    """The number of released records."""

    released: int


class ShownResolved(ShownModel):
    """The number of resolved records."""

    resolved: int
