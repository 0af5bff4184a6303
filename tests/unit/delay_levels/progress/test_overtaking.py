"""Small groups overtake those that fill a partition, each in its own order, as many as can be remembered."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from reconsume.delay_levels.progress.done_apart import MOST_APART, REACH
from reconsume.delay_levels.progress.overtaking import SMALL_PART, Overtaking

Looked = list[tuple[int, str | None]]


def flood(count: int, begin: int = 0) -> Looked:
    return [(begin + number, "flood") for number in range(count)]


def test_ten_of_a_group_overtake_a_flood_of_another() -> None:
    overtaking = Overtaking()
    assert overtaking.choose(flood(5_000), 0) == set()
    few: Looked = [(5_000 + number, "few") for number in range(10)]
    assert overtaking.choose([*few, *flood(90, 5_010)], 0) == set(range(5_000, 5_010))


def test_groups_of_equal_size_stay_in_their_order() -> None:
    assert Overtaking().choose([(number, str(number % 1_000)) for number in range(10_000)], 0) == set()


def test_a_record_for_nobody_never_overtakes() -> None:
    assert Overtaking().choose([*flood(100), (100, None)], 0) == set()


def test_a_group_that_was_left_waits_until_the_head_is_past_what_was_left() -> None:
    overtaking = Overtaking()
    assert overtaking.choose([(0, "a"), (1, "b"), (2, "b")], 0) == set(), "half and half: nobody is small"
    assert overtaking.choose([*flood(100, 3), (103, "a"), (104, "b")], 2) == {103}, "the first of a is done, not of b"
    assert overtaking.choose([*flood(100, 105), (205, "b")], 104) == set()
    assert overtaking.choose([*flood(100, 206), (306, "b")], 206) == {306}


def test_one_group_leaves_places_for_the_next() -> None:
    overtaking = Overtaking()
    many: Looked = [(100_000 + number, "many") for number in range(2_000)]
    chosen = overtaking.choose([*flood(100_000), *many, (102_000, "few")], 0)
    assert chosen == {*range(100_000, 100_000 + MOST_APART // 2), 102_000}
    assert overtaking.choose([(102_001, "few"), (102_002, "many")], 102_000) == {102_001, 102_002}


def test_what_was_done_before_takes_places_until_the_head_is_past_it() -> None:
    overtaking = Overtaking(range(1_000, 1_000 + MOST_APART))
    assert overtaking.choose([*flood(100), (100, "few")], 0) == set()
    assert overtaking.choose([(3_000, "few")], 2_000) == {3_000}


def test_what_is_too_far_away_is_left() -> None:
    assert Overtaking().choose([*flood(100), (REACH - 1, "near"), (REACH, "far")], 0) == {REACH - 1}


def test_a_group_that_was_large_long_ago_is_small_again() -> None:
    overtaking = Overtaking()
    overtaking.choose([(number, "was large") for number in range(10_000)], 0)
    for begin in range(10_000, 2_000_000, 50_000):
        overtaking.choose(flood(50_000, begin), begin)
    assert overtaking.choose([(3_000_000, "was large")], 2_500_000) == {3_000_000}


class Partition:
    """What was looked at, chosen, and how far the head has come."""

    def __init__(self) -> None:
        self.overtaking = Overtaking()
        self.head = self.end = 0
        self.left: dict[str | None, int] = {}
        self.chosen: dict[int, str | None] = {}
        self.counts: Counter[str | None] = Counter()

    def look(self, groups: list[str | None]) -> None:
        looked = list(enumerate(groups, self.end))
        self.end += len(groups)
        self.counts.update(groups)
        found = self.overtaking.choose(looked, self.head)
        for offset, group in looked:
            if offset in found:
                assert self.left.get(group, -1) < self.head, f"{offset} of {group} overtakes one of its own"
                self.chosen[offset] = group
            else:
                self.left[group] = offset
        assert found <= {offset for offset, _ in looked}
        small = sum(self.counts[group] for group in {group for offset, group in looked if offset in found})
        assert small * SMALL_PART <= self.counts.total()
        assert sum(offset >= self.head for offset in self.chosen) <= MOST_APART

    def advance(self, by: int) -> None:
        self.head = min(self.end, self.head + by)


@given(
    st.lists(
        st.lists(st.sampled_from([*"ffffffffff", "g", "h", None]), max_size=300)
        | st.tuples(st.integers(0, 400), st.lists(st.sampled_from(["g", "h", "i"]), max_size=5)).map(
            lambda one: ["f"] * one[0] + one[1]
        )
        | st.integers(0, 500),
        max_size=20,
    )
)
def test_whatever_comes_each_group_keeps_its_order_and_only_small_ones_overtake(
    steps: list[list[str | None] | int],
) -> None:
    partition = Partition()
    for step in steps:
        if isinstance(step, int):
            partition.advance(step)
        else:
            partition.look(step)
