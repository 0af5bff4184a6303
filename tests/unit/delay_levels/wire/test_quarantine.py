"""The headers of the quarantine: numbers that no Kafka has are not read as offsets or times."""

from __future__ import annotations

import pytest

from reconsume.bridge.scheduler.targets import routing
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import RELEASED, Quarantined, QuarantineMark, mark_of, quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position

NAMES = TopicNames()


def test_a_mark_of_an_offset_that_no_partition_has_is_no_mark() -> None:
    assert mark_of([("QUARANTINE_RELEASED", b"9223372036854775807")]) == QuarantineMark(2**63 - 1, RELEASED)
    assert mark_of([("QUARANTINE_RELEASED", b"9223372036854775808")]) is None


def test_a_time_beyond_64_bits_was_written_by_no_scheduler() -> None:
    headers = quarantine_headers([], "why", Position("orders", 0, 1), 2**63)
    with pytest.raises(MalformedProperty, match="QUARANTINE_TIMESTAMP must be a whole number"):
        Quarantined.of(headers)


def test_a_corrected_target_does_not_cost_the_partition() -> None:
    """Schedulers look for REAL_QID behind REAL_TOPIC."""
    own: list[Header] = [("trace", b"1"), ("REAL_TOPIC", b"orders"), ("REAL_QID", b"3"), ("UNIQ_KEY", b"u")]
    record = Quarantined.of(quarantine_headers(own, "why", Position("reconsume.DELAY.1s", 0, 1), 5))
    topic, headers = record.back(NAMES, {"UNIQ_KEY": "v", "REAL_TOPIC": "orders-v2"})
    assert topic == NAMES.delay(0)
    assert sorted(headers) == [("REAL_QID", b"3"), ("REAL_TOPIC", b"orders-v2"), ("UNIQ_KEY", b"v"), ("trace", b"1")]
    assert routing._aim(headers) == (b"orders-v2", b"3")
    assert routing._aim(record.back(NAMES, {"REAL_QID": "1", "REAL_TOPIC": "t"})[1]) == (b"t", b"1")


def test_a_record_without_a_timestamp_is_seen_in_the_quarantine() -> None:
    assert Quarantined.of(quarantine_headers([], "why", Position("orders", 0, 1), -1)).stored_ms == 0
