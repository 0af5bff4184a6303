"""Filters of dead letters, stored in the address of a page, so that a bookmark keeps a filter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import pair
from reconsume.delay_levels.wire.dead_letter_states import STATES
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.jobs.selection import JobDraft, check_draft
from reconsume.operations.points_in_time import parse_point_in_time, point_in_time
from reconsume.operations.record_address import RecordAddress

FIELDS: Final = ("text", "key", "message_id", "origin_topic", "with_header", "since", "until", "state", "label")
_MOST_TEXT: Final = 2_000
"""The index has as much of a cause, and SQLite refuses to search for a text of 50,000 bytes."""
MOST_PLACES: Final = 1_000
"""Maximum of letters picked in one form; a filter selects any number."""


@dataclass(frozen=True, slots=True)
class FilterForm:
    """A person's input, field by field; empty fields filter nothing."""

    text: str = ""
    key: str = ""
    message_id: str = ""
    origin_topic: str = ""
    with_header: str = ""
    since: str = ""
    until: str = ""
    state: str = ""
    label: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Read the filter of an address; keys and labels may end in spaces."""
        found = {name: query.get(name, "") for name in FIELDS}
        return cls(**{name: one if name in ("key", "label") else one.strip() for name, one in found.items()})

    @property
    def query(self) -> dict[str, str]:
        """Return the query of an address with the same filter."""
        return {name: getattr(self, name) for name in FIELDS if getattr(self, name)}

    def at(self, now_ms: float) -> Self:
        """Return the same filter with moments in place of ages, so that it means the same later.

        Raises:
            IllegalSetting: an invalid moment.
        """
        texts = {name: text for name in ("since", "until") if (text := getattr(self, name))}
        return replace(self, **{name: _moment(name, text, now_ms) for name, text in texts.items()})

    def wanted(self, now_ms: float) -> DeadLetterFilter:
        """Return the filter with checked values.

        Raises:
            IllegalSetting: an invalid moment or state, or a very long text.
        """
        if len(self.text) > _MOST_TEXT:
            raise IllegalSetting(f"text: {len(self.text):,} characters; search for at most {_MOST_TEXT:,}")
        if self.state and self.state not in STATES:
            raise IllegalSetting(f"state {self.state[:80]!r}: use {', '.join(STATES)}")
        if self.with_header:
            pair("with_header", self.with_header, "name=text, such as tenant=acme")
        return DeadLetterFilter(
            text=self.text or None,
            key=self.key or None,
            message_id=self.message_id or None,
            origin_topic=self.origin_topic or None,
            header=self.with_header or None,
            since_ms=parse_point_in_time("since", self.since, now_ms) if self.since else None,
            until_ms=parse_point_in_time("until", self.until, now_ms) if self.until else None,
            state=self.state or None,
            label=self.label or None,
        )


def _moment(name: str, text: str, now_ms: float) -> str:
    milliseconds = parse_point_in_time(name, text, now_ms)
    try:
        return point_in_time(milliseconds)
    except OverflowError:
        return text  # the last hours of the year 9999, west of Greenwich


def job_draft(
    kind: str,
    group: str,
    form: FilterForm,
    now_ms: float,
    label_rules: Mapping[str, str],
    *,
    records: Collection[RecordAddress] | None = None,
    **more: Any,
) -> JobDraft:
    """Return the draft of a job on the letters that a list shows, or on picked ones; `more` as in `JobDraft`.

    Raises:
        IllegalSetting: an invalid moment or state, or both a filter and picked letters.
    """
    wanted = DeadLetterFilter()
    if records is None or form != FilterForm():
        wanted = replace(form.wanted(now_ms), label_rules=dict(label_rules))
    return check_draft(JobDraft(kind, group, wanted, records, **more))


def place_of(text: str) -> RecordAddress:
    """Parse a place from an address or a form.

    Raises:
        IllegalSetting: the text is not a place.
    """
    return RecordAddress.parse(text, "reconsume dlq list")


def places_of(texts: list[str]) -> list[RecordAddress]:
    """Return the picked places, each once, in order.

    Raises:
        IllegalSetting: nothing or too much was picked, or a text is not a place.
    """
    if not texts:
        raise IllegalSetting("nothing is chosen: go back and tick some records")
    if len(texts) > MOST_PLACES:
        raise IllegalSetting(
            f"{len(texts):,} records are chosen, and a form takes {MOST_PLACES:,}: choose fewer, or use a filter"
        )
    return sorted({place_of(one) for one in texts})
