"""Whether an event loop takes turns."""

from __future__ import annotations

import asyncio
import threading

from reconsume.bridge.process.event_loops import takes_turns
from tests.support.waiting import wait_until


def test_a_loop_that_runs_hangs_goes_on_and_ends() -> None:
    loop, hangs, go_on = asyncio.new_event_loop(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(60)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert takes_turns(loop, 60)
        loop.call_soon_threadsafe(hang)
        wait_until(hangs.is_set, 60, "it hangs")
        assert not takes_turns(loop, 0.1)
        go_on.set()
        assert takes_turns(loop, 60)
    finally:
        go_on.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
    assert not takes_turns(loop, 60)
