"""An app that is away: one probe at a time, a pause that doubles, and all go on with its first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reconsume.consumers.outcomes import NotNow
from reconsume.consumers.sidecar.push.app_gate import AppGate
from reconsume.consumers.sidecar.push.missing_routes import MissingRoutes
from tests.unit.consumers.doubles import Clock

PLACE = ("flights", 0, 7)


def gated(steps: Callable[[AppGate, Clock], Awaitable[None]]) -> None:
    clock = Clock()
    asyncio.run(steps(AppGate("departures", clock), clock))  # type: ignore[arg-type]  # all of these are coroutines


def test_while_the_app_answers_nobody_waits() -> None:
    async def steps(gate: AppGate, _clock: Clock) -> None:
        assert [await gate.enter() for _ in range(3)] == [False] * 3
        assert gate.down_since is None

    gated(steps)


def test_a_pause_of_100_ms_doubles_with_each_probe_up_to_5_s() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        assert gate.is_away("refused", probe=False).until_ms == 100
        pauses = []
        for _ in range(8):
            clock.now = gate._next_probe
            assert await gate.enter()
            pauses.append(gate.is_away("refused", probe=True).until_ms - clock.now)
            gate.leave(probe=True)
        assert pauses == [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
        assert gate.down_since == 0

    gated(steps)


def test_those_that_were_under_way_when_it_went_do_not_lengthen_the_pause() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 50
        assert [gate.is_away("refused", probe=False).until_ms for _ in range(9)] == [100] * 9
        with pytest.raises(NotNow) as told:
            await gate.enter()
        assert told.value.until_ms == 100

    gated(steps)


def test_one_tries_it_and_the_others_wait_for_what_comes_of_it() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 100
        assert await gate.enter()
        waiting = [asyncio.ensure_future(gate.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        gate.answered()
        gate.leave(probe=True)
        assert await asyncio.gather(*waiting) == [False] * 3

    gated(steps)


def test_a_probe_that_fails_sends_the_others_away_too() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 100
        assert await gate.enter()
        waiting = asyncio.ensure_future(gate.enter())
        await asyncio.sleep(0)
        gate.is_away("refused", probe=True)
        gate.leave(probe=True)
        with pytest.raises(NotNow):
            await waiting

    gated(steps)


def test_a_probe_without_an_outcome_is_followed_by_another() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 100
        assert await gate.enter()
        gate.leave(probe=True)
        assert await gate.enter()

    gated(steps)


def test_an_answer_to_one_that_was_under_way_opens_it_for_all() -> None:
    async def steps(gate: AppGate, _clock: Clock) -> None:
        gate.is_away("reset", probe=False)
        gate.answered()
        assert not await gate.enter()
        assert gate.is_away("reset", probe=False).until_ms == 100, "and the pauses begin anew"

    gated(steps)


def test_only_the_apps_own_probe_makes_a_red_app_green() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.turned_red("GET /healthz failed 3 times")
        clock.now = 60_000
        with pytest.raises(NotNow):
            await gate.enter()
        gate.answered()
        assert gate.down_since == 0
        gate.turned_green()
        assert not await gate.enter()

    gated(steps)


def test_a_404_is_held_until_the_message_has_had_nothing_else_for_the_grace() -> None:
    missing = MissingRoutes(1_000)
    assert missing.missing("/a", PLACE, 0) == 250
    missing.found("/a", ("flights", 0, 8))
    assert missing.missing("/a", PLACE, 600) == 1_000, "never beyond the grace"
    assert missing.missing("/a", PLACE, 1_000) is None


def test_a_route_that_stays_away_holds_the_next_messages_no_longer() -> None:
    missing = MissingRoutes(1_000)
    missing.missing("/a", PLACE, 0)
    assert missing.missing("/a", ("flights", 0, 8), 1_000) is None
    assert missing.missing("/b", ("flights", 0, 8), 1_000) is not None


def test_a_404_of_another_time_is_forgotten() -> None:
    missing = MissingRoutes(1_000)
    missing.missing("/a", PLACE, 0)
    assert missing.missing("/a", ("flights", 0, 8), 60_000) is not None
    assert missing.missing("/a", PLACE, 60_001) is not None
    assert len(missing._messages) == 2


def test_an_answer_ends_the_hold_of_message_and_route() -> None:
    missing = MissingRoutes(1_000)
    missing.missing("/a", PLACE, 0)
    missing.found("/a", PLACE)
    assert missing.missing("/a", PLACE, 1_500) is not None


def test_without_a_grace_a_404_is_an_answer_at_once() -> None:
    assert MissingRoutes(0).missing("/a", PLACE, 5) is None
