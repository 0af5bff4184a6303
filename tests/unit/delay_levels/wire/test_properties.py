"""Properties as headers: ours are read strictly and written once, the user's are never touched."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire import properties
from reconsume.delay_levels.wire.properties import (
    DELAY,
    LARGEST,
    OUR_PROPERTIES,
    RECONSUME_TIME,
    RETRY_TOPIC,
    Header,
    count_property,
    integer_property,
    is_ours,
    replace_properties,
    text_property,
    user_headers,
)

OURS = sorted([*OUR_PROPERTIES, "__dlq.errors.topic", "__dlq.errors.stacktrace"])
USERS = ["TAGS", "KEYS", "UNIQ_KEY", "traceparent", "tracestate", "delay", "DELAY ", "RETRY_TOPIC2", "__dlq.errors", ""]

values = st.none() | st.binary(max_size=8)
user_names = st.sampled_from(USERS) | st.text(max_size=5).filter(lambda name: not is_ours(name))
user_header_lists = st.lists(st.tuples(user_names, values), max_size=8)
header_lists = st.lists(st.tuples(st.sampled_from([*USERS, *OURS]) | st.text(max_size=5), values), max_size=12)


@pytest.mark.parametrize(
    ("constant", "name"),
    [
        ("RETRY_TOPIC", "RETRY_TOPIC"),
        ("ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID"),
        ("RECONSUME_TIME", "RECONSUME_TIME"),
        ("MAX_RECONSUME_TIMES", "MAX_RECONSUME_TIMES"),
        ("DELAY", "DELAY"),
        ("REAL_TOPIC", "REAL_TOPIC"),
        ("REAL_QID", "REAL_QID"),
        ("BORN_TIMESTAMP", "BORN_TIMESTAMP"),
        ("TAGS", "TAGS"),
        ("KEYS", "KEYS"),
        ("UNIQ_KEY", "UNIQ_KEY"),
        ("DLQ_ERRORS", "__dlq.errors."),
    ],
)
def test_the_names_are_rocketmqs_and_kip_1191s_letter_for_letter(constant: str, name: str) -> None:
    assert getattr(properties, constant) == name


@pytest.mark.parametrize("name", OURS)
def test_these_headers_are_ours(name: str) -> None:
    assert is_ours(name)


@pytest.mark.parametrize("name", USERS)
def test_these_headers_are_the_users(name: str) -> None:
    assert not is_ours(name)


def test_a_property_that_is_absent_is_none() -> None:
    for read in (text_property, integer_property, count_property):
        assert read([("other", b"1")], DELAY) is None


def test_of_duplicates_the_last_counts() -> None:
    assert text_property([(DELAY, b"1"), ("x", b"9"), (DELAY, b"2"), ("x", b"9")], DELAY) == "2"


@pytest.mark.parametrize(
    ("value", "why"), [(None, "header DELAY has no value"), (b"\xff\xfe", r"header DELAY is not UTF-8: b'\\xff\\xfe'")]
)
def test_a_property_without_text_is_malformed(value: bytes | None, why: str) -> None:
    with pytest.raises(MalformedProperty, match=why):
        text_property([(DELAY, value)], DELAY)


@pytest.mark.parametrize(
    ("value", "number"),
    [(b"0", 0), (b"16", 16), (b"-1", -1), (b"007", 7), (b"-0", 0), (str(LARGEST).encode(), LARGEST)],
)
def test_a_number_is_decimal(value: bytes, number: int) -> None:
    assert integer_property([(DELAY, value)], DELAY) == number


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" 1",
        b"1 ",
        b"1\n",
        b"+1",
        b"1.0",
        b"1e3",
        b"0x1",
        b"1_0",
        b"--1",
        b"-",
        str(LARGEST + 1).encode(),
        b"9" * 20,
        "٣".encode(),
    ],
)
def test_anything_else_is_no_number(value: bytes) -> None:
    for read in (integer_property, count_property):
        with pytest.raises(MalformedProperty, match="header RECONSUME_TIME must be a whole number such as 3, not"):
            read([(RECONSUME_TIME, value)], RECONSUME_TIME)


def test_a_count_is_never_negative() -> None:
    with pytest.raises(MalformedProperty, match="header RECONSUME_TIME must be 0 or more, not -1"):
        count_property([(RECONSUME_TIME, b"-1")], RECONSUME_TIME)


def test_a_long_malformed_value_is_cut_in_the_message() -> None:
    with pytest.raises(MalformedProperty) as refusal:
        integer_property([(DELAY, b"x" * 100_000)], DELAY)
    assert len(str(refusal.value)) < 200


@given(st.sampled_from(OURS), values)
def test_any_value_is_read_or_malformed(name: str, value: bytes | None) -> None:
    for read in (text_property, integer_property, count_property):
        with contextlib.suppress(MalformedProperty):
            assert read([(name, value)], name) is not None


@pytest.mark.rule("T-40")
def test_user_code_never_sees_what_carried_the_message() -> None:
    user: list[Header] = [("a", b"1"), ("a", b"1"), ("TAGS", b"x"), ("a", None)]
    ours: list[Header] = [(name, b"1") for name in OURS]
    assert user_headers([*ours, *user, *ours]) == user


@given(header_lists)
def test_user_headers_keep_order_duplicates_and_missing_values(headers: list[Header]) -> None:
    kept = user_headers(headers)
    rest = iter(headers)
    assert all(header in rest for header in kept), "the order changed"
    assert sorted(headers, key=repr) == sorted([*kept, *(h for h in headers if is_ours(h[0]))], key=repr)
    assert user_headers(kept) == kept


@pytest.mark.rule("T-41")
@given(user_header_lists, st.lists(st.dictionaries(st.sampled_from(OURS), st.text(max_size=5)), min_size=1, max_size=5))
def test_however_often_ours_are_replaced_the_users_stay_and_ours_are_there_once(
    user: list[Header], hops: list[dict[str, str]]
) -> None:
    headers = user
    for written in hops:
        headers = replace_properties(headers, written)
        assert user_headers(headers) == user
        assert {name: text_property(headers, name) for name in written} == written
        assert len(headers) == len(user) + len(written)


def test_what_was_read_is_not_changed() -> None:
    headers: list[Header] = [(RETRY_TOPIC, b"orders"), ("a", b"1")]
    replace_properties(headers, {DELAY: "3"})
    assert headers == [(RETRY_TOPIC, b"orders"), ("a", b"1")]
