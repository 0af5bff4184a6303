"""Facts about a target that refuses records, and the search for the smallest record that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconsume.bridge.scheduler.targets.record_size import SizeSearch
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.delay_levels.errors import ReconsumeError

Where = tuple[str, int, int]
"""Topic, partition and offset of a waiting record."""


@dataclass(slots=True)
class RefusedTarget:
    """The known facts about a target.

    Attributes:
        reason: the reason for the refusal of a record.
        size: smaller records are accepted; 0 if the cause concerns all records.
        until_ms: the end of its validity.
        is_by_record: whether another record may be accepted, so that each is tried alone.
    """

    reason: str
    size: int
    until_ms: float
    is_by_record: bool = False


@dataclass(slots=True)
class LimitSearch:
    """A search for the smallest record that a target refuses.

    Attributes:
        records: one record of each size.
        total: total bytes of the records that were refused together.
        hint: the limit that the brokers report.
        is_again: whether it is a single record of a target that has refused a smaller one.
        errors: the error for each size.
        unanswered: number of trials without a verdict.
    """

    sizes: SizeSearch
    records: Mapping[int, tuple[Where, Delivery]]
    total: int
    hint: int | None = None
    is_again: bool = False
    errors: dict[int, ReconsumeError] = field(default_factory=dict)
    unanswered: int = 0
