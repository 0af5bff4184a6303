"""The headers of the quarantine: numbers that no Kafka has are not read as offsets or times."""

from __future__ import annotations

import pytest

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.quarantine import RELEASED, Quarantined, QuarantineMark, mark_of, quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position


def test_a_mark_of_an_offset_that_no_partition_has_is_no_mark() -> None:
    assert mark_of([("QUARANTINE_RELEASED", b"9223372036854775807")]) == QuarantineMark(2**63 - 1, RELEASED)
    assert mark_of([("QUARANTINE_RELEASED", b"9223372036854775808")]) is None


def test_a_time_beyond_64_bits_was_written_by_no_scheduler() -> None:
    headers = quarantine_headers([], "why", Position("orders", 0, 1), 2**63)
    with pytest.raises(MalformedProperty, match="QUARANTINE_TIMESTAMP must be a whole number"):
        Quarantined.of(headers)


def test_a_record_without_a_timestamp_is_seen_in_the_quarantine() -> None:
    assert Quarantined.of(quarantine_headers([], "why", Position("orders", 0, 1), -1)).stored_ms == 0
