"""What goes beside a committed offset comes back as it was, within Kafka's 4,096 bytes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.progress.metadata import (
    MAX_METADATA_BYTES,
    KeptProgress,
    decode_progress,
    encode_progress,
)
from reconsume.delay_levels.progress.progress import OffsetProgress

OFFSETS = st.integers(0, 2**63 - 1 - 100_000)
ABOVE = st.integers(1, 15_999)


@given(
    OFFSETS,
    st.frozensets(ABOVE, max_size=300),
    st.dictionaries(st.integers(0, 15_999), st.integers(1, 10**6), max_size=40),
)
def test_what_is_kept_comes_back(offset: int, done: frozenset[int], failures: dict[int, int]) -> None:
    kept = KeptProgress(frozenset(offset + one for one in done), {offset + one: n for one, n in failures.items()})
    text = encode_progress(offset, kept.done, kept.failures)
    assert len(text) <= MAX_METADATA_BYTES
    assert text.isascii()
    assert decode_progress(offset, text) == kept


@given(st.frozensets(ABOVE, min_size=1), st.integers(500, 1_000), st.integers(1, 9), st.integers(0))
def test_it_never_grows_over_kafkas_limit_and_keeps_the_highest_counts(
    done: frozenset[int], many: int, digits: int, seed: int
) -> None:
    chosen = Random(seed)
    failures = {chosen.randrange(10**9): chosen.randrange(1, 10**digits + 1) for _ in range(many)}
    text = encode_progress(0, done, failures)
    assert len(text) <= MAX_METADATA_BYTES
    kept = decode_progress(0, text)
    assert kept.done == done, "what is done goes first: its loss would repeat a message"
    lost = [times for one, times in failures.items() if one not in kept.failures]
    # A long entry may not fit where a shorter one of a lower count still does.
    assert not kept.failures or not lost or max(kept.failures.values()) >= max(lost)
    assert kept.failures.items() <= failures.items()


def test_nothing_to_keep_is_an_empty_text_as_other_clients_write_it() -> None:
    assert encode_progress(7, [], {}) == ""
    assert decode_progress(7, "") == decode_progress(7, None) == KeptProgress()


def test_the_text_is_what_the_page_says() -> None:
    assert encode_progress(7, [9], {7: 3}) == "done1:BA==;failed1:0=3"
    assert encode_progress(7, [], {7: 3, 9: 1}) == ";failed1:0=3,2=1"


def test_what_lies_too_far_above_is_left_out() -> None:
    assert decode_progress(0, encode_progress(0, [5, 10**6], {})).done == {5}


def test_a_count_below_the_offset_is_of_a_finished_record() -> None:
    assert encode_progress(7, [], {6: 3}) == ""


@pytest.mark.parametrize("text", ["checkpoint-42", "done2:AAAA", ";failed1:x", "done1:AA==;failed1:1=", "done1:!"])
def test_a_text_of_another_client_is_refused(text: str) -> None:
    with pytest.raises(MalformedProperty):
        decode_progress(7, text)


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.data())
def test_who_starts_again_with_it_begins_what_was_unfinished_and_nothing_else(
    finished: list[bool], data: st.DataObject
) -> None:
    """Over two lives: the second may finish some more before the third."""
    progress = OffsetProgress()
    for offset in range(len(finished)):
        assert progress.begin(offset)
    done = {offset for offset, one in enumerate(finished) if one}
    for _ in range(2):
        for offset in done:
            progress.finish(offset)
        after = progress.after()
        assert after is not None
        safe, ahead = after
        kept = decode_progress(safe, encode_progress(safe, ahead, {}))
        progress = OffsetProgress(kept.done)
        begun = {offset for offset in range(safe, len(finished)) if progress.begin(offset)}
        assert begun == set(range(len(finished))) - done
        if not begun:
            break
        done |= data.draw(st.frozensets(st.sampled_from(sorted(begun))))
