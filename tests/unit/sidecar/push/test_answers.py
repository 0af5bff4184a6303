"""The answer tables, row by row and profile by profile; docs/sidecar-push.md shows the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import RetryPolicy, exponential_policy
from reconsume.sidecar.push.answers import AppAnswer, Meaning, NoAnswer, PushVerdict, Row, judge, was_cut_off
from reconsume.sidecar.push.settings import Profile

TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
NOW = 1_700_000_000_000
ACK, RETRY, DLQ, DROP = Meaning.ACK, Meaning.RETRY, Meaning.DEAD_LETTER, Meaning.DROP
HOLD, MISSING = Meaning.HOLD, Meaning.MISSING_ROUTE
NATIVE, DAPR, KNATIVE, BATCH = Profile.NATIVE, Profile.DAPR, Profile.KNATIVE, Profile.ROCKETMQ_BATCH


def answer(status: int, body: Any = None, **headers: str) -> AppAnswer:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    found = body if isinstance(body, dict) else None
    return AppAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw, found)


def judged(
    one: AppAnswer | NoAnswer, profile: Profile = NATIVE, size: int = 1, policy: RetryPolicy = TABLE
) -> PushVerdict:
    return judge(one, profile, size=size, now_ms=NOW, policy=lambda: policy)


def status(text: str) -> AppAnswer:
    return answer(200, {"status": text})


AWAY = NoAnswer("connection refused")
LATE = NoAnswer("no answer within 30 s", timed_out=True)
ROWS: list[tuple[AppAnswer | NoAnswer, Meaning, Meaning, Meaning]] = [
    # answer, native and rocketmq-batch, dapr, knative
    (answer(200), ACK, ACK, ACK),
    (answer(204), ACK, ACK, ACK),
    (answer(299, b"null"), ACK, ACK, ACK),
    (answer(200, b'"ok"'), ACK, ACK, ACK),
    (answer(200, b"<html>"), ACK, ACK, ACK),
    (answer(200, {}), ACK, ACK, ACK),
    (answer(200, {"status": ""}), ACK, ACK, ACK),
    (answer(200, {"status": None}), ACK, ACK, ACK),
    (status("SUCCESS"), ACK, ACK, ACK),
    (status("CONSUME_SUCCESS"), ACK, ACK, ACK),
    (status("RETRY"), RETRY, RETRY, ACK),
    (status("RECONSUME_LATER"), RETRY, RETRY, ACK),
    (status("SUSPEND_CURRENT_QUEUE_A_MOMENT"), RETRY, RETRY, ACK),
    (status("DROP"), DROP, DROP, ACK),
    (status("success"), RETRY, RETRY, ACK),
    (status("DONE"), RETRY, RETRY, ACK),
    (answer(200, {"status": 5}), RETRY, RETRY, ACK),
    *((answer(code), DLQ, RETRY, DLQ) for code in (400, 401, 403, 405, 410, 413, 415, 422, 431, 451, 499)),
    (answer(404), MISSING, DLQ, RETRY),
    *((answer(code), RETRY, RETRY, RETRY) for code in (408, 409, 425, 429)),
    *((answer(code), RETRY, RETRY, RETRY) for code in (500, 501, 505, 599)),
    *((answer(code), HOLD, HOLD, HOLD) for code in (502, 503, 504)),
    *((answer(code, retry_after="1"), RETRY, RETRY, RETRY) for code in (502, 503, 504)),
    (answer(503, reconsume_error_type="Db"), RETRY, RETRY, RETRY),
    (AWAY, HOLD, HOLD, HOLD),
    (LATE, RETRY, RETRY, RETRY),
    (NoAnswer("cut off", cut_off=True), HOLD, HOLD, HOLD),
    (NoAnswer("cut off", repeated=True), RETRY, RETRY, RETRY),
    (AppAnswer(200, cut_off=True), RETRY, RETRY, ACK),
    *((AppAnswer(code, cut_off=True), DLQ, RETRY, DLQ) for code in (400, 422)),
    (AppAnswer(500, cut_off=True), RETRY, RETRY, RETRY),
    (AppAnswer(503, cut_off=True), HOLD, HOLD, HOLD),
    *((answer(code, location="/x"), DLQ, RETRY, DLQ) for code in (301, 302, 304, 307, 308)),
]


@pytest.mark.parametrize(("given", "native", "dapr", "knative"), ROWS)
def test_the_table(given: AppAnswer | NoAnswer, native: Meaning, dapr: Meaning, knative: Meaning) -> None:
    assert [judged(given, profile).meaning for profile in (NATIVE, BATCH, DAPR, KNATIVE)] == [
        *(native, native, dapr, knative)
    ]


def test_a_level_that_came_before_the_rest_was_cut_off_counts() -> None:
    assert judged(AppAnswer(500, {"reconsume-delay-level": "4"}, cut_off=True)).level == 4


@pytest.mark.parametrize(
    ("given", "was"),
    [
        (NoAnswer("refused"), False),
        (NoAnswer("cut off", cut_off=True), True),
        (LATE, False),
        (AppAnswer(502), True),
        (AppAnswer(502, {"retry-after": "1"}), False),
        (AppAnswer(503), False),
        (AppAnswer(500, cut_off=True), False),
    ],
)
def test_only_an_app_that_had_the_request_can_have_ended_on_it(given: AppAnswer | NoAnswer, was: bool) -> None:
    assert was_cut_off(given) == was


def test_every_row_of_the_table_is_tried() -> None:
    assert {judged(given).row for given, *_ in ROWS} == set(Row)


def test_no_answer_in_time_waits_on_level_3() -> None:
    assert judged(LATE).level == 3


LEVELS: list[tuple[AppAnswer, Meaning, int]] = [
    (answer(500), RETRY, 0),
    (answer(500, reconsume_delay_level="5"), RETRY, 5),
    (answer(500, reconsume_delay_level="0"), RETRY, 0),
    (answer(500, reconsume_delay_level="-1"), DLQ, -1),
    (answer(500, reconsume_delay_level="-7"), DLQ, -1),
    (answer(500, reconsume_delay_level="99"), RETRY, 99),
    (answer(500, {"delayLevelWhenNextConsume": 4}), RETRY, 4),
    (answer(500, {"delayLevelWhenNextConsume": "4"}), RETRY, 4),
    (answer(500, {"delayLevelWhenNextConsume": 4.0}), RETRY, 4),
    (answer(500, {"delayLevelWhenNextConsume": 4}, reconsume_delay_level="6"), RETRY, 6),
    (answer(200, {"status": "RETRY", "delayLevelWhenNextConsume": -1}), DLQ, -1),
    (answer(429, retry_after="0"), RETRY, 1),
    (answer(429, retry_after="1"), RETRY, 1),
    (answer(429, retry_after="2"), RETRY, 2),
    (answer(429, retry_after="61"), RETRY, 6),
    (answer(429, retry_after="7200"), RETRY, 18),
    (answer(429, retry_after="7201"), RETRY, 18),
    (answer(429, retry_after="99999999999999999999"), RETRY, 18),
    (answer(503, retry_after="Tue, 14 Nov 2023 22:13:29 GMT"), RETRY, 3),
    (answer(503, retry_after="Tue, 14 Nov 2023 22:13:29 -0000"), RETRY, 3),
    (answer(503, retry_after="Tue, 14 Nov 2000 22:13:29 GMT"), RETRY, 1),
    (answer(429, retry_after="5", reconsume_delay_level="9"), RETRY, 9),
    (answer(429, retry_after="120", reconsume_delay_level="0"), RETRY, 0),
    # What cannot be is as if it was not said.
    (answer(500, reconsume_delay_level="soon"), RETRY, 0),
    (answer(500, reconsume_delay_level="1" * 400), RETRY, 0),
    (answer(500, {"delayLevelWhenNextConsume": True}), RETRY, 0),
    (answer(500, {"delayLevelWhenNextConsume": 1e300}), RETRY, 0),
    (answer(429, retry_after="soon"), RETRY, 0),
    (answer(429, retry_after="-5"), RETRY, 0),
    (answer(429, retry_after="Mon, 01 Jan 99999999999999999999 00:00:00 GMT"), RETRY, 0),
    (answer(429, retry_after="Mon, 01 Jan 2026 00:00:00 +99999999999999999999"), RETRY, 0),
]


@pytest.mark.rule("CC-22")
@pytest.mark.parametrize(("given", "meaning", "level"), LEVELS)
def test_levels_qualify_a_retry(given: AppAnswer, meaning: Meaning, level: int) -> None:
    verdict = judged(given)
    assert (verdict.meaning, verdict.level) == (meaning, level)


def test_levels_never_turn_anything_else_into_a_retry() -> None:
    assert judged(answer(200, reconsume_delay_level="5")).meaning is ACK
    assert judged(answer(200, reconsume_delay_level="-1")).meaning is ACK
    assert judged(answer(400, reconsume_delay_level="5")).meaning is DLQ


def test_a_knative_app_may_use_headers_but_no_body_keys() -> None:
    given = answer(500, {"delayLevelWhenNextConsume": 4, "error": {"message": "in the body"}})
    assert judged(given, KNATIVE).level == 0
    assert judged(answer(500, reconsume_delay_level="4"), KNATIVE).level == 4


def test_retry_after_reads_the_levels_of_the_group() -> None:
    exponential = exponential_policy(initial_ms=1_000, max_ms=60_000, multiplier=2)
    level = judged(answer(429, retry_after="7"), policy=exponential).level
    assert exponential.delay_ms(level) >= 7_000 > exponential.delay_ms(level - 1)
    unsorted = DelayLevels.parse("10s 1s 5s")
    assert judged(answer(429, retry_after="3"), policy=unsorted).level == 1


SUSPENSIONS: list[tuple[AppAnswer, int | None]] = [
    (answer(500), None),
    (answer(500, reconsume_suspend_ms="200"), 200),
    (status("RETRY"), None),
    (status("SUSPEND_CURRENT_QUEUE_A_MOMENT"), -1),
    (answer(200, {"status": "SUSPEND_CURRENT_QUEUE_A_MOMENT", "suspendCurrentQueueTimeMillis": 30}), 30),
    (answer(200, {"status": "SUSPEND_CURRENT_QUEUE_A_MOMENT"}, reconsume_suspend_ms="50"), 50),
    (answer(200, reconsume_suspend_ms="50"), None),
]


@pytest.mark.rule("OR-02")
@pytest.mark.parametrize(("given", "suspend_ms"), SUSPENSIONS)
def test_an_app_may_ask_for_another_try_in_its_place(given: AppAnswer, suspend_ms: int | None) -> None:
    assert judged(given).suspend_ms == suspend_ms


ACK_INDEXES: list[tuple[AppAnswer, Meaning, int]] = [
    (answer(200, {"status": "CONSUME_SUCCESS", "ackIndex": 1}), RETRY, 2),
    (answer(200, {"ackIndex": 1}), RETRY, 2),
    (answer(200, reconsume_ack_index="0"), RETRY, 1),
    (answer(200, {"ackIndex": 1}, reconsume_ack_index="0"), RETRY, 1),
    (answer(200, {"ackIndex": -1}), RETRY, 0),
    (answer(200, {"ackIndex": -2}), RETRY, 0),
    (answer(200, {"ackIndex": 2}), ACK, 0),
    (answer(200, {"ackIndex": 99}), ACK, 0),
    (answer(200, {"ackIndex": None}), ACK, 0),
    (answer(200, {"ackIndex": 1.0}), RETRY, 2),
    (answer(200, {"ackIndex": 2.0}), ACK, 0),
    # An acknowledgement of all would lose those that failed.
    (answer(200, {"ackIndex": 1.5}), RETRY, 0),
    (answer(200, {"ackIndex": "one"}), RETRY, 0),
    (answer(200, {"ackIndex": True}), RETRY, 0),
    (answer(200, {"ackIndex": [1]}), RETRY, 0),
    (answer(200, reconsume_ack_index=""), RETRY, 0),
    (answer(200, {"ackIndex": 1}, reconsume_ack_index="one"), RETRY, 2),
    (answer(200, {"status": "RECONSUME_LATER", "ackIndex": 1}), RETRY, 0),
    (answer(200, {"ackIndex": 0, "delayLevelWhenNextConsume": -1}), DLQ, 1),
]


@pytest.mark.rule("CC-06", "CC-07", "CC-08", "CC-09", "CC-10")
@pytest.mark.parametrize(("given", "meaning", "acknowledged"), ACK_INDEXES)
def test_a_batch_may_succeed_in_part(given: AppAnswer, meaning: Meaning, acknowledged: int) -> None:
    verdict = judged(given, BATCH, size=3)
    assert (verdict.meaning, verdict.acknowledged) == (meaning, acknowledged)


@pytest.mark.parametrize("dead_letter_on", [(), ("Busy",)])
@pytest.mark.parametrize(
    ("wish", "level", "suspend_ms"),
    [
        ({"retry_after": "120"}, 6, None),
        ({"retry_after": "Tue, 14 Nov 2023 22:13:29 GMT"}, 3, None),
        ({"retry_after": "120", "reconsume_delay_level": "4"}, 4, None),
        ({"reconsume_suspend_ms": "500"}, 0, 500),
    ],
)
def test_the_rest_of_a_batch_waits_as_the_app_asks(
    wish: dict[str, str], level: int, suspend_ms: int | None, dead_letter_on: tuple[str, ...]
) -> None:
    given = answer(200, reconsume_ack_index="1", reconsume_error_type="Busy", **wish)
    verdict = judge(given, BATCH, size=3, now_ms=NOW, policy=lambda: TABLE, dead_letter_on=dead_letter_on)
    assert (verdict.meaning, verdict.level, verdict.suspend_ms, verdict.acknowledged) == (RETRY, level, suspend_ms, 2)


def test_an_ack_index_is_for_batches_alone() -> None:
    assert judged(answer(200, {"ackIndex": -1}), NATIVE).meaning is ACK


CAUSES: list[tuple[AppAnswer, str, str, str | None]] = [
    (answer(500), "the app answered 500", "HTTP 500", None),
    (answer(400, b"no dep_time "), "the app answered 400: no dep_time", "HTTP 400", None),
    (status("DROP"), 'the app answered 200: {"status": "DROP"}', "APP_DROP", None),
    (
        answer(422, {"error": {"type": "app.Late", "message": "too late", "stack": "at line 1"}}),
        *("too late", "app.Late", "at line 1"),
    ),
    (answer(422, {"error": "too late"}), "too late", "HTTP 422", None),
    (
        answer(422, {"error": {"message": "b"}}, reconsume_error_type="T", reconsume_error_message="a%20%E2%82%AC"),
        *("a €", "T", None),
    ),
    (answer(422, reconsume_error_message="100% wrong"), "100% wrong", "HTTP 422", None),
    (answer(422, kne_reason="late", kne_code="7"), "reason: late; code: 7", "HTTP 422", None),
    (answer(422, {"error": {"type": 5, "message": ["x"]}}, b=""), '{"error"', "HTTP 422", None),
]


@pytest.mark.parametrize(("given", "message", "kind", "stack"), CAUSES)
def test_a_dead_letter_says_why(given: AppAnswer, message: str, kind: str, stack: str | None) -> None:
    cause = judged(given).cause
    assert cause is not None
    assert message in cause.message
    assert (cause.exception_class, cause.stacktrace) == (kind, stack)


def test_what_an_app_says_is_cut() -> None:
    given = answer(422, {"error": {"message": "m" * 9_999, "stack": "s" * 9_999}})
    cause = judged(given).cause
    assert cause is not None
    assert (len(cause.message), len(cause.stacktrace or "")) == (1_024, 4_096)
    body = judged(answer(422, b"\xff" * 9_999)).cause
    assert body is not None
    assert len(body.message) < 1_100


def hopeless(code: int = 500, kind: str = "app.Hopeless", **headers: str) -> AppAnswer:
    return answer(code, {"error": {"type": kind, "message": "no dep_time"}}, **headers)


NOT_WORTH_A_RETRY: list[tuple[AppAnswer, Meaning, int]] = [
    (hopeless(), DLQ, -1),
    (hopeless(kind="Hopeless"), DLQ, -1),
    (hopeless(kind="NotHopeless"), RETRY, 0),
    (hopeless(429), DLQ, -1),
    (answer(200, {"status": "RETRY", "error": {"type": "app.Hopeless"}}), DLQ, -1),
    (answer(500, reconsume_error_type="app.Hopeless"), DLQ, -1),
    (answer(501), DLQ, -1),
    (answer(500), RETRY, 0),
    (hopeless(reconsume_delay_level="0"), DLQ, -1),
    # What the app wishes wins.
    (hopeless(reconsume_delay_level="5"), RETRY, 5),
    (hopeless(retry_after="1"), RETRY, 1),
    (hopeless(reconsume_suspend_ms="200"), RETRY, 0),
    # Nothing else becomes a dead letter by its type.
    (hopeless(200), ACK, 0),
    (hopeless(502, retry_after="1"), RETRY, 1),
    (hopeless(404), MISSING, 0),
]


@pytest.mark.parametrize(("given", "meaning", "level"), NOT_WORTH_A_RETRY)
def test_a_type_that_is_listed_makes_a_dead_letter(given: AppAnswer, meaning: Meaning, level: int) -> None:
    verdict = judge(given, NATIVE, size=1, now_ms=NOW, policy=lambda: TABLE, dead_letter_on=("Hopeless", "HTTP 501"))
    assert (verdict.meaning, verdict.level, verdict.one_by_one) == (meaning, level, False)


@pytest.mark.parametrize(
    ("given", "size", "meaning", "one_by_one"),
    [
        (hopeless(), 3, RETRY, True),
        (hopeless(), 1, DLQ, False),
        (hopeless(200, reconsume_ack_index="0"), 3, RETRY, True),
        (hopeless(200, reconsume_ack_index="1"), 3, DLQ, False),
        (hopeless(reconsume_delay_level="-1"), 3, DLQ, False),
        (LATE, 3, RETRY, False),
        (AWAY, 3, HOLD, False),
    ],
)
def test_of_a_batch_nobody_knows_which_it_is(
    given: AppAnswer | NoAnswer, size: int, meaning: Meaning, one_by_one: bool
) -> None:
    verdict = judge(given, BATCH, size=size, now_ms=NOW, policy=lambda: TABLE, dead_letter_on=("app.Hopeless",))
    assert (verdict.meaning, verdict.one_by_one) == (meaning, one_by_one)
