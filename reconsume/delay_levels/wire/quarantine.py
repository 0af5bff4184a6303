"""Records in the quarantine: the reason, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header, Headers
from reconsume.delay_levels.wire.send_back_copy import Position

QUARANTINE_REASON: Final = "QUARANTINE_REASON"
QUARANTINE_ORIGIN: Final = "QUARANTINE_ORIGIN"
"""`<topic>/<partition>/<offset>` where the record was when its delivery failed."""
QUARANTINE_TIMESTAMP: Final = "QUARANTINE_TIMESTAMP"
"""When it was stored there, in milliseconds."""
QUARANTINE_RELEASED: Final = "QUARANTINE_RELEASED"
"""On a marker record in the same partition: the offset of a released record. The marker's value is the position
(`<topic>/<partition>/<offset>`) that the record went to."""

_OURS: Final = (QUARANTINE_REASON, QUARANTINE_ORIGIN, QUARANTINE_TIMESTAMP)


def quarantine_headers(headers: Headers, reason: str, source: Position, timestamp_ms: int) -> list[Header]:
    """Return the record's own headers unchanged, followed by reason and source."""
    return [
        *headers,
        (QUARANTINE_REASON, reason.encode(errors="replace")),
        (QUARANTINE_ORIGIN, str(source).encode()),
        (QUARANTINE_TIMESTAMP, str(timestamp_ms).encode()),
    ]


def release_marker(offset: int) -> list[Header]:
    """Return the headers of the marker for the released record at this offset."""
    return [(QUARANTINE_RELEASED, b"%d" % offset)]


def released_offset(headers: Headers) -> int | None:
    """Return the offset in a marker; None for other records."""
    if len(headers) != 1 or headers[0][0] != QUARANTINE_RELEASED:
        return None
    value = headers[0][1] or b""
    return int(value) if value.isdigit() else None


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
        if not stored.isdigit():
            raise MalformedProperty(f"{QUARANTINE_TIMESTAMP} must be a whole number, not {stored!r}")
        return cls(own, reason, Position.parse(source), int(stored))

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
        return topic, [*kept, *((name, value.encode()) for name, value in changes.items())]
