"""Values of user code are looked at without running into what they raise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import (
    checked_headers,
    plain_text,
    regular_expression,
    shown,
    type_name,
    whole_number,
)
from reconsume.delay_levels.wire.send_back_copy import Cause
from tests.support.slips import Hostile, Mute, Poisoned, Text


class Seven:
    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("value", "number"), [(0, 0), (-1, -1), (2**31, 2**31 - 1), (-(2**40), -(2**31)), (Seven(), 7)]
)
def test_what_counts_as_an_int_is_one(value: object, number: int) -> None:
    assert whole_number(value, "level") == number
    assert type(whole_number(value, "level")) is int


@pytest.mark.parametrize("make", [type(None), str, float, bool, bytes, Hostile])
def test_anything_else_is_refused_with_its_type(make: Callable[[], object]) -> None:
    with pytest.raises(IllegalSetting, match=rf"^level must be an int, got {type_name(type(make()))}$"):
        whole_number(make(), "level")


def test_a_text_is_a_plain_one_or_none() -> None:
    for text in (plain_text(lambda: Text("a text")), plain_text(lambda: Text("a text"), 1_000)):
        assert type(text) is str
        assert text == "a text"
    assert plain_text(lambda: str(Mute())) == ""
    assert plain_text(lambda: "x" * 10, 3) == "xxx"


@given(st.text(st.characters()))
def test_every_text_fits_utf_8(text: str) -> None:
    told = plain_text(lambda: text)
    assert told.encode()[:10_000] == text.encode(errors="replace")[:10_000]


def test_a_value_is_shown_in_a_few_words() -> None:
    assert (shown(None), shown("a"), shown(Hostile())) == ("None", "'a'", "an object of type Hostile")
    assert len(shown("x" * 10_000)) == 200


def test_the_cause_of_an_exception_is_told_whatever_it_does() -> None:
    class Named(type):
        def __getattribute__(cls, name: str) -> object:
            raise SystemExit(1)

    class Nameless(Exception, metaclass=Named):
        """Its type cannot be asked for its name."""

    cause = Cause.of(Nameless("no dep_time"))
    assert (cause.message, cause.exception_class) == ("no dep_time", "Nameless")
    assert Cause.of(Mute()).message == "Mute, whose __str__ raised TypeError"
    assert Cause.of(ValueError()).message == "ValueError"
    assert Cause.of(ValueError("\ud800")).message == "?"
    cause = Cause.of(Poisoned())
    assert (cause.message, cause.stacktrace) == ("poisoned", None)


def test_the_cause_of_an_exception_is_bounded() -> None:
    cause = Cause.of(ValueError("x" * 1_000_000))
    assert cause.stacktrace is not None
    assert (len(cause.message), len(cause.stacktrace)) == (16_384, 16_384)


def test_a_name_that_the_client_would_cut_is_refused() -> None:
    with pytest.raises(IllegalSetting, match="cuts a name at a NUL; leave it out"):
        checked_headers([("trace\0x", b"1")])


@pytest.mark.parametrize("text", ["(", "a{99999999999999999999}", "(" * 3_000 + ")" * 3_000])
def test_what_is_no_regular_expression_is_told(text: str) -> None:
    with pytest.raises(IllegalSetting, match=r"^pattern '.* is not a regular expression: "):
        regular_expression(text, "pattern")
