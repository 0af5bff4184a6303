"""What recent send-backs are told of topics that only look like ours; the rest is in tests/integration."""

from __future__ import annotations

import threading

import pytest

from reconsume.bridge.reading import recent_send_backs as module
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.bridge.reading.recent_send_backs import recent_send_backs
from reconsume.delay_levels.wire.names import TopicNames


def test_a_topic_that_is_no_delay_topic_costs_its_own_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar did not start."""
    headers = [("REAL_TOPIC", b"%RETRY%g"), ("ORIGIN_MESSAGE_ID", b"o/0/1"), ("DELAY", b"1")]
    topics = "reconsume.DELAY.my.lane", "reconsume.DELAY.1s"
    read = [ReadRecord(topic, 0, 0, None, b"", headers, 1_000) for topic in topics]
    monkeypatch.setattr(module, "_appended", lambda *_: iter(read))
    found = recent_send_backs({}, TopicNames(), 0, None, threading.Event(), now_ms=9_000, most_bytes=9_000)
    assert [one.due_ms for _, one in found] == [2_000]
