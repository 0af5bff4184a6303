"""Records of the JOBS topic."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.wire.jobs.job_records import (
    DeadLetterFilter,
    JobEvent,
    JobProgress,
    JobSpec,
    LetterEdit,
    check_edit,
    decode_job_progress,
    decode_spec,
    decode_wish,
    encode_job_progress,
    encode_spec,
    encode_wish,
    parse_job_key,
)

SPEC = JobSpec("resolve", "g", 5, "alice", "", "reconsume.DLQ.g", "id", {0: (0, 9), 3: (1, 2)}, count=0)


def test_what_is_written_is_read() -> None:
    assert decode_spec(encode_spec(SPEC)) == SPEC
    progress = JobProgress("r", {2: 7}, {"sent": 1}, {"capped": ["0/1: x"]}, "FAILED", "gone")
    assert decode_job_progress(encode_job_progress(progress)) == progress
    assert decode_job_progress(encode_job_progress(JobProgress())) == JobProgress()
    events = [JobEvent(1, "a", "pause", "x"), JobEvent(2, "b", "cancel")]
    assert decode_wish(encode_wish(events)) == events


def test_a_filter_that_an_older_program_does_not_know_has_a_later_version() -> None:
    spec = replace(SPEC, wanted=DeadLetterFilter(text="x", header="tenant=acme"))
    assert decode_spec(encode_spec(spec)) == spec
    assert [json.loads(encode_spec(one))["version"] for one in (SPEC, spec)] == [1, 2]


def test_of_many_events_the_last_are_kept() -> None:
    events = [JobEvent(number, "a", "pause") for number in range(80)]
    assert decode_wish(encode_wish(events)) == events[-50:]


@pytest.mark.parametrize("key", [None, b"", b"a/b", b"a/progress/x", b"a b", b"\xff", b"a" * 101])
def test_a_key_that_is_none_is_malformed(key: bytes | None) -> None:
    with pytest.raises(MalformedProperty):
        parse_job_key(key)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"kind": "delete"},
        {"kind": "export"},
        {"spans": {"x": [0, 1]}},
        {"spans": {"0": [1]}},
        {"at_ms": "5"},
        {"at_ms": -1},
        {"rate": 0},
        {"rate": True},
        {"target": "nowhere"},
        {"records": {"0": ["a"]}},
        {"wanted": {"text": 7}},
        {"wanted": {"label_rules": []}},
        {"wanted": {"header": ["tenant", "acme"]}},
        {"edit": {"value": "no base64!"}},
        {"edit": []},
        {"group": None, "topic": 1},
        *({name: None} for name in ("kind", "group", "by", "why", "topic", "topic_id")),
        {"group": " "},
        {"at_ms": 2**63},
        {"at_ms": True},
        {"rate": 2**63},
        {"spans": {"0": [0, 2**63]}},
        {"spans": {"0": [-1, 1]}},
        {"spans": {"0": [0.5, 1]}},
        {"spans": {str(2**31): [0, 1]}},
        {"records": {"0": [2**63]}},
        {"wanted": {"since_ms": 2**63}},
        {"why": "\ud83d"},
        {"edit": {"headers": {"\ud83d": "x"}}},
    ],
)
def test_a_job_that_is_none_is_malformed(change: dict[str, Any]) -> None:
    value = json.loads(encode_spec(SPEC)) | change
    with pytest.raises(MalformedProperty):
        decode_spec(json.dumps(value).encode())


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"[]", b"{}", b'[{"at_ms":1,"by":"a","wish":"dance"}]', b"\xff", b"[1]"),
        b'[{"at_ms":1,"by":"a","wish":"run","why":"\\ud83d"}]',
        *(b'[{"at_ms":1,"by":null,"wish":"run"}]', b'[{"at_ms":1e999,"by":"a","wish":"run"}]', b"[" * 100_000),
    ],
)
def test_wishes_that_are_none_are_malformed(value: bytes) -> None:
    with pytest.raises(MalformedProperty):
        decode_wish(value)


@pytest.mark.parametrize(
    "value",
    [
        *(b"[]", b'{"following":[]}', b'{"counts":{"a":"x"}}', b'{"ended":1}', b"{", b'{"runner":null}'),
        b'{"why":"\\ud83d"}',
        *(b'{"following":{"0":9223372036854775808}}', b'{"following":{"0":1.5}}', b'{"counts":{"a":1e999}}'),
    ],
)
def test_progress_that_is_none_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedProperty):
        decode_job_progress(value)


def test_an_edit_changes_something_and_fits() -> None:
    assert check_edit(LetterEdit(b"x"), 10).parts == "value"
    assert LetterEdit(headers={"a": None}).parts == "headers"
    with pytest.raises(IllegalSetting, match="a new value or a header"):
        check_edit(LetterEdit(), 10)
    for name in ("REAL_TOPIC", "REPLAY_ID", "__dlq.errors.message", "a\x00b"):
        with pytest.raises(IllegalSetting, match=re.escape(f"header {name!r} is reserved")):
            check_edit(LetterEdit(headers={name: "x"}), 10)
    with pytest.raises(IllegalSetting, match="the edit has 11 bytes"):
        check_edit(LetterEdit(b"x" * 11), 10)
    with pytest.raises(IllegalSetting, match="or has a NUL"):
        check_edit(LetterEdit(headers={"MAX_RECONSUME_TIMES\0": "0"}), 100)
