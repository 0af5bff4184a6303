"""How many messages of a batch a listener's result acknowledges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.consumers.listener import (
    ALL,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    acknowledged_count,
)
from reconsume.consumers.message import MessageQueue
from reconsume.delay_levels.errors import IllegalSetting

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


@pytest.mark.rule("CC-04")
def test_the_two_statuses_mean_all_and_none() -> None:
    assert acknowledged_count(SUCCESS, ALL, 3) == 3
    assert acknowledged_count(LATER, ALL, 3) == 0


@pytest.mark.rule("CC-05")
def test_a_context_begins_with_the_whole_batch_and_no_wish() -> None:
    context = ConsumeConcurrentlyContext(MessageQueue("flights", 0))
    assert (context.ack_index, context.delay_level_when_next_consume) == (2**31 - 1, 0)


@pytest.mark.rule("CC-06", "T-14")
@pytest.mark.parametrize("ack_index", [2, 3, 100, ALL])
def test_an_ack_index_beyond_the_batch_is_its_end(ack_index: int) -> None:
    assert acknowledged_count(SUCCESS, ack_index, 3) == 3


@pytest.mark.rule("CC-07", "T-13")
@pytest.mark.parametrize(("ack_index", "acknowledged"), [(0, 1), (1, 2), (3, 4)])
def test_what_comes_after_the_ack_index_failed(ack_index: int, acknowledged: int) -> None:
    assert acknowledged_count(SUCCESS, ack_index, 5) == acknowledged


@pytest.mark.rule("CC-08", "T-14")
def test_minus_one_with_success_means_that_all_failed() -> None:
    assert acknowledged_count(SUCCESS, -1, 3) == 0


@pytest.mark.rule("CC-09", "T-14")
@pytest.mark.parametrize("ack_index", [-2, -(2**31)])
def test_an_ack_index_below_minus_one_is_an_error_that_says_what_to_write(ack_index: int) -> None:
    with pytest.raises(IllegalSetting, match=rf"ack_index is {ack_index}; use -1 to send .* back, 2 or more"):
        acknowledged_count(SUCCESS, ack_index, 3)


@pytest.mark.rule("CC-10", "T-13")
@given(st.integers(), st.integers(1, 1_024))
def test_with_reconsume_later_the_ack_index_is_ignored(ack_index: int, size: int) -> None:
    assert acknowledged_count(LATER, ack_index, size) == 0


@pytest.mark.rule("CC-02")
def test_no_status_is_a_failure() -> None:
    assert acknowledged_count(None, ALL, 3) == 0


@pytest.mark.parametrize("status", [True, False, "CONSUME_SUCCESS", 0, object])
def test_anything_else_is_an_error_that_names_the_two_statuses(status: object) -> None:
    with pytest.raises(IllegalSetting, match=r"the listener returned .*; return .*CONSUME_SUCCESS or RECONSUME_LATER"):
        acknowledged_count(status, ALL, 1)


@pytest.mark.rule("CC-06", "CC-07", "CC-08")
@given(st.integers(-1, 2**31 - 1), st.integers(1, 1_024))
def test_success_acknowledges_a_part_from_the_front(ack_index: int, size: int) -> None:
    assert acknowledged_count(SUCCESS, ack_index, size) == len(range(size)[: ack_index + 1])
