"""The few records that are done far above a committed offset, as the text beside it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.progress.done_ahead import encode_done
from reconsume.delay_levels.progress.done_apart import MOST_APART, REACH, decode_either, encode_apart

KAFKA_ALLOWS = 4_096


@given(st.integers(0, 2**62), st.sets(st.integers(0, REACH - 1) | st.integers(0, 1_000), max_size=50))
def test_what_is_written_is_read(offset: int, places: set[int]) -> None:
    done = {offset + place for place in places}
    assert decode_either(offset, encode_apart(offset, done)) == done


@given(st.integers(0, 2**62), st.integers(1, REACH // MOST_APART), st.integers(0, MOST_APART))
def test_as_many_as_may_be_always_fit(offset: int, apart: int, near: int) -> None:
    far = range(offset + REACH - 1, offset, -apart)[: MOST_APART - near]
    assert len(encode_apart(offset, {*far, *range(offset, offset + near)})) <= KAFKA_ALLOWS


@pytest.mark.parametrize("done", [[4], [5 + REACH], range(5, 6 + MOST_APART)], ids=["below", "too far", "too many"])
def test_what_does_not_fit_is_refused(done: list[int]) -> None:
    with pytest.raises(ValueError, match="do not fit beside 5"):
        encode_apart(5, done)


@pytest.mark.parametrize("empty", [None, ""])
def test_no_metadata_means_nothing_is_done(empty: str | None) -> None:
    assert (decode_either(5, empty), encode_apart(5, [])) == (frozenset(), "")


def test_the_other_text_is_read_too() -> None:
    assert decode_either(100, encode_done(100, [101, 109])) == {101, 109}


@pytest.mark.parametrize(
    "text",
    [
        *("x", "apart2:AA==", "apart1:?", "apart1:A", "apart1:gA==", "apart1:" + "gICA" * 4, '{"lag": 3}'),
        *("apart1:gICAgAE=", "apart1:" + base64.b64encode(bytes(751)).decode()),
    ],
)
def test_what_is_damaged_or_somebody_elses_is_malformed(text: str) -> None:
    with pytest.raises(MalformedProperty, match="offset 5 is"):
        decode_either(5, text)
