"""The SEND_BACK inbox: what any client may write, and what is quarantined."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.send_back import DeadLetter, Delayed
from reconsume.delay_levels.wire.inbox import inbox_copy, inbox_request
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import OUR_PROPERTIES, Header, Headers, user_headers
from reconsume.delay_levels.wire.send_back_copy import (
    Cause,
    Position,
    SendBackCopy,
    SendBackRequest,
    Stored,
    send_back_copy,
)

TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
HERE = Position("reconsume.SEND_BACK", 1, 99)
NOW = 1_700_000_000_000
NEEDED = {"REAL_TOPIC": "%RETRY%departures", "RETRY_TOPIC": "flights"}


def read(**headers: str) -> SendBackRequest:
    return inbox_request([(name, text.encode()) for name, text in (NEEDED | headers).items()], HERE, NOW)


def applied(request: SendBackRequest) -> SendBackCopy:
    return send_back_copy(request, TopicNames(), TABLE, failed_ms=NOW)


def test_two_headers_are_enough() -> None:
    request = read()
    assert (request.group, request.delay_level, request.max_reconsume_times, request.cause) == (
        "departures",
        0,
        None,
        None,
    )
    assert request.stored == Stored("flights", "reconsume.SEND_BACK/1/99", 0, NOW)
    assert applied(request).outcome == Delayed(level=3, delay_ms=10_000, reconsume_times=1)


def test_an_origin_id_names_the_origin_topic_too() -> None:
    headers: Headers = [("REAL_TOPIC", b"%RETRY%departures"), ("ORIGIN_MESSAGE_ID", b"flights/3/42")]
    assert inbox_request(headers, HERE, NOW).stored == Stored("flights", "flights/3/42", 0, NOW)


@pytest.mark.rule("SB-08", "SB-09", "T-08")
@pytest.mark.parametrize("identity", ["flights/3/42", "AC1A0A6500002A9F"])
def test_the_origin_id_is_kept_on_this_path_too(identity: str) -> None:
    assert read(ORIGIN_MESSAGE_ID=identity).stored.origin_message_id == identity
    assert ("ORIGIN_MESSAGE_ID", identity.encode()) in applied(read(ORIGIN_MESSAGE_ID=identity)).headers


@pytest.mark.rule("SB-10", "BR-12")
def test_counts_are_taken_from_the_headers() -> None:
    request = read(RECONSUME_TIME="3", MAX_RECONSUME_TIMES="5", BORN_TIMESTAMP="17")
    assert (request.stored.reconsume_times, request.max_reconsume_times, request.stored.born_ms) == (3, 5, 17)
    assert applied(request).outcome == Delayed(level=6, delay_ms=120_000, reconsume_times=4)
    assert isinstance(applied(read(RECONSUME_TIME="5", MAX_RECONSUME_TIMES="5")).outcome, DeadLetter)


@pytest.mark.rule("SB-06", "SC-06", "T-07", "T-40")
@pytest.mark.parametrize(
    ("headers", "level"),
    [
        ({"DELAY_LEVEL_WHEN_NEXT_CONSUME": "5"}, 5),
        ({"DELAY_LEVEL_WHEN_NEXT_CONSUME": "-1"}, -1),
        ({"DELAY_LEVEL_WHEN_NEXT_CONSUME": "0", "DELAY": "-1"}, 0),
        ({"DELAY_LEVEL_WHEN_NEXT_CONSUME": "5", "DELAY": "7", "RECONSUME_TIME": "2"}, 5),
        ({"DELAY": "7"}, 7),
        ({"DELAY": "7", "RECONSUME_TIME": "0"}, 7),
        ({"DELAY": "-1"}, -1),
        ({"DELAY": "0"}, 0),
        ({"DELAY": "7", "RECONSUME_TIME": "2"}, 0),
        ({"DELAY": "-1", "RECONSUME_TIME": "2"}, -1),
    ],
    ids=str,
)
def test_the_wish_is_honoured_and_the_level_of_the_last_wait_is_no_wish(headers: dict[str, str], level: int) -> None:
    assert read(**headers).delay_level == level


def test_a_wish_is_used_up_by_the_send_back() -> None:
    names = [name for name, _ in applied(read(DELAY_LEVEL_WHEN_NEXT_CONSUME="5")).headers]
    assert "DELAY_LEVEL_WHEN_NEXT_CONSUME" not in names


@pytest.mark.rule("SB-06", "T-07")
def test_a_dlq_name_asks_for_a_dead_letter() -> None:
    request = read(REAL_TOPIC="%DLQ%departures", DELAY_LEVEL_WHEN_NEXT_CONSUME="5")
    assert request.group == "departures"
    assert isinstance(applied(request).outcome, DeadLetter)


@pytest.mark.rule("TN-10")
def test_a_group_in_a_namespace() -> None:
    assert read(REAL_TOPIC="%RETRY%berlin%departures").group == "berlin%departures"


def test_the_cause_is_taken_along() -> None:
    errors = {"__dlq.errors.message": "boom", "__dlq.errors.exception.class": "E", "__dlq.errors.stacktrace": "at …"}
    assert read(**errors).cause == Cause("boom", "E", "at …")
    assert read(**{"__dlq.errors.message": "boom"}).cause == Cause("boom")
    assert read(**{"__dlq.errors.stacktrace": "at …"}).cause is None


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "header REAL_TOPIC is missing; write %RETRY%<consumer group>"),
        ([("RETRY_TOPIC", b"flights")], "header REAL_TOPIC is missing"),
        ([("REAL_TOPIC", b"%RETRY%g")], "header RETRY_TOPIC is missing; it names the topic in which the message was"),
        ([("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"")], "RETRY_TOPIC"),
        ([("REAL_TOPIC", b"%RETRY%g"), ("ORIGIN_MESSAGE_ID", b"AC1A")], "must be <topic>/<partition>/<offset>"),
    ],
    ids=str,
)
def test_what_is_needed_and_missing_is_named(headers: Headers, why: str) -> None:
    with pytest.raises(MalformedProperty, match=why):
        inbox_request(headers, HERE, NOW)


@pytest.mark.parametrize(
    "real_topic", ["", "flights", "%RETRY%", "%DLQ%", "%retry%g", "RETRY%g", " %RETRY%g", "x%DLQ%g"]
)
def test_a_real_topic_that_names_no_group_is_refused(real_topic: str) -> None:
    with pytest.raises(MalformedProperty, match=r"header REAL_TOPIC is .*; write %RETRY%<consumer group>, or %DLQ%"):
        read(REAL_TOPIC=real_topic)


@pytest.mark.parametrize(
    "name", ["RECONSUME_TIME", "MAX_RECONSUME_TIMES", "BORN_TIMESTAMP", "DELAY", "DELAY_LEVEL_WHEN_NEXT_CONSUME"]
)
@pytest.mark.parametrize("value", ["", "three", "1.5", " 3", "9" * 20, "٣"])
def test_a_number_that_is_none_is_refused_with_the_headers_name(name: str, value: str) -> None:
    with pytest.raises(MalformedProperty, match=f"header {name} must be a whole number such as 3"):
        read(**{name: value})


@pytest.mark.parametrize("name", ["RECONSUME_TIME", "MAX_RECONSUME_TIMES", "BORN_TIMESTAMP"])
def test_a_count_below_0_is_refused(name: str) -> None:
    with pytest.raises(MalformedProperty, match=f"header {name} must be 0 or more, not -1"):
        read(**{name: "-1"})


@pytest.mark.parametrize("name", ["REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "__dlq.errors.message"])
@pytest.mark.parametrize(("value", "why"), [(None, "has no value"), (b"\xff", "is not UTF-8")])
def test_a_text_that_is_none_is_refused_with_the_headers_name(name: str, value: bytes | None, why: str) -> None:
    headers = [*((needed, text.encode()) for needed, text in NEEDED.items()), (name, value)]
    with pytest.raises(MalformedProperty, match=f"header {name} {why}"):
        inbox_request(headers, HERE, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flights",
        "flights/3",
        "flights/3/",
        "/3/42",
        "flights//42",
        "flights/-1/42",
        "flights/3/4.2",
        "flights/3/4/2",
        "flights/٣/42",
        "flights/3/" + "9" * 5_000,
        "flights/3/9223372036854775808",
        "flights/2147483648/42",
    ],
    ids=lambda text: text[:20],
)
def test_a_position_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(MalformedProperty, match="must be <topic>/<partition>/<offset>, such as orders/3/42") as refusal:
        Position.parse(text)
    assert len(str(refusal.value)) < 250


plausible = st.sampled_from(
    [
        *("%RETRY%g", "%DLQ%g", "%RETRY%", "%RETRY%a%b", "flights", "flights/3/42", "flights/0/" + "9" * 5_000),
        *("3", "0", "-1", "17", "9" * 18, "9" * 5_000, "", " "),
    ]
).map(str.encode)
values = plausible | st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode)
ours = st.sampled_from(sorted(OUR_PROPERTIES - {"REAL_QID"})) | st.sampled_from(
    ["__dlq.errors.message", "__dlq.errors.stacktrace"]
)
arbitrary = st.lists(st.tuples(ours | st.text(max_size=4), values), max_size=10)
likely = arbitrary.map(lambda more: [("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"flights"), *more])


@given(arbitrary | likely)
@example([("REAL_TOPIC", b"%RETRY%g"), ("ORIGIN_MESSAGE_ID", b"flights/0/" + b"9" * 5_000)])
def test_any_headers_are_a_request_or_malformed(headers: list[Header]) -> None:
    try:
        request = inbox_request(headers, HERE, NOW)
    except MalformedProperty:
        return
    assert request.group
    assert request.stored.origin_topic
    assert request.stored.reconsume_times >= 0


@given(likely)
@example(
    [*((n, t.encode()) for n, t in NEEDED.items()), ("DELAY", b"-1"), ("ORIGIN_MESSAGE_ID", b"t/0/" + b"9" * 5_000)]
)
@example([*((n, t.encode()) for n, t in NEEDED.items()), ("RECONSUME_TIME", b"9" * 19)])
def test_what_the_inbox_accepts_can_be_copied_and_read_again(headers: list[Header]) -> None:
    try:
        request = inbox_request(headers, HERE, NOW)
    except MalformedProperty:
        return
    copy = applied(request)
    again = Stored.of_retry(copy.headers, HERE, NOW + 1)
    before = request.stored
    first_failed = before.first_failed_ms
    if first_failed is None and before.reconsume_times == 0:
        first_failed = NOW
    assert again == before._replace(reconsume_times=before.reconsume_times + 1, first_failed_ms=first_failed)
    assert user_headers(copy.headers) == user_headers(headers)


causes = st.none() | st.builds(
    Cause, st.text(st.characters(exclude_categories=()), max_size=2_000), st.none() | st.text(), st.none() | st.text()
)
requests = st.builds(
    SendBackRequest,
    st.sampled_from(["departures", "berlin%departures", "a_5F", "航班"]),
    arbitrary,
    st.builds(
        Stored,
        st.just("flights"),
        st.sampled_from(["flights/3/42", "AC1A"]),
        st.integers(0, 20),
        st.just(NOW),
        st.none() | st.integers(0, NOW),
    ),
    st.integers(-2, 20),
    st.none() | st.integers(0, 20),
    causes,
)


@pytest.mark.rule("HR-05", "SB-06", "SB-08", "SB-09", "T-07", "T-08")
@given(requests)
def test_the_way_through_the_inbox_ends_as_the_direct_one_does(request: SendBackRequest) -> None:
    second_way = inbox_copy(request, TopicNames(), NOW)
    assert second_way.topic == "reconsume.SEND_BACK"
    assert user_headers(second_way.headers) == user_headers(request.headers)
    assert applied(inbox_request(second_way.headers, HERE, NOW + 5_000)) == applied(request)
