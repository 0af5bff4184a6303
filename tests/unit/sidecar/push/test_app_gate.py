"""An app that is away: one probe at a time, a pause that doubles, and all go on with its first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reconsume.consumers.listener import NotNow
from reconsume.sidecar.push.app_gate import AppGate, CutOffs, Entry, MissingRoutes
from tests.unit.consumers.doubles import Clock

PLACE = ("flights", 0, 7)
OPEN, PROBE = Entry(probe=False, alone=False), Entry(probe=True, alone=True)


async def until_idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def cut_off(gate: AppGate, message_id: str, entry: Entry) -> bool:
    """A delivery that entered is cut off, and leaves."""
    gate.is_away("cut off", probe=entry.probe)
    found = gate.cut_off(message_id, alone=entry.alone)
    gate.leave(entry)
    return found


async def answers_another(gate: AppGate, clock: Clock) -> None:
    """The app is back, and answers a good message as the probe."""
    clock.now = gate._next_probe
    entry = await gate.enter("good")
    assert entry.probe
    gate.answered("good")
    gate.leave(entry)


def gated(steps: Callable[[AppGate, Clock], Awaitable[None]]) -> None:
    clock = Clock()
    asyncio.run(steps(AppGate("departures", clock), clock))  # type: ignore[arg-type]  # all of these are coroutines


def test_while_the_app_answers_nobody_waits() -> None:
    async def steps(gate: AppGate, _clock: Clock) -> None:
        assert [await gate.enter("good") for _ in range(3)] == [OPEN] * 3
        assert gate.down_since is None

    gated(steps)


def test_a_pause_of_100_ms_doubles_with_each_probe_up_to_5_s() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        assert gate.is_away("refused", probe=False).until_ms == 100
        pauses = []
        for _ in range(8):
            clock.now = gate._next_probe
            assert await gate.enter("good") == PROBE
            pauses.append(gate.is_away("refused", probe=True).until_ms - clock.now)
            gate.leave(PROBE)
        assert pauses == [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
        assert gate.down_since == 0

    gated(steps)


def test_those_that_were_under_way_when_it_went_do_not_lengthen_the_pause() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 50
        assert [gate.is_away("refused", probe=False).until_ms for _ in range(9)] == [100] * 9
        with pytest.raises(NotNow) as told:
            await gate.enter("good")
        assert told.value.until_ms == 100

    gated(steps)


def test_one_tries_it_and_the_others_wait_for_what_comes_of_it() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 100
        assert await gate.enter("good") == PROBE
        waiting = [asyncio.ensure_future(gate.enter("good")) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        gate.answered()
        gate.leave(PROBE)
        assert await asyncio.gather(*waiting) == [OPEN] * 3

    gated(steps)


def test_a_probe_that_fails_sends_the_others_away_too() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 100
        assert await gate.enter("good") == PROBE
        waiting = asyncio.ensure_future(gate.enter("good"))
        await asyncio.sleep(0)
        gate.is_away("refused", probe=True)
        gate.leave(PROBE)
        with pytest.raises(NotNow):
            await waiting

    gated(steps)


def test_a_probe_without_an_outcome_is_followed_by_another() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = 100
        assert await gate.enter("good") == PROBE
        gate.leave(PROBE)
        assert await gate.enter("good") == PROBE

    gated(steps)


def test_an_answer_to_one_that_was_under_way_opens_it_for_all() -> None:
    async def steps(gate: AppGate, _clock: Clock) -> None:
        gate.is_away("reset", probe=False)
        gate.answered()
        assert await gate.enter("good") == OPEN
        assert gate.is_away("reset", probe=False).until_ms == 100, "and the pauses begin anew"

    gated(steps)


def test_only_the_apps_own_probe_makes_a_red_app_green() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.turned_red("GET /healthz failed 3 times")
        clock.now = 60_000
        with pytest.raises(NotNow):
            await gate.enter("good")
        gate.answered()
        assert gate.down_since == 0
        gate.turned_green()
        assert await gate.enter("good") == OPEN

    gated(steps)


def test_an_outage_that_no_delivery_probes_is_forgotten_and_the_next_one_begins_anew() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("refused", probe=False)
        clock.now = gate._next_probe + 10_000
        probe = await gate.enter("good")
        clock.now += 60_000
        assert (probe.probe, gate.down_since) == (True, 0), "it is being probed"
        gate.leave(probe)
        assert gate.down_since is None
        gate.turned_red("GET /healthz failed 3 times")
        assert gate.down_since == clock.now

    gated(steps)


def test_a_message_that_was_cut_off_twice_goes_alone_and_the_others_wait() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        for _ in range(2):
            assert not cut_off(gate, "bad", await gate.enter("bad"))
            await answers_another(gate, clock)
        busy = await gate.enter("good")
        alone = asyncio.ensure_future(gate.enter("bad"))
        await until_idle()
        later = asyncio.ensure_future(gate.enter("good"))
        await until_idle()
        assert not alone.done(), "the app has another request"
        gate.leave(busy)
        await until_idle()
        assert await alone == Entry(probe=False, alone=True)
        await until_idle()
        assert not later.done()
        gate.answered("bad")
        gate.leave(alone.result())
        assert await later == OPEN
        assert await gate.enter("bad") == OPEN, "it was answered, so nothing is held against it"

    gated(steps)


def test_a_message_that_alone_ends_the_app_is_a_failed_attempt_when_others_were_answered() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        found = []
        for _ in range(6):
            found.append(cut_off(gate, "bad", await gate.enter("bad")))
            await answers_another(gate, clock)
        assert found == [False, False, False, True, True, True], "twice with others, twice alone, then each time"

    gated(steps)


def test_an_app_that_answers_nothing_counts_against_no_message() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        for _ in range(50):
            clock.now = gate._next_probe + 500
            assert not cut_off(gate, "bad", await gate.enter("bad"))

    gated(steps)


def test_one_that_ends_the_app_leaves_the_probe_to_the_others() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        for _ in range(2):
            clock.now = gate._next_probe + 500
            cut_off(gate, "bad", await gate.enter("bad"))
        clock.now = gate._next_probe
        with pytest.raises(NotNow) as told:
            await gate.enter("bad")
        assert told.value.until_ms == clock.now + 500
        assert (await gate.enter("good")).probe

    gated(steps)


def test_one_whose_probe_a_proxy_answered_leaves_the_next_one_to_the_others() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        gate.is_away("a proxy answered 503", probe=False, refused="bad")
        clock.now = 100
        probe = await gate.enter("bad")
        assert probe.probe, "all that were under way got such an answer"
        clock.now = gate.is_away("a proxy answered 503", probe=True, refused="bad").until_ms
        gate.leave(probe)
        with pytest.raises(NotNow) as told:
            await gate.enter("bad")
        assert told.value.until_ms == clock.now + 500
        other = await gate.enter("good")
        assert other.probe
        gate.answered("good")
        gate.leave(other)
        gate.is_away("a proxy answered 503", probe=False)
        clock.now = gate._next_probe
        assert (await gate.enter("bad")).probe, "an answer forgets it"

    gated(steps)


def test_it_remembers_only_so_many() -> None:
    cut_offs = CutOffs()
    for number in range(1_001):
        cut_offs.refused(str(number))
    assert (cut_offs.yields("0"), cut_offs.yields("1")) == (False, True)


def test_the_apps_own_probe_counts_as_an_answer_to_another() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        found = []
        for _ in range(4):
            clock.now = gate._next_probe + 500
            found.append(cut_off(gate, "bad", await gate.enter("bad")))
            gate.turned_green()
        assert found == [False, False, False, True]

    gated(steps)


def test_one_that_is_cut_short_while_it_waits_to_be_alone_lets_the_others_in() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        for _ in range(2):
            cut_off(gate, "bad", await gate.enter("bad"))
            await answers_another(gate, clock)
        busy = await gate.enter("good")
        alone = asyncio.ensure_future(gate.enter("bad"))
        await until_idle()
        alone.cancel()
        await until_idle()
        assert await gate.enter("good") == OPEN
        gate.leave(busy)

    gated(steps)


def test_an_app_that_goes_while_one_waits_to_be_alone_is_tried_as_ever() -> None:
    async def steps(gate: AppGate, clock: Clock) -> None:
        for _ in range(2):
            cut_off(gate, "bad", await gate.enter("bad"))
            await answers_another(gate, clock)
        busy = await gate.enter("good")
        alone = asyncio.ensure_future(gate.enter("bad"))
        await until_idle()
        cut_off(gate, "good", busy)
        with pytest.raises(NotNow):
            await alone
        clock.now = gate._next_probe
        assert (await gate.enter("good")).probe

    gated(steps)


def test_what_is_known_of_cut_offs_is_bounded() -> None:
    known = CutOffs()
    for number in range(5_000):
        known.cut_off(str(number), alone=False)
    assert len(known._seen) == 1_000
    assert "4999" in known._seen


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
    assert missing._asked.keys() == {"/a", PLACE, ("flights", 0, 8)}


def test_an_answer_ends_the_hold_of_message_and_route() -> None:
    missing = MissingRoutes(1_000)
    missing.missing("/a", PLACE, 0)
    missing.found("/a", PLACE)
    assert missing.missing("/a", PLACE, 1_500) is not None


def test_without_a_grace_a_404_is_an_answer_at_once() -> None:
    assert MissingRoutes(0).missing("/a", PLACE, 5) is None
