"""The send-back rule: level 3 + n, cut to the table; dead at the maximum; counted in the record alone."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import exponential_policy
from reconsume.delay_levels.rules.send_back import DEFAULT_MAX_RECONSUME_TIMES, DeadLetter, Delayed, decide_send_back
from reconsume.delay_levels.wire.inbox import inbox_copy, inbox_request
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header, Headers, is_ours, text_property, user_headers
from reconsume.delay_levels.wire.send_back_copy import (
    Position,
    SendBackCopy,
    SendBackRequest,
    Stored,
    first_failure_properties,
    send_back_copy,
)

TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
NAMES = TopicNames()
ORIGIN = Position("flights", 3, 42)
BORN = 1_700_000_000_000
FIRST = Stored.first_copy(ORIGIN, BORN)
RETRY_HEADERS: list[Header] = [
    ("RETRY_TOPIC", b"flights"),
    ("ORIGIN_MESSAGE_ID", b"flights/3/42"),
    ("RECONSUME_TIME", b"2"),
    ("DELAY", b"4"),
    ("REAL_TOPIC", b"%RETRY%departures"),
    ("REAL_QID", b"0"),
    ("BORN_TIMESTAMP", b"1700000000000"),
]
ON_RETRY_TOPIC = Position("reconsume.RETRY.departures", 0, 7)


def send_back(
    headers: Headers = (), stored: Stored = FIRST, level: int = 0, maximum: int | None = None, group_maximum: int = 16
) -> SendBackCopy:
    request = SendBackRequest("departures", headers, stored, level, maximum)
    return send_back_copy(request, NAMES, TABLE, group_max_reconsume_times=group_maximum)


def properties(copy: SendBackCopy) -> dict[str, str | None]:
    return {name: text_property(copy.headers, name) for name, _ in copy.headers if is_ours(name)}


@pytest.mark.rule("BR-13", "BR-15", "DP-01", "T-02", "T-05", "T-06")
@pytest.mark.parametrize(
    ("n", "w", "m", "level"),
    [
        (0, 0, 16, 3),
        (1, 0, 16, 4),
        (14, 0, 16, 17),
        (15, 0, 16, 18),
        (16, 0, 16, "dead"),
        (17, 0, 16, "dead"),
        (0, 0, 0, "dead"),
        (0, 0, -2, "dead"),
        (0, 0, 1, 3),
        (1, 0, 1, "dead"),
        (16, 0, 20, 18),
        (19, 0, 20, 18),
        (20, 0, 20, "dead"),
        (0, 1, 16, 1),
        (9, 2, 16, 2),
        (0, 18, 16, 18),
        (0, 19, 16, 18),
        (0, 999, 16, 18),
        (15, 1, 16, 1),
        (16, 1, 16, "dead"),
        (0, -1, 16, "dead"),
        (0, -9, 16, "dead"),
        (0, -1, 0, "dead"),
        (0, 0, 2**31 - 1, 3),
        (10**6, 0, 2**31 - 1, 18),
    ],
)
def test_the_rule(n: int, w: int, m: int, level: int | str) -> None:
    outcome = decide_send_back(n, w, m, TABLE)
    assert ("dead" if isinstance(outcome, DeadLetter) else outcome.level) == level
    assert isinstance(outcome, DeadLetter) or outcome.delay_ms == TABLE.delay_ms(outcome.level)


@pytest.mark.rule("BR-17", "T-03")
@pytest.mark.parametrize(("n", "w"), [(0, 0), (0, -1), (5, 3), (15, 0), (16, 0), (40, 0)])
def test_the_copy_counts_one_more_and_so_does_a_dead_letter(n: int, w: int) -> None:
    assert decide_send_back(n, w, 16, TABLE).reconsume_times == n + 1


@pytest.mark.parametrize(
    ("n", "w", "reason"), [(0, -1, "asked for by the consumer"), (3, 0, "sent back 3 times, the maximum is 3")]
)
def test_a_dead_letter_says_why(n: int, w: int, reason: str) -> None:
    outcome = decide_send_back(n, w, 3, TABLE)
    assert isinstance(outcome, DeadLetter)
    assert outcome.reason == reason


policies = st.lists(st.integers(0, 10**8), min_size=1, max_size=25).map(lambda ms: DelayLevels(tuple(ms))) | st.builds(
    exponential_policy, st.integers(1, 10**4), st.integers(10**4, 10**8), st.integers(1, 10)
)


@pytest.mark.rule("BR-13", "BR-15", "BR-17", "DP-01")
@given(st.integers(0, 60), st.integers(-3, 60), st.integers(-3, 60), policies)
def test_always_one_more_never_beyond_the_table_dead_exactly_when_asked_or_exhausted(
    n: int, w: int, m: int, policy: DelayLevels
) -> None:
    outcome = decide_send_back(n, w, m, policy)
    assert outcome.reconsume_times == n + 1
    assert isinstance(outcome, DeadLetter) == (w < 0 or n >= m)
    if isinstance(outcome, Delayed):
        assert outcome.level == min(w if w > 0 else policy.automatic_level(n), policy.max_level)
        assert 1 <= outcome.level <= policy.max_level
        assert outcome.delay_ms == policy.delay_ms(outcome.level)


@pytest.mark.rule("GP-01", "BR-15", "BR-17", "DP-02", "T-02", "T-03", "T-06")
def test_the_default_ladder_is_17_deliveries_over_17_140_seconds() -> None:
    headers: Headers = [("TAGS", b"late")]
    stored, deliveries, waits = FIRST, 1, []
    while isinstance((copy := send_back(headers, stored)).outcome, Delayed):
        waits.append(NAMES.delay_ms(copy.topic) // 1_000)
        deliveries += 1
        headers, stored = copy.headers, Stored.of_retry(copy.headers, ON_RETRY_TOPIC, BORN + 1)
        assert stored.reconsume_times == deliveries - 1
    assert DEFAULT_MAX_RECONSUME_TIMES == 16
    assert waits == [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    assert list(accumulate(waits)) == [
        10, 40, 100, 220, 400, 640, 940, 1300, 1720, 2200, 2740, 3340, 4540, 6340, 9940, 17140,
    ]  # fmt: skip
    assert deliveries == 17
    assert properties(copy)["RECONSUME_TIME"] == "17"
    assert properties(copy)["REAL_TOPIC"] == "%DLQ%departures"
    assert user_headers(copy.headers) == [("TAGS", b"late")]


@pytest.mark.rule("BR-10", "BR-15", "BR-17", "BR-19", "DP-02", "NM-02")
def test_the_first_send_back_writes_these_headers() -> None:
    copy = send_back([("a", b"1")])
    assert copy.topic == "reconsume.DELAY.10s"
    assert copy.outcome == Delayed(level=3, delay_ms=10_000, reconsume_times=1)
    assert copy.headers == [
        ("a", b"1"),
        ("RETRY_TOPIC", b"flights"),
        ("ORIGIN_MESSAGE_ID", b"flights/3/42"),
        ("RECONSUME_TIME", b"1"),
        ("DELAY", b"3"),
        ("REAL_TOPIC", b"%RETRY%departures"),
        ("REAL_QID", b"0"),
        ("BORN_TIMESTAMP", b"1700000000000"),
    ]


@pytest.mark.rule("BR-10", "BR-16", "BR-18", "BR-19", "SB-08", "SB-09", "T-08", "T-09", "T-12")
def test_later_send_backs_keep_origin_and_birth_and_count_from_the_record() -> None:
    stored = Stored.of_retry(RETRY_HEADERS, ON_RETRY_TOPIC, BORN + 999_999)
    assert stored == Stored("flights", "flights/3/42", 2, BORN)
    written = properties(send_back(RETRY_HEADERS, stored))
    assert written == {
        "RETRY_TOPIC": "flights",
        "ORIGIN_MESSAGE_ID": "flights/3/42",
        "RECONSUME_TIME": "3",
        "DELAY": "5",
        "REAL_TOPIC": "%RETRY%departures",
        "REAL_QID": "0",
        "BORN_TIMESTAMP": str(BORN),
    }


@pytest.mark.parametrize(
    ("times", "kept", "written"),
    [(0, None, str(BORN + 5)), (0, 7, "7"), (1, 7, "7"), (1, None, None)],
    ids=["first failure", "through the inbox", "later", "of a version that did not write it"],
)
def test_the_first_failure_is_written_once_and_never_guessed(times: int, kept: int | None, written: str | None) -> None:
    stored = FIRST._replace(reconsume_times=times, first_failed_ms=kept)
    for level in (0, -1):
        request = SendBackRequest("departures", [("FIRST_FAILURE_TIMESTAMP", b"left over")], stored, level)
        copy = send_back_copy(request, NAMES, TABLE, failed_ms=BORN + 5.9)
        assert text_property(copy.headers, "FIRST_FAILURE_TIMESTAMP") == written
        assert Stored.of_retry(copy.headers, ON_RETRY_TOPIC, 0).first_failed_ms == (written and int(written))


@pytest.mark.rule("BR-19")
@pytest.mark.parametrize("headers", [[], [("ORIGIN_MESSAGE_ID", b""), ("RETRY_TOPIC", b"")]], ids=["absent", "empty"])
def test_without_an_origin_id_the_record_itself_is_the_origin(headers: Headers) -> None:
    stored = Stored.of_retry(headers, ON_RETRY_TOPIC, BORN)
    assert stored == Stored("reconsume.RETRY.departures", "reconsume.RETRY.departures/0/7", 0, BORN)


@pytest.mark.rule("BR-10", "T-09")
@pytest.mark.parametrize(
    ("identity", "topic"),
    [("flights/3/42", "flights"), ("AC1A0A65", "reconsume.RETRY.departures"), (None, "reconsume.RETRY.departures")],
)
def test_a_retry_without_an_origin_topic_gets_the_same_one_on_both_ways(identity: str | None, topic: str) -> None:
    headers: Headers = [] if identity is None else [("ORIGIN_MESSAGE_ID", identity.encode())]
    stored = Stored.of_retry(headers, ON_RETRY_TOPIC, BORN)
    straight = send_back(headers, stored)
    in_inbox = inbox_copy(SendBackRequest("departures", headers, stored), NAMES)
    scheduled = inbox_request(in_inbox.headers, Position("reconsume.SEND_BACK", 0, 1), BORN + 1)
    assert properties(send_back(scheduled.headers, scheduled.stored)) == properties(straight)
    assert properties(straight)["RETRY_TOPIC"] == topic


@pytest.mark.rule("T-40")
def test_left_over_headers_on_an_ordinary_topic_are_no_past() -> None:
    written = properties(send_back([*RETRY_HEADERS, ("MAX_RECONSUME_TIMES", b"1")], Stored.first_copy(ORIGIN, BORN)))
    assert (written["RECONSUME_TIME"], written["DELAY"]) == ("1", "3")
    assert "MAX_RECONSUME_TIMES" not in written


@pytest.mark.rule("DP-01", "T-05")
def test_the_delay_header_holds_the_level_after_the_cap() -> None:
    copy = send_back(level=999)
    assert (copy.topic, properties(copy)["DELAY"]) == ("reconsume.DELAY.2h", "18")


@pytest.mark.rule("CC-22")
def test_a_wish_serves_for_one_send_back_only() -> None:
    wished = send_back(level=1)
    assert (wished.topic, properties(wished)["DELAY"]) == ("reconsume.DELAY.1s", "1")
    stored = Stored.of_retry(wished.headers, ON_RETRY_TOPIC, BORN)
    assert send_back(wished.headers, stored).outcome == Delayed(level=4, delay_ms=30_000, reconsume_times=2)


@pytest.mark.rule("BR-12", "T-01")
@pytest.mark.parametrize(
    ("consumers", "groups", "sent_back", "dead"),
    [
        (None, 16, 15, False),
        (None, 16, 16, True),
        (None, 3, 3, True),
        (16, 3, 3, False),
        (16, 3, 16, True),
        (3, 16, 3, True),
        (0, 16, 0, True),
        (1, 0, 0, False),
    ],
)
def test_the_consumers_own_maximum_wins_over_the_groups(
    consumers: int | None, groups: int, sent_back: int, dead: bool
) -> None:
    stored = Stored("flights", "flights/3/42", sent_back, BORN)
    copy = send_back(stored=stored, maximum=consumers, group_maximum=groups)
    assert isinstance(copy.outcome, DeadLetter) == dead
    expected = None if consumers is None else str(consumers)
    assert properties(copy).get("MAX_RECONSUME_TIMES") == expected


@pytest.mark.rule("DP-02", "BR-05")
def test_real_qid_is_the_partition_to_come_back_on() -> None:
    request = SendBackRequest("departures", (), FIRST)
    assert properties(send_back_copy(request, NAMES, TABLE, real_qid=5))["REAL_QID"] == "5"


@pytest.mark.rule("BR-13")
def test_a_dead_letter_goes_to_the_only_partition_whatever_the_retry_topic_has() -> None:
    request = SendBackRequest("departures", (), FIRST, delay_level=-1)
    assert properties(send_back_copy(request, NAMES, TABLE, real_qid=5))["REAL_QID"] == "0"


@pytest.mark.rule("BR-13", "DP-03", "HR-07", "T-04", "T-07")
@pytest.mark.parametrize(("sent_back", "level"), [(0, -1), (16, 0), (16, 5)], ids=["wish", "exhausted", "too late"])
def test_a_dead_letter_never_waits(sent_back: int, level: int) -> None:
    copy = send_back(RETRY_HEADERS, Stored("flights", "flights/3/42", sent_back, BORN), level)
    written = properties(copy)
    assert (written["REAL_TOPIC"], written["REAL_QID"], written["DELAY"]) == ("%DLQ%departures", "0", "0")
    assert NAMES.delay_ms(copy.topic) == 0
    assert written["RECONSUME_TIME"] == str(sent_back + 1)


@pytest.mark.rule("SB-12")
def test_the_users_own_identity_and_trace_stay_through_every_hop() -> None:
    own: list[Header] = [("UNIQ_KEY", b"u-1"), ("KEYS", b"k1 k2"), ("TAGS", b"late"), ("traceparent", b"00-ab-cd-01")]
    first = send_back(own)
    second = send_back(first.headers, Stored.of_retry(first.headers, ON_RETRY_TOPIC, BORN))
    assert user_headers(second.headers) == own


user_names = st.sampled_from(["TAGS", "KEYS", "a", "", "retry_topic", "__dlq.errors"]) | st.text(max_size=4)
user_lists = st.lists(st.tuples(user_names, st.none() | st.binary(max_size=6)), max_size=8)
leftovers = st.lists(st.tuples(st.sampled_from([n for n, _ in RETRY_HEADERS]), st.none() | st.binary(max_size=6)))


@pytest.mark.rule("BR-10", "BR-16", "BR-17", "BR-19", "T-08", "T-09", "T-41")
@given(user_lists, leftovers, st.lists(st.integers(-1, 20), min_size=1, max_size=8))
def test_user_headers_survive_any_number_of_send_backs_and_ours_are_there_once(
    user: list[Header], ours: list[Header], wishes: list[int]
) -> None:
    headers: Headers = [*ours, *user, *ours]
    stored = FIRST
    for sent_back, wish in enumerate(wishes):
        copy = send_back(headers, stored, wish)
        assert user_headers(copy.headers) == user
        names = [name for name, _ in copy.headers if is_ours(name)]
        assert len(names) == len(set(names))
        stored = Stored.of_retry(copy.headers, ON_RETRY_TOPIC, BORN + sent_back)
        assert stored == Stored("flights", "flights/3/42", sent_back + 1, BORN)
        headers = copy.headers


@pytest.mark.parametrize(("sent_back", "taken"), [(2**31 - 2, True), (2**31 - 1, False)])
def test_a_count_that_grows_beyond_javas_int_is_refused_at_the_inbox(sent_back: int, taken: bool) -> None:
    headers = [("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"flights"), ("RECONSUME_TIME", b"%d" % sent_back)]
    if taken:
        assert inbox_request(headers, ORIGIN, BORN).stored.reconsume_times == sent_back
        return
    with pytest.raises(MalformedProperty, match="header RECONSUME_TIME must be at most 2147483646, not 2147483647"):
        inbox_request(headers, ORIGIN, BORN)


@pytest.mark.parametrize("text", ["flights/3/42", "a.b-c_d/0/0", "t/2147483647/9223372036854775807"])
def test_a_position_is_written_as_it_is_read(text: str) -> None:
    assert str(Position.parse(text)) == text


def test_the_times_of_a_record_without_a_timestamp_are_numbers_that_every_reader_takes() -> None:
    for stored in (Stored.first_copy(ORIGIN, -1), Stored.of_retry([], ORIGIN, -1)):
        assert stored.born_ms == 0
        assert first_failure_properties(stored, -1) == {"FIRST_FAILURE_TIMESTAMP": "0"}
