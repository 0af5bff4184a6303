"""What is done above the committed offset: whoever starts there leaves nothing out and repeats nothing."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.progress.done_ahead import LONGEST_SPAN, DoneAhead, decode_done, encode_done


@given(st.integers(0, 2**62), st.sets(st.integers(0, LONGEST_SPAN - 1), max_size=50))
def test_what_is_written_is_read(offset: int, places: set[int]) -> None:
    done = {offset + place for place in places}
    assert decode_done(offset, encode_done(offset, done)) == done


def test_the_longest_text_fits_into_what_kafka_allows() -> None:
    assert len(encode_done(7, range(7, 7 + LONGEST_SPAN))) == 2_674


@pytest.mark.parametrize("offset", [4, 5 + LONGEST_SPAN])
def test_what_is_out_of_reach_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="must be from 5 to"):
        encode_done(5, [offset])


@pytest.mark.parametrize("empty", [None, ""])
def test_no_metadata_means_nothing_is_done(empty: str | None) -> None:
    assert decode_done(5, empty) == frozenset()


@pytest.mark.parametrize(
    "text", ["x", "done2:AA==", "done1:?", "done1:A", '{"lag": 3}', "done1:" + base64.b64encode(bytes(2_001)).decode()]
)
def test_metadata_of_somebody_else_is_malformed(text: str) -> None:
    with pytest.raises(MalformedProperty, match="offset 5 is not ours"):
        decode_done(5, text)


@given(st.data())
def test_however_often_the_owner_changes_each_record_is_done_once(data: st.DataObject) -> None:
    """Records are done in any order; at any moment the partition may go to an owner that knows the commit alone."""
    log = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1, max_size=30), label="offsets with gaps"))
    committed, metadata = 0, ""
    done: list[int] = []
    progress, waiting, unread = DoneAhead(), set[int](), list(log)
    while len(done) < len(log):
        action = data.draw(st.sampled_from(["read", "finish", "another owner"]))
        if action == "read" and unread:
            offset = unread.pop(0)
            if progress.read(offset):
                waiting.add(offset)
        elif action == "finish" and waiting:
            batch = data.draw(st.sets(st.sampled_from(sorted(waiting)), min_size=1))
            committed, metadata = progress.after(batch)
            progress.finish(batch)
            waiting -= batch
            done += batch
            assert all(offset in done for offset in log if offset < committed)
        else:
            progress, waiting = DoneAhead(decode_done(committed, metadata)), set()
            unread = [offset for offset in log if offset >= committed]
            # So that every example ends: whoever comes reads at least one that is not done.
            while unread and not waiting:
                offset = unread.pop(0)
                if progress.read(offset):
                    waiting.add(offset)
            committed, metadata = progress.after(waiting)
            progress.finish(waiting)
            done += waiting
            waiting = set()
    assert sorted(done) == log
