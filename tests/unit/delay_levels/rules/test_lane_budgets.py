"""What counts as a flood of a delay topic, and for how long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.rules.lane_budgets import BURST, MOST_BUCKETS, PER_SECOND, LaneBudgets

LANE = "reconsume.DELAY.10s"


@pytest.fixture
def switches() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


_REFILLED_MS = BURST / PER_SECOND * 1_000


def _write(budgets: LaneBudgets, target: str, records: int, now_ms: float = 0.0, lane: str = LANE) -> int:
    """How many of these records are a flood."""
    return sum(budgets.is_flood(lane, target, now_ms) for _ in range(records))


def test_a_burst_is_within_the_budget_and_what_follows_is_not() -> None:
    budgets = LaneBudgets()
    assert _write(budgets, "orders", BURST) == 0
    assert _write(budgets, "orders", 1_000) == 1_000


def test_targets_and_lanes_have_budgets_of_their_own() -> None:
    budgets = LaneBudgets()
    _write(budgets, "orders", 2 * BURST)
    assert _write(budgets, "payments", BURST) == 0
    assert _write(budgets, "orders", BURST, lane="reconsume.DELAY.30s") == 0


def test_a_steady_stream_within_the_rate_is_no_flood() -> None:
    budgets = LaneBudgets()
    step_ms = 1_000 / PER_SECOND
    assert not any(budgets.is_flood(LANE, "orders", number * step_ms) for number in range(20 * BURST))


def test_a_flood_ends_when_the_target_was_quiet_for_the_time_of_a_burst() -> None:
    budgets = LaneBudgets()
    _write(budgets, "orders", 2 * BURST)
    assert budgets.is_flood(LANE, "orders", _REFILLED_MS - 20)
    assert not budgets.is_flood(LANE, "orders", 2 * _REFILLED_MS)
    assert _write(budgets, "orders", BURST - 1, 2 * _REFILLED_MS) == 0


def test_a_trickle_behind_a_flood_lets_it_end() -> None:
    budgets = LaneBudgets()
    _write(budgets, "orders", 2 * BURST)
    floods = [budgets.is_flood(LANE, "orders", second * 1_000.0) for second in range(1, 20)]
    assert floods == sorted(floods, reverse=True)
    assert not floods[-1]


@given(st.lists(st.floats(0, 10_000), max_size=2_000))
def test_no_more_than_the_burst_and_the_rate_goes_beside_the_flood(gaps_ms: list[float]) -> None:
    budgets, now, normal = LaneBudgets(), 0.0, 0
    for gap in gaps_ms:
        now += gap
        normal += not budgets.is_flood(LANE, "orders", now)
    assert normal <= BURST + now * PER_SECOND / 1_000 + 1


@pytest.mark.parametrize("later_ms", [0.0, _REFILLED_MS])
def test_memory_is_bounded_and_targets_beyond_it_count_as_floods(later_ms: float) -> None:
    budgets = LaneBudgets()
    for number in range(MOST_BUCKETS):
        assert not budgets.is_flood(LANE, f"target-{number}", 0.0)
    assert budgets.is_flood(LANE, "one more", later_ms) == (later_ms == 0.0)


@pytest.mark.usefixtures("switches")
def test_threads_that_share_a_budget_write_no_more_than_it() -> None:
    budgets = LaneBudgets()
    with ThreadPoolExecutor(4) as pool:
        floods = pool.map(lambda _: _write(budgets, "orders", 20_000), range(4))
        assert sum(floods) == 80_000 - BURST


@pytest.mark.usefixtures("switches")
def test_targets_are_forgotten_while_other_threads_add_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.delay_levels.rules.lane_budgets.MOST_BUCKETS", 100)
    budgets = LaneBudgets()

    def write(thread: int) -> None:
        for number in range(3_000):
            budgets.is_flood(LANE, f"{thread}-{number}", number * 10.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(budgets._buckets) <= 100


def test_a_clock_that_goes_back_gives_no_room() -> None:
    budgets = LaneBudgets()
    _write(budgets, "orders", 2 * BURST, now_ms=1_000_000.0)
    assert budgets.is_flood(LANE, "orders", 0.0)
