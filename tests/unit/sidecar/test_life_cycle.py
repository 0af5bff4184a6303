"""The life of a process goes one way, and draining waits for what is in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from reconsume.sidecar.life_cycle import Life, Phase
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("steps", "phase"),
    [
        ([], Phase.STARTING),
        ([Life.run], Phase.RUNNING),
        ([Life.run, Life.quiesce], Phase.QUIESCING),
        ([Life.quiesce, Life.quiesce, Life.run], Phase.QUIESCING),
    ],
)
def test_it_never_goes_back(steps: list[Callable[[Life], None]], phase: Phase) -> None:
    life = Life()
    for step in steps:
        step(life)
    assert life.phase is phase
    assert life.is_quiescing == (phase is Phase.QUIESCING)


def test_a_delivery_is_in_flight_until_it_ends_also_with_an_error() -> None:
    life = Life()
    in_flight = []

    def deliver() -> None:
        with life.delivery():
            in_flight.append(life.in_flight)
            raise ValueError("from the app")

    with pytest.raises(ValueError, match="from the app"):
        deliver()
    assert (in_flight, life.in_flight) == ([1], 0)


def test_draining_waits_for_the_last_delivery_and_no_longer() -> None:
    life = Life()
    drained: list[bool] = []
    with life.delivery():
        assert not life.wait_drained(0)
        waiting = threading.Thread(target=lambda: drained.append(life.wait_drained(60)))
        waiting.start()
    wait_until(lambda: drained, "draining ended")
    waiting.join()
    assert drained == [True]
