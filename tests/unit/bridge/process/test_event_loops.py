"""Event loops, asked and told from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from reconsume.bridge.process.event_loops import future_of, takes_turns
from tests.support.waiting import PATIENCE, wait_until


def test_a_loop_that_runs_hangs_goes_on_and_ends() -> None:
    loop, hangs, go_on = asyncio.new_event_loop(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(PATIENCE)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert takes_turns(loop, 60)
        loop.call_soon_threadsafe(hang)
        wait_until(hangs.is_set, "it hangs")
        assert not takes_turns(loop, 0.1)
        go_on.set()
        assert takes_turns(loop, 60)
    finally:
        go_on.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
    assert not takes_turns(loop, 60)


@pytest.mark.parametrize("result", ["done", ValueError("refused")])
def test_a_call_tells_its_result_from_another_thread(result: str | Exception) -> None:
    def begin(tell: Callable[[str | Exception], None]) -> None:
        for _ in range(2):  # the second one comes too late
            threading.Thread(target=tell, args=(result,)).start()

    async def ask() -> str:
        return await future_of(begin)

    if isinstance(result, str):
        assert asyncio.run(ask()) == result
    else:
        with pytest.raises(ValueError, match="refused"):
            asyncio.run(ask())


def test_a_result_that_comes_after_the_loop_has_ended_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Callable[[str | Exception], None]] = []

    async def ask() -> None:
        # The loop is closed right after someone has looked.
        monkeypatch.setattr(asyncio.get_running_loop(), "is_closed", lambda: False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future_of(told.append), 0.01)

    asyncio.run(ask())
    told[0]("late")
