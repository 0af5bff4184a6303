"""Headers, names, tables and metadata that anybody may have written. The examples were findings, or near them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconsume.bridge.groups.groups import parse_group_config, parse_system_config
from reconsume.delay_levels.errors import IllegalDelayLevels, IllegalName, IllegalSetting, MalformedProperty
from reconsume.delay_levels.progress.done_ahead import decode_done
from reconsume.delay_levels.progress.metadata import decode_progress
from reconsume.delay_levels.rules.durations import format_duration, parse_duration
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.rules.retry_policies import parse_retry_policy
from reconsume.delay_levels.wire.inbox import inbox_request
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import OUR_PROPERTIES, Header
from reconsume.delay_levels.wire.quarantine import Quarantined, mark_of, quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position, Stored, send_back_copy
from reconsume.delay_levels.wire.timer import delayed_copy, deliver_ms_of

NAMES = TopicNames()
WHERE = Position("reconsume.SEND_BACK", 0, 7)
TABLE = DelayLevels.parse("1s 5s 10s")
VALUES = st.none() | st.binary(max_size=30) | st.integers(-(2**70), 2**70).map(lambda one: str(one).encode())
NAMES_OF_HEADERS = st.sampled_from(sorted(OUR_PROPERTIES)) | st.text(max_size=10)
TARGETS = st.sampled_from([b"%RETRY%g", b"%DLQ%g", b"%RETRY%", b"%RETRY%\xff", b"%RETRY%%DLQ%g", b"orders"])
HEADERS = st.lists(
    st.tuples(NAMES_OF_HEADERS, VALUES) | st.tuples(st.sampled_from(["REAL_TOPIC", "RETRY_TOPIC"]), TARGETS)
)


@given(HEADERS)
@example([("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"o"), ("RECONSUME_TIME", "٣".encode())])
@example([("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"o"), ("RECONSUME_TIME", b"9" * 5_000)])
@example([("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"o"), ("MAX_RECONSUME_TIMES", b"+1_0")])
def test_headers_of_the_inbox_are_a_send_back_or_malformed(headers: list[Header]) -> None:
    try:
        request = inbox_request(headers, WHERE, 1)
        copy = send_back_copy(request, NAMES, TABLE, group_max_reconsume_times=16, real_qid=0)
    except (MalformedProperty, IllegalName):
        return
    assert copy.topic in {NAMES.delay(0), *(NAMES.delay(one) for one in TABLE.delays_ms)}


@given(HEADERS)
def test_headers_of_a_delayed_message_give_a_moment_or_are_malformed(headers: list[Header]) -> None:
    with suppress(MalformedProperty):
        due = deliver_ms_of(headers, 0)
        assert due is None or due >= 0
    with suppress(MalformedProperty):
        _, lane, _ = delayed_copy(headers, WHERE, 1, TABLE, NAMES)
        assert NAMES.delay_ms(lane) >= 0


@given(HEADERS)
def test_headers_of_a_retry_tell_its_past_or_are_malformed(headers: list[Header]) -> None:
    with suppress(MalformedProperty):
        assert Stored.of_retry(headers, Position("reconsume.RETRY.g", 0, 1), 1).reconsume_times >= 0


@given(HEADERS, st.text(), st.integers(0, 2**50))
def test_what_is_quarantined_comes_out_as_it_was(headers: list[Header], reason: str, stored_ms: int) -> None:
    kept = Quarantined.of(quarantine_headers(headers, reason, WHERE, stored_ms))
    assert (kept.headers, kept.source, kept.stored_ms) == (headers, WHERE, stored_ms)
    assert kept.back(NAMES, {}) == (NAMES.send_back, headers)


@given(HEADERS | st.lists(st.tuples(st.sampled_from(["QUARANTINE_REASON", "QUARANTINE_RELEASED"]), VALUES)))
def test_what_no_scheduler_has_quarantined_is_malformed(headers: list[Header]) -> None:
    with pytest.raises(MalformedProperty):
        Quarantined.of(headers)
    mark = mark_of(headers)
    assert mark is None or mark.offset >= 0


@pytest.mark.parametrize("number", [b"9" * 5_000, "²".encode(), b"-1", b""])
def test_a_number_that_is_none_is_malformed(number: bytes) -> None:
    ours = ("QUARANTINE_REASON", b"r"), ("QUARANTINE_ORIGIN", b"o/0/1"), ("QUARANTINE_TIMESTAMP", number)
    with pytest.raises(MalformedProperty):
        Quarantined.of(ours)
    assert mark_of([("QUARANTINE_RELEASED", number)]) is None


@given(st.text())
@example("1s  2s")
@example("٣s")
@example("9" * 5_000 + "s")
def test_a_level_table_is_read_or_refused(text: str) -> None:
    try:
        table = DelayLevels.parse(text)
    except IllegalDelayLevels:
        return
    assert DelayLevels.parse(str(table)) == table


@given(st.text())
@example("²s")
def test_a_duration_has_one_name_or_is_refused(text: str) -> None:
    with suppress(IllegalDelayLevels):
        assert parse_duration(format_duration(parse_duration(text))) == parse_duration(text)


@given(st.text())
@example("reconsume.DELAY.")
@example("reconsume.RETRY.a.FFb")
@example("reconsume.RETRY._5F")
def test_a_topic_has_a_name_and_the_name_leads_back(topic: str) -> None:
    with suppress(IllegalName):
        assert NAMES.kafka_topic(NAMES.rocketmq_name(topic)) == topic
    with suppress(IllegalName):
        assert NAMES.delay(NAMES.delay_ms(topic)) == topic or topic == NAMES.send_back


@given(st.integers(0, 2**60), st.none() | st.text() | st.text().map("done1:".__add__))
@example(0, "done1:=")
@example(0, "done1:AA==;failed1:")
@example(0, "done1:AA==;failed1:1=" + "9" * 5_000)
def test_metadata_of_an_offset_is_progress_or_malformed(offset: int, metadata: str | None) -> None:
    with suppress(MalformedProperty):
        kept = decode_progress(offset, metadata)
        assert all(one >= offset for one in (*kept.done, *kept.failures))
    with suppress(MalformedProperty):
        assert all(one >= offset for one in decode_done(offset, metadata))


@given(st.recursive(st.none() | st.integers() | st.text(), lambda one: st.dictionaries(st.text(), one), max_leaves=5))
@example({"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": "x"}})
@example({"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [-1]}})
def test_a_retry_policy_is_read_or_refused(value: object) -> None:
    if isinstance(value, dict):
        with suppress(IllegalSetting):
            parse_retry_policy(value)


@given(st.text() | st.binary())
@example("{}")
@example('{"messageDelayLevel": "x"}')
@example('{"retryMaxTimes": 1e400}')
@example("[" * 100_000)
def test_what_stands_on_the_groups_topic_is_read_or_refused(text: str | bytes) -> None:
    with suppress(IllegalSetting):
        parse_system_config(text)
    with suppress(IllegalSetting):
        parse_group_config("g", text)
