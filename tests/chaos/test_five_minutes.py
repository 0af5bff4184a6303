"""Five minutes of faults, each kind at least once: nothing lost, nothing early, nothing twice."""

from __future__ import annotations

import sys

import pytest

from reconsume.cli.chaos.faults import kinds_for, schedule
from tests.chaos.as_user import run_as_user

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.timeout(2_400), pytest.mark.early(9)]

SEED, MINUTES = 21, 5
RATE = 40
"""Messages per second: a machine that runs other tests too can catch up with it between two faults."""


def test_nothing_is_lost_early_or_twice_in_five_minutes_of_faults() -> None:
    kinds = kinds_for(sys.platform)
    assert {one.kind for one in schedule(SEED, MINUTES * 60, kinds)} == set(kinds)
    report = run_as_user(SEED, MINUTES, RATE)
    assert report["faults"] >= len(kinds)
    assert report["quarantined"] > 0, "poison was produced"
    assert set(report["recovery"]) == set(kinds)
    assert report["lateness"], "healthy groups' records were due during faults"
    assert set(report["lateness"]) <= set(kinds), "a kind is left out when nothing was due before the next fault"
