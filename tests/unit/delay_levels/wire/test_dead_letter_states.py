"""Records of the DEAD_LETTERS topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.dead_letter_states import (
    OPEN,
    STATES,
    DeadLetterKey,
    DeadLetterState,
    decode_state,
    encode_state,
    parse_key,
)

TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=40)
NUMBER = some.integers(0, 2**63 - 1)


@given(some.sampled_from([one for one in STATES if one != OPEN]), NUMBER, TEXT, TEXT, TEXT, TEXT)
def test_a_state_is_read_as_it_was_written(state: str, at: int, by: str, why: str, job: str, newer: str) -> None:
    written = DeadLetterState(state, at, by, why, job, newer)
    assert decode_state(encode_state(written).encode()) == written


@given(some.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True), some.integers(0, 2**31 - 1), NUMBER, NUMBER)
def test_a_key_is_read_as_it_was_written(topic: str, partition: int, offset: int, stored: int) -> None:
    key = DeadLetterKey(topic, partition, offset, stored)
    assert parse_key(str(key).encode()) == key


def test_the_forms_on_the_wire() -> None:
    assert str(DeadLetterKey("reconsume.DLQ.departures", 0, 17, 1_790_000_000_000)) == (
        "reconsume.DLQ.departures/0/17/1790000000000"
    )
    assert encode_state(DeadLetterState("RESENT", 1_790_000_000_001, "alice", job="dlq-1")) == (
        '{"state":"RESENT","at":1790000000001,"by":"alice","job":"dlq-1"}'
    )


def test_a_whole_surrogate_pair_is_a_character() -> None:
    value = b'{"state":"RESOLVED","at":5,"by":"a","why":"\\ud83d\\uDE00 \\\\ud83d"}'
    assert decode_state(value).why == "\N{GRINNING FACE} \\ud83d"


def test_fields_of_later_versions_are_ignored() -> None:
    assert decode_state(b'{"state":"RESOLVED","at":1,"by":"a","color":3}') == DeadLetterState("RESOLVED", 1, "a")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"state":"OPEN","at":1}',
        b'{"state":"LOST","at":1}',
        b'{"state":["RESENT"],"at":1}',
        b'{"state":"RESENT","at":"1"}',
        b'{"state":"RESENT","at":true}',
        b'{"state":"RESENT","at":-1}',
        b'{"state":"RESENT","at":1,"by":7}',
        b'{"state":"RESOLVED","at":5,"by":"a","why":"\\ud83d"}',
        b'{"state":"RESOLVED","at":5,"by":"a","why":"\\uDE00"}',
        b'{"state":"RESOLVED","at":5,"by":"a","why":"\xed\xa0\xbd"}',
        b'{"state":"RESOLVED","at":5,"by":"a","later":[{"\\ud83d":1}]}',
        '{"state":"RESOLVED","at":5,"by":"a","why":"\\ud83d"}'.encode("utf-16"),
    ],
)
def test_a_malformed_value_is_an_error_that_shows_it(value: bytes) -> None:
    with pytest.raises(MalformedProperty, match="value"):
        decode_state(value)


@pytest.mark.parametrize(
    "key",
    [
        *(None, b"", b"a/1/2", b"a/1/2/3/4", b"a b/1/2/3", b"\xff/1/2/3", b"a/x/2/3", b"a/1/2/"),
        *(b"a/2147483648/2/3", b"a/1/9223372036854775808/3", b"a/1/2/9223372036854775808"),
    ],
)
def test_a_malformed_key_is_an_error_that_shows_it(key: bytes | None) -> None:
    with pytest.raises(MalformedProperty, match="key"):
        parse_key(key)


def test_equal_texts_of_many_states_are_one_object() -> None:
    keys = [parse_key(b"dead/0/%d/5" % offset) for offset in range(2)]
    assert keys[0].topic is keys[1].topic
    state = DeadLetterState("RESENT", 7, "ada", "why not", "job-1", "0/3")
    first, second = (decode_state(encode_state(state).encode()) for _ in range(2))
    for name in ("state", "by", "why", "job", "newer"):
        assert getattr(first, name) is getattr(second, name)
