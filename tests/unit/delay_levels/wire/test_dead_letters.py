"""Dead letters tell where they come from and why they failed, in headers of bounded size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Headers, text_property
from reconsume.delay_levels.wire.send_back_copy import Cause, SendBackRequest, Stored, send_back_copy

TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
EXHAUSTED = Stored("flights", "flights/3/42", 16, 0)


def errors_of(stored: Stored, cause: Cause | None = None, headers: Headers = (), level: int = 0) -> dict[str, str]:
    copy = send_back_copy(SendBackRequest("departures", headers, stored, level, cause=cause), TopicNames(), TABLE)
    texts = {name: text_property(copy.headers, name) or "" for name, _ in copy.headers}
    return {
        name.removeprefix("__dlq.errors."): text for name, text in texts.items() if name.startswith("__dlq.errors.")
    }


def test_a_dead_letter_carries_kafkas_own_headers_and_the_exception() -> None:
    assert errors_of(EXHAUSTED, Cause("no dep_time", "builtins.ValueError", "Traceback …")) == {
        "topic": "flights",
        "partition": "3",
        "offset": "42",
        "group": "departures",
        "delivery.count": "17",
        "message": "no dep_time",
        "exception.class": "builtins.ValueError",
        "stacktrace": "Traceback …",
    }


def test_without_a_cause_the_message_is_the_reason() -> None:
    errors = errors_of(EXHAUSTED)
    assert errors["message"] == "sent back 16 times, the maximum is 16"
    assert not {"exception.class", "stacktrace"} & set(errors)


@pytest.mark.parametrize("sent_back", [0, 1, 15])
def test_a_message_that_will_come_again_has_no_error_headers(sent_back: int) -> None:
    old: Headers = [("__dlq.errors.message", b"of an earlier life"), ("__dlq.errors.unknown", b"x")]
    assert errors_of(Stored("flights", "flights/3/42", sent_back, 0), Cause("boom"), old) == {}


def test_a_second_death_replaces_the_errors_of_the_first() -> None:
    old: Headers = [("__dlq.errors.stacktrace", b"old"), ("__dlq.errors.message", b"old")]
    errors = errors_of(EXHAUSTED, Cause("new"), old)
    assert errors["message"] == "new"
    assert "stacktrace" not in errors


@pytest.mark.parametrize(
    ("stored", "topic"),
    [(Stored("flights", "AC1A0A65", 16, 0), "flights"), (Stored(None, "AC1A0A65", 16, 0), None)],
    ids=["topic known", "nothing known"],
)
def test_an_origin_id_of_another_form_is_kept_and_guesses_no_position(stored: Stored, topic: str | None) -> None:
    errors = errors_of(stored)
    assert errors.get("topic") == topic
    assert not {"partition", "offset"} & set(errors)


any_unicode = st.text(st.characters(exclude_categories=()), min_size=1, max_size=20)
long_texts = st.builds(lambda text, times: text * times, any_unicode, st.sampled_from([1, 60, 1_000, 5_000]))


@given(long_texts, st.none() | long_texts, st.none() | long_texts)
def test_error_headers_are_bounded_and_never_half_a_character(
    message: str, exception_class: str | None, stacktrace: str | None
) -> None:
    errors = errors_of(EXHAUSTED, Cause(message, exception_class, stacktrace))
    for name, text, limit in (
        ("message", message, 1024),
        ("exception.class", exception_class, 1024),
        ("stacktrace", stacktrace, 4096),
    ):
        if text is None:
            assert name not in errors
            continue
        whole = text.encode(errors="replace")
        written = errors[name].encode()
        assert whole.startswith(written)
        assert min(len(whole), limit) - 3 <= len(written) <= limit
        assert len(whole) > limit or written == whole


@pytest.mark.parametrize(("text", "length"), [("é" * 512, 1024), ("a" + "é" * 512, 1023), ("€" * 342, 1023)])
def test_the_cut_falls_between_characters(text: str, length: int) -> None:
    assert len(errors_of(EXHAUSTED, Cause(text))["message"].encode()) == length
