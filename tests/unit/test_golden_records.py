"""Records of earlier versions are read, and those of the newest format are written, byte for byte.

A change of the format adds a file to tests/golden; the files that are there are never changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.progress.done_ahead import decode_done
from reconsume.delay_levels.progress.metadata import decode_progress
from reconsume.delay_levels.wire.dead_letter_states import STATES, decode_state, parse_key
from reconsume.delay_levels.wire.inbox import inbox_request
from reconsume.delay_levels.wire.jobs.job_records import (
    DeadLetterFilter,
    LetterEdit,
    decode_job_progress,
    decode_spec,
    decode_wish,
    parse_job_key,
)
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY, TopicNames
from reconsume.delay_levels.wire.positions import decode_position, partition_of_key
from reconsume.delay_levels.wire.properties import text_property
from reconsume.delay_levels.wire.send_back_copy import Position, Stored
from reconsume.delay_levels.wire.timer import deliver_ms_of
from tests.support.golden import FOLDER, as_headers, written_today

FORMATS = sorted(FOLDER.glob("format-*.json"), key=lambda file: int(file.stem.removeprefix("format-")))
NEWEST = FORMATS[-1]
FORMER = {"metadata of another lane"}
"""Kept by all files since format 3, but written only up to format 5."""
NAMES = TopicNames()
RETRY = Position(NAMES.retry("a group/ü"), 1, 7)


def kept(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture(params=FORMATS, ids=lambda file: file.stem)
def format_kept(request: pytest.FixtureRequest) -> dict[str, Any]:
    return kept(request.param)


@pytest.mark.parametrize("what", [what for what in kept(NEWEST) if what not in FORMER])
def test_the_newest_format_is_written_byte_for_byte(what: str) -> None:
    assert written_today()[what] == kept(NEWEST)[what], f"{what}: a new format needs a new file in tests/golden"


def test_everything_that_is_written_is_kept() -> None:
    assert written_today().keys() == kept(NEWEST).keys() - FORMER


@pytest.mark.parametrize(("what", "times"), [("first send-back", 1), ("second send-back", 2), ("dead letter", 2)])
def test_a_retry_or_dead_letter_is_read(format_kept: dict[str, Any], what: str, times: int) -> None:
    headers = as_headers(format_kept[what]["headers"])
    stored = Stored.of_retry(headers, RETRY, 1)
    first_failed = 1_700_000_000_500 if "FIRST_FAILURE_TIMESTAMP" in dict(headers) else None
    assert stored == Stored("flights", "flights/3/42", times, 1_700_000_000_123, first_failed)
    users = [header for header in headers if header[0] in ("trace", "twice", "nothing", "bytes", "TAGS")]
    assert [name for name, _ in users] == ["trace", "twice", "nothing", "twice", "bytes", "TAGS"]
    assert ("bytes", b"\x00\xff\xfe") in users
    real_topic = text_property(headers, "REAL_TOPIC") or ""
    prefix = "reconsume.DLQ." if what == "dead letter" else "reconsume.RETRY."
    assert NAMES.kafka_topic(real_topic) == prefix + "a.20group.2F.C3.BC"


@pytest.mark.parametrize(
    ("what", "delay_ms"), [("first send-back", 10_000), ("second send-back", 7_200_000), ("dead letter", 0)]
)
def test_a_delay_topic_tells_its_delay(format_kept: dict[str, Any], what: str, delay_ms: int) -> None:
    assert NAMES.delay_ms(format_kept[what]["topic"]) == delay_ms


def test_a_send_back_through_the_inbox_is_read(format_kept: dict[str, Any]) -> None:
    request = inbox_request(as_headers(format_kept["inbox"]["headers"]), Position(NAMES.send_back, 0, 1), 2)
    assert (request.group, request.delay_level, request.max_reconsume_times) == ("a group/ü", 5, 3)
    assert request.stored._replace(first_failed_ms=None) == Stored("flights", "flights/3/42", 0, 1_700_000_000_123)
    assert request.cause is not None
    assert request.cause.message == "no connection"


@pytest.mark.parametrize("what", ["delayed message", "delayed message on its next lane"])
def test_a_delayed_message_keeps_its_moment(format_kept: dict[str, Any], what: str) -> None:
    assert deliver_ms_of(as_headers(format_kept[what]["headers"]), 1_700_000_000_000) == 1_700_005_400_000


def test_groups_are_read(format_kept: dict[str, Any]) -> None:
    groups = Groups().with_record(SYSTEM_KEY.encode(), format_kept["GROUPS: %SYS%"].encode())
    groups = groups.with_record("a group/ü".encode(), format_kept["GROUPS: a group"].encode())
    groups = groups.with_record(b"g", format_kept["GROUPS: a group with its own policy"].encode())
    assert not groups.unreadable
    found = groups.find("a group/ü")
    assert (found.retry_max_times, found.retry_queue_nums, found.consume_enable) == (3, 4, True)
    assert groups.find("g").policy(groups.table).distinct_delays_ms() == (1_000, 5_000)


def test_published_topic_settings_are_read(format_kept: dict[str, Any]) -> None:
    groups = Groups().with_record(SYSTEM_KEY.encode(), format_kept["GROUPS: %SYS%"].encode())
    assert groups.system.topic_settings is None
    if "GROUPS: %SYS% with topic settings" in format_kept:  # since format 4
        groups = groups.with_record(SYSTEM_KEY.encode(), format_kept["GROUPS: %SYS% with topic settings"].encode())
        published = groups.system.topic_settings
        assert published is not None
        assert (published.max_message_bytes, published.retention_days) == (6_000_000, 30)
        assert (published.replication_factor, published.delay_partitions) == (2, 4)
        assert published.bulk_partitions == (3 if "bulkPartitions" in groups.system.to_json() else 2)
        assert groups.normal_partitions == 4


def test_published_patterns_are_read(format_kept: dict[str, Any]) -> None:
    assert Groups().allowed_real_topics is None
    if "GROUPS: %SYS%.allowedRealTopics" in format_kept:  # since format 5
        groups = Groups().with_record(
            ALLOWED_TOPICS_KEY.encode(), format_kept["GROUPS: %SYS%.allowedRealTopics"].encode()
        )
        assert (groups.allowed_real_topics, groups.unreadable) == ((r"orders\..*", "bezahlt-ü"), {})


def test_metadata_beside_offsets_is_read(format_kept: dict[str, Any]) -> None:
    assert decode_done(100, format_kept["metadata of DELAY.0s"]) == {101, 109, 130}
    if "metadata of another lane" in format_kept:  # since format 3
        with pytest.raises(MalformedProperty):
            decode_done(100, format_kept["metadata of another lane"])
    progress = decode_progress(100, format_kept["metadata of a consumer"])
    assert progress.done == {102, 117}
    assert progress.failures == {100: 2, 105: 1}


def test_positions_are_read(format_kept: dict[str, Any]) -> None:
    if "POSITIONS" in format_kept:  # since format 4
        key, value = format_kept["POSITIONS"]
        assert partition_of_key(key.encode()) == (NAMES.delay(10_000), 3)
        position = decode_position(value.encode())
        assert (position.offset, position.metadata) == (100, "apart1:AQ==")
        assert (position.topic_id, position.transactional_id) == ("6QmKpxVzQnW4ZJ1TqGhX0g", "reconsume.scheduler-one")


def test_a_state_of_a_dead_letter_is_read() -> None:
    for what, one in kept(NEWEST).items():
        if what.startswith("DEAD_LETTERS"):
            assert parse_key(one["key"].encode()) == (NAMES.dead_letter("a group/ü"), 0, 7, 1_700_000_000_500)
            assert decode_state(one["value"].encode()).state in STATES


def test_a_job_is_read() -> None:
    found = {what: one for what, one in kept(NEWEST).items() if what.startswith("JOBS")}
    values = {what: one["value"].encode("latin-1") for what, one in found.items()}
    assert [parse_job_key(one["key"].encode()) for one in found.values()] == [
        *(("resend-1", ""), ("resend-2", "")),
        *(("resend-1", "wish"), ("resend-1", "progress")),
    ]
    by_filter, picked = decode_spec(values["JOBS: a filter"]), decode_spec(values["JOBS: a record"])
    assert (by_filter.kind, by_filter.spans, by_filter.rate, by_filter.count) == ("resend", {0: (7, 100)}, 50, 42)
    assert (by_filter.wanted.text, by_filter.wanted.label_rules) == ("timeout", {"L": "Löwe"})
    assert (picked.records, picked.target, picked.wanted) == ({0: [7]}, "origin", DeadLetterFilter())
    assert picked.edit == LetterEdit(b"\x00\xff", {"fixed-by": "alice", "user": None})
    assert [one.wish for one in decode_wish(values["JOBS: wishes"])] == ["pause", "run"]
    progress = decode_job_progress(values["JOBS: progress"])
    assert (progress.following, progress.counts, progress.ended) == ({0: 57}, {"sent": 40, "capped": 1}, "")
