"""A seed is a schedule."""

from __future__ import annotations

from tests.chaos.schedule import Action, schedule


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert schedule(7, 20) == schedule(7, 20)
    assert len({tuple(schedule(seed, 20)) for seed in range(50)}) == 50


def test_five_rounds_have_every_action() -> None:
    for seed in range(50):
        rounds = schedule(seed, 10)
        assert {one.action for one in rounds[:5]} == {one.action for one in rounds[5:]} == set(Action)
