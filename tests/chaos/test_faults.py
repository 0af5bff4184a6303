"""Faults while messages flow: nothing lost, nothing early, nothing twice; and what would break that is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reconsume.cli.chaos.faults import Fault, FaultKind
from reconsume.cli.chaos.run import ChaosOptions, run_chaos
from tests.chaos.as_user import run_as_user
from tests.chaos.schedule import say

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

SEED = 6


def test_nothing_is_lost_early_or_twice_whatever_goes_wrong() -> None:
    """The machine runs other tests too, so there are no more messages than it can take."""
    assert run_as_user(SEED, 1.5, 60)["faults"] >= 6


A_SIDECAR_FAILS = [
    Fault(FaultKind.APP_KILLED, 0, 8, 4),
    Fault(FaultKind.SIDECAR_KILLED, 0, 2, 8),
    Fault(FaultKind.APP_STOPPED, 0, 10, 4),
    Fault(FaultKind.SIDECAR_STOPPED, 0, 12, 8),
    Fault(FaultKind.BROKER_KILLED, 0, 0, 8),
]


def test_a_sidecar_and_its_app_die_and_hang_and_cost_no_message_an_attempt(tmp_path: Path) -> None:
    report = run_chaos(ChaosOptions(SEED, 1, rate=40, faults=A_SIDECAR_FAILS, sidecar=True), say, tmp_path)
    assert report.ok, report.as_json()
    assert report.ended == []
    assert "assigned: chaos.orders" in (tmp_path / "sidecar.log").read_text(), "it took part"


AN_OPERATOR_ERRS = [
    *(Fault(FaultKind.RIGHTS_TAKEN, number, 6, 4) for number in range(6)),
    *(Fault(FaultKind.TOPIC_DELETED, number, 3, 4) for number in range(2)),
]
"""The right to read each of the topics that messages go through, and each topic that holds none."""


def test_rights_that_were_taken_and_given_back_and_topics_made_again_cost_nothing(tmp_path: Path) -> None:
    report = run_chaos(ChaosOptions(SEED, 1, rate=40, faults=AN_OPERATOR_ERRS), say, tmp_path)
    assert report.ok, report.as_json()
    assert report.ended == []
    assert "no right to use the topic" in "".join(one.read_text() for one in tmp_path.glob("scheduler-*.log"))


A_GROUP_IS_POISONED = [
    Fault(FaultKind.CLOCK_AHEAD, 0, 1, 10),
    Fault(FaultKind.TOPICS_NOT_MADE, 0, 6, 5),
    Fault(FaultKind.LISTENERS_SLIP, 0, 6, 5),
    Fault(FaultKind.SIZES_REFUSED, 0, 6, 5),
    Fault(FaultKind.WRITING_TAKEN, 0, 6, 5),
]
"""At first a fault that delays nobody, to see how late deliveries are on this machine."""


def test_a_poisoned_group_delays_no_other_one(tmp_path: Path) -> None:
    report = run_chaos(ChaosOptions(SEED, 1, rate=100, faults=A_GROUP_IS_POISONED), say, tmp_path)
    assert report.ok, report.as_json()
    assert report.ended == []
    assert report.verdict.quarantined > 0
    late = {kind: figures["p99_seconds"] for kind, figures in report.lateness.items()}
    assert len(late) == len(A_GROUP_IS_POISONED)
    promised = 1 + 2 * late.pop(FaultKind.CLOCK_AHEAD)
    assert all(seconds < promised for seconds in late.values()), (promised, late)


def test_slow_links_cost_nothing_and_stop_nobody_for_good(tmp_path: Path) -> None:
    faults = [Fault(FaultKind.SCHEDULER_STOPPED, 0, 10, 0), Fault(FaultKind.LINKS_SLOW, 0, 15, 5)]
    report = run_chaos(ChaosOptions(SEED, 1, rate=100, faults=faults), say, tmp_path)
    assert report.ok, report.as_json()
    assert report.ended == []


ONE_OF_THREE_IS_AWAY = [Fault(FaultKind.BROKER_KILLED, 0, 0, 5), Fault(FaultKind.RIGHTS_TAKEN, 2, 4, 5)]


def test_three_brokers_lose_one_and_take_a_right(tmp_path: Path) -> None:
    report = run_chaos(ChaosOptions(SEED, 1, brokers=3, rate=20, faults=ONE_OF_THREE_IS_AWAY), say, tmp_path)
    assert report.ok, report.as_json()
    assert report.ended == []


A_WHILE = Fault(FaultKind.CONSUMER_STOPPED, 0, 0.1, 10)
SCHEDULERS_DIE = [A_WHILE, *(Fault(FaultKind.SCHEDULER_KILLED, number, 0.5, 13) for number in range(4))]
"""Each when all of them deliver: their group has got over the one before, whose session is 10 s."""
GROUP_REBALANCES = [Fault(FaultKind.SCHEDULERS_COME_AND_GO, number, 6, 3) for number in range(2)]
"""Six ends or starts each; every worker has something to deliver nearly all the time."""


@pytest.mark.parametrize(
    ("bug", "faults", "word"),
    [
        ("commit_before_the_produce", SCHEDULERS_DIE, "LOST"),
        ("no_rewind_after_an_abort", GROUP_REBALANCES, "LOST"),
        ("due_by_the_workers_clock", [Fault(FaultKind.CLOCK_AHEAD, 0, 5, 1)], "EARLY"),
        ("the_next_record_is_blamed_too", [Fault(FaultKind.TOPICS_NOT_MADE, 0, 5, 5)], "QUARANTINED"),
    ],
)
def test_a_planted_bug_is_found(bug: str, faults: list[Fault], word: str, tmp_path: Path) -> None:
    worker = (sys.executable, "-m", "tests.chaos.programs.planted", bug)
    report = run_chaos(ChaosOptions(SEED, 1, rate=100, faults=faults, worker=worker, patience=30), say, tmp_path)
    assert any(one.startswith(word) for one in report.verdict.examples), report.as_json()
    assert not report.ok
