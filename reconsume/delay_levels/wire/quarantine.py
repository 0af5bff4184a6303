"""Records in the quarantine: the reason, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.dead_letter_states import RESOLVED
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import LARGEST, REAL_TOPIC, Header, Headers, is_ours
from reconsume.delay_levels.wire.send_back_copy import Position

QUARANTINE_REASON: Final = "QUARANTINE_REASON"
QUARANTINE_ORIGIN: Final = "QUARANTINE_ORIGIN"
"""`<topic>/<partition>/<offset>` where the record was when its delivery failed."""
QUARANTINE_TIMESTAMP: Final = "QUARANTINE_TIMESTAMP"
"""When it was stored there, in milliseconds."""
QUARANTINE_RELEASED: Final = "QUARANTINE_RELEASED"
"""The offset of a released record. Set on a separate record in the same partition, whose value is the position
(`<topic>/<partition>/<offset>`) that the released record went to."""
QUARANTINE_RESOLVED: Final = "QUARANTINE_RESOLVED"
"""The same for a resolved record; the value is that of a `DeadLetterState`."""
RELEASED: Final = "RELEASED"

_LONGEST_REASON: Final = 1_000
"""Characters. A reason may quote a header, whose size the sender chooses; the record must fit into the quarantine."""
_OURS: Final = (QUARANTINE_REASON, QUARANTINE_ORIGIN, QUARANTINE_TIMESTAMP)


def quarantine_headers(headers: Headers, reason: str, source: Position, timestamp_ms: int) -> list[Header]:
    """Return the record's own headers unchanged, then why it is here and where it came from.

    A record without a timestamp (-1), or of before 1970, counts as of 1970, so that readers take it for a scheduler's.

    Guarantees: the added headers have a few kilobytes at most, whatever the record's own headers contain.
    Test: tests/unit/bridge/scheduler/targets/test_hostile_records.py.
    """
    return [
        *headers,
        (QUARANTINE_REASON, reason[:_LONGEST_REASON].encode(errors="replace")),
        (QUARANTINE_ORIGIN, str(source).encode()),
        (QUARANTINE_TIMESTAMP, str(max(0, timestamp_ms)).encode()),
    ]


class QuarantineMark(NamedTuple):
    """The mark that closes a record.

    Attributes:
        offset: the offset of the record, in the partition of the mark.
        state: `RELEASED` or `RESOLVED`.
    """

    offset: int
    state: str

    def headers(self) -> list[Header]:
        """Return the headers of the mark's record."""
        return [(name, b"%d" % self.offset) for name, state in _MARKS.items() if state == self.state]


_MARKS: Final = {QUARANTINE_RELEASED: RELEASED, QUARANTINE_RESOLVED: RESOLVED}


def mark_of(headers: Headers) -> QuarantineMark | None:
    """Return the mark with these headers; None if the record is not a mark."""
    if len(headers) != 1 or (state := _MARKS.get(headers[0][0])) is None:
        return None
    offset = _number(headers[0][1])
    return None if offset is None else QuarantineMark(offset, state)


def _number(value: bytes | None) -> int | None:
    number = int(value) if value is not None and value.isdigit() and len(value) <= len(str(LARGEST)) else None
    return None if number is None or number > LARGEST else number


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The headers of a record in the quarantine.

    Attributes:
        headers: the record's headers before the quarantine.
        reason: the reason of the failed delivery.
        source: its earlier position.
        stored_ms: when it was stored there.
    """

    headers: list[Header]
    reason: str
    source: Position
    stored_ms: int

    @classmethod
    def of(cls, headers: Headers) -> Quarantined:
        """Split the headers of a quarantined record.

        Raises:
            MalformedProperty: the last headers are not reconsume's, so no scheduler has written the record.
        """
        own, ours = list(headers[:-3]), headers[-3:]
        if tuple(name for name, _ in ours) != _OURS:
            raise MalformedProperty(f"the record's last headers are not {', '.join(_OURS)}, so no scheduler wrote it")
        reason, source, stored = ((value or b"").decode(errors="replace") for _, value in ours)
        if (stored_ms := _number(ours[-1][1])) is None:
            raise MalformedProperty(f"{QUARANTINE_TIMESTAMP} must be a whole number, not {stored[:40]!r}")
        return cls(own, reason, Position.parse(source), stored_ms)

    def back(self, names: TopicNames, changes: Mapping[str, str]) -> tuple[str, list[Header]]:
        """Return the destination of a release, and its headers.

        A send-back from the inbox goes to the inbox again, so that the rule is applied. A record from a delay topic has
        waited already; it goes to `DELAY.0s`.

        Args:
            names: the installation's topics.
            changes: headers to replace, so that the record becomes deliverable.
        """
        kept = [header for header in self.headers if header[0] not in changes]
        topic = names.send_back if self.source.topic == names.send_back else names.delay(0)
        # The user's headers stay in front, and a scheduler looks for REAL_QID behind REAL_TOPIC.
        changed = sorted(changes.items(), key=lambda change: change[0] != REAL_TOPIC)
        at = next((number for number, (name, _) in enumerate(kept) if is_ours(name)), len(kept))
        return topic, [*kept[:at], *((name, value.encode()) for name, value in changed), *kept[at:]]
