"""What a dead letter tells, whether it may be sent again, and what is sent then."""

from __future__ import annotations

import pytest

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.resend import (
    REASONS,
    DeadLetterInfo,
    History,
    Replayed,
    message_id_of,
    replayed_of,
    resend_headers,
    resend_status,
)
from reconsume.delay_levels.wire.send_back_copy import Cause, Position, SendBackRequest, Stored, send_back_copy

STANDS = Position("reconsume.DLQ.g", 0, 17)
HERE = (1_000, 0, 17)


def died(**more: bytes | None) -> list[Header]:
    """As the send-back rule writes it, with what else is given."""
    request = SendBackRequest(
        "g",
        [("user", b"\xff"), ("user", None)],
        Stored("flights", "flights/3/42", 16, 1_700_000_000_000),
        0,
        cause=Cause("no dep_time", "builtins.ValueError", "Traceback …"),
    )
    table: RetryPolicy = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
    copy = send_back_copy(request, TopicNames(), table)
    return [*copy.headers, *more.items()]


def info(headers: list[Header]) -> DeadLetterInfo:
    return DeadLetterInfo.of("g", STANDS, headers)


def test_what_the_send_back_rule_wrote_is_read() -> None:
    assert info(died()) == DeadLetterInfo(
        "g",
        "flights/3/42",
        "flights",
        17,
        "no dep_time",
        "builtins.ValueError",
        "Traceback …",
        1_700_000_000_000,
        None,
        None,
        0,
    )


def test_one_without_headers_is_known_by_where_it_stands() -> None:
    letter = info([])
    assert letter.origin_message_id == "reconsume.DLQ.g/0/17"
    assert (letter.origin_topic, letter.attempt, letter.cause, letter.malformed) == (None, None, None, ())


@pytest.mark.parametrize("value", [b"flights/3/42", b"", None, b"\xff"])
def test_the_message_id_alone_is_that_of_the_whole_letter(value: bytes | None) -> None:
    headers: list[Header] = [("ORIGIN_MESSAGE_ID", b"earlier"), ("ORIGIN_MESSAGE_ID", value)]
    assert message_id_of(STANDS, headers) == info(headers).origin_message_id
    assert message_id_of(STANDS, []) == info([]).origin_message_id


def test_what_cannot_be_read_is_named_and_nothing_fails() -> None:
    letter = info([("RECONSUME_TIME", b"many"), ("REPLAY_TIMES", b"-1"), ("__dlq.errors.message", b"\xff")])
    assert set(letter.malformed) == {"RECONSUME_TIME", "REPLAY_TIMES", "__dlq.errors.message"}
    assert (letter.attempt, letter.replay_times, letter.cause) == (None, 0, None)


@pytest.mark.parametrize("name", ["RECONSUME_TIME", "REPLAY_TIMES", "BORN_TIMESTAMP", "FIRST_FAILURE_TIMESTAMP"])
def test_a_number_that_an_index_cannot_hold_is_malformed(name: str) -> None:
    """SQLite and Parquet have 64 bits; one dead letter must not end an index of all of them."""
    assert info([(name, b"9223372036854775807")]).malformed == ()
    assert info([(name, b"9223372036854775808")]).malformed == (name,)


@pytest.mark.parametrize(
    ("headers", "history", "status"),
    [
        ({}, History(HERE), "send"),
        ({}, History((1_001, 0, 3)), "superseded"),
        ({}, History((1_000, 0, 18)), "superseded"),
        ({}, History(HERE, 1, 999), "send"),
        ({}, History(HERE, 1, 1_000), "replayed"),
        ({}, History(HERE, 2), "capped"),
        ({"REPLAY_TIMES": b"2"}, History(HERE), "capped"),
        ({"REPLAY_TIMES": b"1"}, History(HERE), "send"),
        ({"REPLAY_TIMES": b"many"}, History(HERE), "damaged"),
        ({"ORIGIN_MESSAGE_ID": b"\xff"}, History(HERE), "damaged"),
        ({"RECONSUME_TIME": b"many"}, History(HERE), "send"),
    ],
)
def test_whether_it_may_be_sent_again(headers: dict[str, bytes], history: History, status: str) -> None:
    assert resend_status(info(died(**headers)), HERE, history, 2) == status
    assert status in REASONS


def test_a_message_s_history_grows_by_what_is_seen_of_it() -> None:
    history = History(HERE)
    history.add_dead_letter((900, 0, 3), 1)
    history.add_replay(950, 1)
    history.add_replay(940, 2)
    assert history == History(HERE, 2, 950)


def test_the_copy_has_the_user_s_headers_and_all_its_attempts_again() -> None:
    headers = died(MAX_RECONSUME_TIMES=b"3", REPLAY_ID=b"friday", REPLAY_TIMES=b"1")
    copy = resend_headers(headers, info(headers), "saturday", 1)
    assert list(copy[:2]) == [("user", b"\xff"), ("user", None)]
    assert dict(copy[2:]) == {
        "RETRY_TOPIC": b"flights",
        "MAX_RECONSUME_TIMES": b"3",
        "BORN_TIMESTAMP": b"1700000000000",
        "ORIGIN_MESSAGE_ID": b"flights/3/42",
        "REAL_TOPIC": b"%RETRY%g",
        "RECONSUME_TIME": b"0",
        "DELAY": b"0",
        "REPLAY_ID": b"saturday",
        "REPLAY_TIMES": b"2",
    }
    assert replayed_of(copy) == Replayed("flights/3/42", 1_700_000_000_000, "%RETRY%g", 2)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("REPLAY_ID", b"friday")],
        [("REPLAY_ID", b"x"), ("ORIGIN_MESSAGE_ID", b"a/0/1"), ("REAL_TOPIC", b"%DLQ%g"), ("RECONSUME_TIME", b"3")],
        [("REPLAY_ID", b"x"), ("ORIGIN_MESSAGE_ID", b"a/0/1"), ("REAL_TOPIC", b"t"), ("REPLAY_TIMES", b"many")],
    ],
)
def test_other_records_are_no_replays(headers: list[Header]) -> None:
    assert replayed_of(headers) is None
