"""Requests and answers about jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reconsume.console.api.models import AskedModel, ShownModel


class AskedEdit(AskedModel):
    """Changes to a resent dead letter; the dead letter itself stays unchanged."""

    value: str | None = None
    """The new value as text; None keeps it."""
    value_base64: str | None = None
    """The new value as bytes, instead of `value`."""
    headers: dict[str, str | None] = Field(default_factory=dict)
    """New texts by name; null removes the header."""


class AskedJob(AskedModel):
    """A job on all dead letters that match a filter, or on picked ones."""

    kind: Literal["resend", "resolve"]
    group: str
    text: str | None = None
    key: str | None = None
    message_id: str | None = None
    origin_topic: str | None = None
    with_header: str | None = None
    """A header and its exact text: `name=text`."""
    since: str | None = None
    """A moment (`2026-11-22 10:00`, UTC), or a time span before now (`2h`)."""
    until: str | None = None
    state: str | None = None
    """By default open ones."""
    label: str | None = None
    places: Annotated[list[str], Field(max_length=50_000)] | None = None
    """Picked places instead of a filter."""
    rate: Annotated[int, Field(ge=1)] | None = None
    """The maximum of records per second."""
    max_replays: Annotated[int, Field(ge=1)] = 2
    target: Literal["retry", "origin"] = "retry"
    edit: AskedEdit | None = None
    """Only for the resend of a single place."""
    why: str = ""


class AskedWish(AskedModel):
    """A request to a job."""

    wish: Literal["pause", "resume", "cancel"]
    why: str = ""


class ShownKind(ShownModel):
    """The number of dead letters of one kind."""

    value: str
    number: int
    first_ms: int
    last_ms: int


class ShownPlan(ShownModel):
    """The plan of a job."""

    count: int
    acted: int
    """The number that it would send or resolve."""
    statuses: dict[str, int]
    is_whole: bool
    """False while the index is incomplete: only the newest dead letters were counted, so the numbers are minima."""
    causes: list[ShownKind]
    hours: list[ShownKind]
    origins: list[ShownKind]


class ShownEvent(ShownModel):
    """An earlier request to a job."""

    at_ms: int
    by: str
    wish: str
    why: str


class ShownJob(ShownModel):
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
