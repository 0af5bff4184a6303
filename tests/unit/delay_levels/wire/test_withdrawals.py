"""Withdrawals in memory: found until their time is over, at a fixed cost each, and bounded in all."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire import withdrawals as module
from reconsume.delay_levels.wire.properties import LARGEST
from reconsume.delay_levels.wire.timer import CANCELS_KEPT_MS, LONGEST_DELAY_MS
from reconsume.delay_levels.wire.withdrawals import (
    ID_BYTES,
    MET_KEPT_MS,
    PositionInCancel,
    Withdrawals,
    due_in,
    known_withdrawal,
    requested_withdrawal,
    withdrawal_id,
)

MINUTE_MS = 60_000
NOW = 28_000_000 * MINUTE_MS
IDS = [withdrawal_id(f"k{number}") for number in range(100)]


def forget_all(withdrawals: Withdrawals, now: float) -> set[bytes]:
    """All calls that it takes to look at every id."""
    return {one for _ in range(module._SEGMENTS // module._FORGET_AT_ONCE) for one in withdrawals.forget(now)}


def filled(most: int = 100) -> Withdrawals:
    withdrawals = Withdrawals(most)
    for number, one in enumerate(IDS):
        withdrawals.add(one, NOW + number * MINUTE_MS, NOW)
        withdrawals.add(one, NOW + number * MINUTE_MS, NOW)
    return withdrawals


@pytest.mark.rule("TM-13")
def test_withdrawals_are_forgotten_when_their_messages_cannot_wait_any_more() -> None:
    withdrawals = filled(most=1_000)
    assert (len(withdrawals), IDS[7] in withdrawals, withdrawal_id("other") in withdrawals) == (100, True, False)
    later = NOW + 50 * MINUTE_MS + CANCELS_KEPT_MS
    assert forget_all(withdrawals, later) == set()
    assert (len(withdrawals), IDS[50] in withdrawals, IDS[51] in withdrawals) == (49, False, True)
    withdrawals.add(IDS[0], NOW, later)
    assert IDS[0] not in withdrawals, "its time was over already"


def test_a_withdrawal_costs_the_same_whatever_its_sender_writes() -> None:
    withdrawals, count = Withdrawals(), 100_000
    tracemalloc.start()
    try:
        for number in range(count):
            withdrawals.add(withdrawal_id(f"{number}" + "x" * (100_000 if number % 1_000 == 0 else 0)), NOW, NOW)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(withdrawals) == count
    lists = module._SEGMENTS * 64
    assert held < lists + 24 * count, f"{held / count:.0f} bytes each"


def test_what_is_met_is_forgotten_an_hour_later_and_told_once() -> None:
    withdrawals = filled(most=1_000)
    withdrawals.met(IDS[3], NOW)
    withdrawals.met(withdrawal_id("unknown"), NOW)
    assert forget_all(withdrawals, NOW + MET_KEPT_MS - 1) == set()
    assert IDS[3] in withdrawals, "copies of the message may come"
    assert forget_all(withdrawals, NOW + MET_KEPT_MS) == {IDS[3]}
    assert (IDS[3] in withdrawals, len(withdrawals)) == (False, 99)
    assert forget_all(withdrawals, NOW + MET_KEPT_MS) == set()


def test_what_is_withdrawn_again_stays_for_its_new_moment() -> None:
    withdrawals = filled(most=1_000)
    withdrawals.met(IDS[3], NOW)
    withdrawals.add(IDS[3], NOW + CANCELS_KEPT_MS, NOW + 1)
    assert forget_all(withdrawals, NOW + CANCELS_KEPT_MS) == set()
    assert IDS[3] in withdrawals


def test_memory_that_is_full_takes_no_more_and_keeps_what_it_has() -> None:
    withdrawals, further = filled(), withdrawal_id("further")
    assert (withdrawals.add(further, NOW, NOW), further in withdrawals) == (False, False)
    assert withdrawals.add(IDS[0], NOW, NOW), "it is there already"
    assert all(one in withdrawals for one in IDS)


def test_memory_that_is_nearly_full_forgets_an_hour_after_the_due_moment() -> None:
    withdrawals, further = filled(), withdrawal_id("further")
    forget_all(withdrawals, NOW + 65 * MINUTE_MS)
    assert [one in withdrawals for one in (IDS[5], IDS[6])] == [False, True]
    assert withdrawals.add(further, NOW + 65 * MINUTE_MS, NOW + 65 * MINUTE_MS)
    assert further in withdrawals


SMALL_IDS = st.lists(st.sampled_from([0, 1]), min_size=ID_BYTES - 2, max_size=ID_BYTES - 2).map(
    lambda rest: bytes([0, 0, *rest])
)
STEPS = st.tuples(st.sampled_from(["add", "discard", "met"]), SMALL_IDS, st.integers(0, 3))


@given(st.lists(STEPS, max_size=60))
def test_it_holds_what_a_set_would_hold(steps: list[tuple[str, bytes, int]]) -> None:
    withdrawals, model = Withdrawals(), set[bytes]()
    for step, one, minutes in steps:
        match step:
            case "add":
                # Minutes of zeros and ones, so that bytes of two entries look like an id.
                withdrawals.add(one, minutes * MINUTE_MS, 0)
                model.add(one)
            case "discard":
                withdrawals.discard(one)
                model.discard(one)
            case _:
                withdrawals.met(one, 0)
        assert len(withdrawals) == len(model)
    assert {one for _, one, _ in steps if one in withdrawals} == model


def test_a_request_tells_its_message_and_when_that_is_due() -> None:
    key = ("TIMER_DEL_UNIQKEY", b"k")
    assert requested_withdrawal([key], 5) == (withdrawal_id("k"), 5 + LONGEST_DELAY_MS)
    assert requested_withdrawal([key, ("TIMER_DELIVER_MS", b"7")], 5) == (withdrawal_id("k"), 7)
    assert requested_withdrawal([key, ("TIMER_DELIVER_MS", str(LARGEST).encode())], 5)[1] == 5 + LONGEST_DELAY_MS
    for wrong in ([], [("TIMER_DEL_UNIQKEY", b"")], [("TIMER_DEL_UNIQKEY", None)], [key, ("TIMER_DELIVER_MS", b"-1")]):
        with pytest.raises(MalformedProperty):
            requested_withdrawal(wrong, 5)


@given(st.binary(max_size=20), st.binary(max_size=40))
def test_a_position_comes_out_as_it_went_in_and_anything_else_is_none(key: bytes, value: bytes) -> None:
    position = PositionInCancel(3, "an id", 42)
    assert PositionInCancel.decode(*position.encode()) == position
    assert len(position.encode()[0]) != ID_BYTES
    assert PositionInCancel.decode(key, value) is None


@pytest.mark.parametrize(
    "offset",
    [
        *(
            b"Infinity",
            b"1e999",
            b"NaN",
            b"[" * 200_000,
            b"9" * 5_000,
            b"9223372036854775808",
            b"1e300",
            b"-1",
            b"true",
        ),
        *(b'"7"', b"null"),
    ],
)
def test_a_hostile_position_is_none(offset: bytes) -> None:
    """An error would end each start of the workers' follower, and delayed messages would wait for it."""
    assert PositionInCancel.decode(b"read-0", b'{"topicId":"an id","offset":' + offset + b"}") is None


@pytest.mark.parametrize("key", [b"read-2147483648", b"read--1", b"read-", b"x"])
def test_a_position_of_no_partition_is_none(key: bytes) -> None:
    assert PositionInCancel.decode(key, b'{"topicId":"an id","offset":1}') is None


def test_a_position_of_no_topic_is_none() -> None:
    assert PositionInCancel.decode(b"read-0", b'{"topicId":null,"offset":1}') is None


def test_a_due_moment_is_a_number_of_reasonable_length() -> None:
    assert due_in(known_withdrawal(b"i" * 16, 1_700_000_000_000)[1]) == 1_700_000_000_000
    assert [due_in(value) for value in (b"", b"-1", b"soon", b"9" * 5_000)] == [None] * 4
