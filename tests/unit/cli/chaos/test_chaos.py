"""The pure parts of `reconsume chaos`: schedule, judge, times of recovery."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconsume.cli.chaos.faults import FaultKind, kinds_for, schedule
from reconsume.cli.chaos.poison import MIXES, poison_in
from reconsume.cli.chaos.recovery import Inflicted, Recovery, lateness, recoveries, summary
from reconsume.cli.chaos.workload import body_of, failures_in
from reconsume.cli.judging.judge import DEAD, Poison, TopicsJudge


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 300) == schedule(7, 300)
    assert len({tuple(schedule(seed, 300)) for seed in range(50)}) == 50


def test_each_kind_comes_once_before_any_comes_again() -> None:
    for seed in range(20):
        kinds = [one.kind for one in schedule(seed, 3_600)]
        assert len(kinds) > 100
        assert set(kinds[: len(FaultKind)]) == set(kinds[len(FaultKind) : 2 * len(FaultKind)]) == set(FaultKind)


@pytest.mark.parametrize("minutes", [1.5, 3, 60])
def test_a_schedule_fills_its_time(minutes: float) -> None:
    for seed in range(20):
        faults = schedule(seed, minutes * 60)
        assert minutes * 60 <= sum(one.seconds + one.pause for one in faults) <= minutes * 60 + 70


def test_only_linux_can_fill_a_disk() -> None:
    linux = kinds_for("linux")
    assert set(linux) - set(kinds_for("darwin")) == {FaultKind.DISK_FULL, FaultKind.BROKER_STOPPED}
    assert set(FaultKind) - set(kinds_for("linux", sidecar=True)) == {FaultKind.RIGHTS_TAKEN}
    assert set(FaultKind) - set(linux) == {one for one in FaultKind if one.startswith(("sidecar", "app"))}


def test_thirty_of_a_hundred_messages_fail_and_five_of_them_die() -> None:
    failures = [failures_in(body_of(number)) for number in range(100, 200)]
    assert len([one for one in failures if one]) == 30
    assert failures.count(DEAD) == 5


def all_is_well(judge: TopicsJudge, place: int = 1) -> None:
    """A message that fails twice, then succeeds."""
    judge.produced(place, 2, 1_000)
    judge.sent_back(place, 1, 1_100, 1_000, "delay-0@1")
    judge.moved(place, 1, 2_100, "retry-0@1", dead=False)
    judge.sent_back(place, 2, 2_200, 2_000, "delay-0@2")
    judge.moved(place, 2, 4_300, "retry-0@2", dead=False)
    judge.processed(place, 4_400)


def dies(judge: TopicsJudge, place: int = 2) -> None:
    judge.produced(place, DEAD, 0)
    for times in range(1, DEAD + 1):
        judge.sent_back(place, times, times * 1_000, 0 if times == DEAD else 1_000, f"delay-0@{times}")
        judge.moved(place, times, (times + 1) * 1_000, f"retry-0@{times}", dead=times == DEAD)


def figures(*told: Callable[[TopicsJudge], None]) -> tuple[int, int, int]:
    judge = TopicsJudge()
    for tell in told:
        tell(judge)
    verdict = judge.verdict()
    assert judge.complete == (verdict.lost == 0)
    assert verdict.ok == (not verdict.examples)
    return verdict.lost, verdict.early, verdict.duplicates


def test_a_message_that_succeeds_and_one_that_dies_are_well() -> None:
    assert figures(all_is_well, dies) == (0, 0, 0)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        pytest.param([lambda one: one.produced(1, 0, 0)], (1, 0, 0), id="not processed"),
        pytest.param(
            [lambda one: one.produced(1, 1, 0), lambda one: one.processed(1, 9)], (1, 0, 0), id="failure not sent back"
        ),
        pytest.param(
            [
                lambda one: one.produced(1, 1, 0),
                lambda one: one.sent_back(1, 1, 5, 0, "t-0@4"),
                lambda one: one.processed(1, 9),
            ],
            (1, 0, 0),
            id="not delivered",
        ),
        pytest.param(
            [all_is_well, lambda one: one.sent_back(1, 2, 2_300, 2_000, "t-0@5")], (0, 0, 1), id="sent back twice"
        ),
        pytest.param(
            [all_is_well, lambda one: one.moved(1, 2, 5_000, "t-0@12", dead=False)], (0, 0, 1), id="delivered twice"
        ),
        pytest.param([dies, lambda one: one.moved(2, DEAD, 9_000, "t-0@13", dead=True)], (0, 0, 1), id="dead twice"),
        pytest.param([all_is_well, lambda one: one.processed(1, 9_000)], (0, 0, 0), id="processed twice"),
        pytest.param(
            [all_is_well, lambda one: one.sent_back(1, 3, 9_000, 0, "t-0@6")], (0, 0, 1), id="a failure too many"
        ),
        pytest.param(
            [all_is_well, lambda one: one.moved(1, 2, 9_000, "t-0@14", dead=True)], (0, 0, 1), id="dead all the same"
        ),
        pytest.param([lambda one: one.sent_back(1, 1, 0, 0, "t-0@7")], (1, 0, 0), id="never produced"),
        pytest.param(
            [
                lambda one: one.produced(1, 1, 0),
                lambda one: one.sent_back(1, 1, 100, 1_000, "t-0@8"),
                lambda one: one.moved(1, 1, 1_099, "t-0@15", dead=False),
                lambda one: one.processed(1, 1_200),
            ],
            (0, 1, 0),
            id="early by a millisecond",
        ),
    ],
)
def test_what_went_wrong_is_found(told: list[Callable[[TopicsJudge], None]], found: tuple[int, int, int]) -> None:
    assert figures(*told) == found


def poisoned(poison: Poison, judge: TopicsJudge, *, delivered: bool = False, quarantined: bool = False) -> None:
    """A message of a poisoned group, which fails once."""
    judge.produced(1, 1, 1_000, poison)
    judge.sent_back(1, 1, 1_100, 1_000, "delay-0@1")
    if delivered:
        judge.moved(1, 1, 2_100, "retry-0@1", dead=False)
        judge.processed(1, 2_200)
    if quarantined:
        judge.quarantined(1, 1, 2_100, "quarantine-0@1: why")


REFUSED = [Poison.LARGE, Poison.UNMADE]
DELIVERED = [Poison.SMALL, Poison.SLIP]


@pytest.mark.parametrize("poison", REFUSED)
def test_what_its_retry_topic_refuses_belongs_into_the_quarantine(poison: Poison) -> None:
    judge = TopicsJudge()
    poisoned(poison, judge)
    assert not judge.complete
    judge.quarantined(1, 1, 2_100, "quarantine-0@1: why")
    verdict = judge.verdict()
    assert judge.complete
    assert verdict.ok
    assert (verdict.quarantined, verdict.wrongly_quarantined) == (1, 0)


@pytest.mark.parametrize("poison", REFUSED)
def test_what_its_retry_topic_refuses_was_not_delivered(poison: Poison) -> None:
    judge = TopicsJudge()
    poisoned(poison, judge, delivered=True)
    assert judge.verdict().lost == 1


@pytest.mark.parametrize("poison", DELIVERED)
def test_what_can_be_delivered_is_delivered(poison: Poison) -> None:
    judge = TopicsJudge()
    poisoned(poison, judge, delivered=True)
    assert judge.verdict().ok
    judge = TopicsJudge()
    poisoned(poison, judge, quarantined=True)
    assert judge.verdict().wrongly_quarantined == 1
    assert judge.verdict().examples[0].startswith("QUARANTINED: 1/0 ")


@pytest.mark.parametrize("poison", DELIVERED)
@pytest.mark.parametrize(("taken", "wrong"), [((1_000, 2_000), 0), ((2_200, 9_000), 1), ((-20_000, -9_000), 1)])
def test_the_poisoned_groups_records_may_be_in_the_quarantine_when_the_right_to_write_was_taken(
    poison: Poison, taken: tuple[float, float], wrong: int
) -> None:
    judge = TopicsJudge()
    poisoned(poison, judge, quarantined=True)
    assert judge.complete
    assert judge.verdict([taken]).wrongly_quarantined == wrong


def test_a_healthy_groups_record_never_belongs_into_the_quarantine() -> None:
    judge = TopicsJudge()
    judge.produced(1, 1, 0)
    judge.sent_back(1, 1, 100, 1_000, "delay-0@1")
    judge.quarantined(1, 1, 1_200, "quarantine-0@1: why")
    verdict = judge.verdict([(0, 9_000)])
    assert not verdict.ok
    assert verdict.wrongly_quarantined == 1


@pytest.mark.parametrize("poison", Poison)
def test_a_record_is_delivered_or_quarantined_and_not_both(poison: Poison) -> None:
    judge = TopicsJudge()
    poisoned(poison, judge, delivered=True, quarantined=True)
    assert judge.verdict([(0, 9_000)]).duplicates == 1


def test_a_record_is_quarantined_once_and_not_before_it_is_due() -> None:
    judge = TopicsJudge()
    poisoned(Poison.LARGE, judge, quarantined=True)
    judge.quarantined(1, 1, 2_099, "quarantine-0@2: why")
    verdict = judge.verdict()
    assert (verdict.duplicates, verdict.early) == (1, 1)


def test_how_late_poisoned_groups_are_does_not_count() -> None:
    judge = TopicsJudge()
    poisoned(Poison.SMALL, judge, delivered=True)
    assert list(judge.late(-1)) == []
    assert list(judge.deliveries()) == []
    all_is_well(judge, 2)
    assert list(judge.deliveries()) == [(2_100, 2_100), (4_200, 4_300)]


def test_each_poison_is_produced_and_told_by_its_body() -> None:
    assert {poison for mix in MIXES.values() for poison in mix} == set(Poison)
    for poison in Poison:
        assert poison_in(b"7 1 %s" % poison.encode()) is poison
    assert failures_in(b"7 1 large xxx") == 1


def test_lateness_counts_from_the_beginning_of_a_fault_to_that_of_the_next_one() -> None:
    faults = [
        Inflicted(FaultKind.SIZES_REFUSED, 10_000, 11_000),
        Inflicted(FaultKind.BROKER_KILLED, 20_000, 24_000),
        Inflicted(FaultKind.SIZES_REFUSED, 30_000, 31_000),
    ]
    deliveries = [
        *((10_000 + number, 10_010 + number) for number in range(100)),
        (19_999, 20_999),
        (20_000, 29_000),
        (30_000, 30_500),
        (9_999, 15_000),
    ]
    found = lateness(faults, deliveries)
    assert found == {
        "broker killed": {"deliveries": 1, "p99_seconds": 9.0, "median_p99_seconds": 9.0, "max_seconds": 9.0},
        "sizes refused": {"deliveries": 102, "p99_seconds": 0.5, "median_p99_seconds": 0.255, "max_seconds": 1.0},
    }


def test_a_fault_without_deliveries_has_no_lateness() -> None:
    assert lateness([Inflicted(FaultKind.NETWORK_CUT, 0, 1)], []) == {}


def test_it_says_where_both_copies_stand() -> None:
    judge = TopicsJudge()
    all_is_well(judge)
    judge.sent_back(1, 2, 2_300, 2_000, "delay-1@7")
    (said,) = judge.verdict().examples
    assert said.startswith("TWICE: 1/0 was sent back twice after failure 2: delay-0@2 at ")
    assert said.endswith(", and delay-1@7 0.100 s later")


def test_late_steps_are_those_of_schedulers_and_of_consumers() -> None:
    judge = TopicsJudge()
    judge.produced(1, 1, 0)
    judge.sent_back(1, 1, 5_000, 1_000, "t-0@9")  # the consumer took 5 s
    judge.moved(1, 1, 9_000, "t-0@16", dead=False)  # the scheduler was 3 s late
    judge.processed(1, 9_500)
    assert sorted(judge.late(1_000)) == [(0, 5_000), (6_000, 9_000)]


def test_a_late_step_belongs_to_the_fault_that_began_before_it_was_late() -> None:
    faults = [Inflicted(FaultKind.SCHEDULER_KILLED, 10_000, 11_000), Inflicted(FaultKind.BROKER_KILLED, 20_000, 24_000)]
    late = [(9_500, 15_000), (12_000, 13_500), (19_500, 30_000), (0, 5_000)]
    found = recoveries(faults, late)
    assert found == {FaultKind.SCHEDULER_KILLED: [Recovery(5.0, 4.0)], FaultKind.BROKER_KILLED: [Recovery(10.0, 6.0)]}
    assert summary(found)["broker killed"] == {
        "faults": 1,
        "median_seconds": 10.0,
        "max_seconds": 10.0,
        "median_seconds_after_end": 6.0,
        "max_seconds_after_end": 6.0,
    }


def test_recovery_is_counted_from_the_kill_and_not_from_the_start_of_the_next_process() -> None:
    killed = Inflicted(FaultKind.SCHEDULER_KILLED, 10_000, 15_000)
    assert recoveries([killed], [(10_500, 14_000)]) == {FaultKind.SCHEDULER_KILLED: [Recovery(4.0, 0.0)]}


def test_without_late_steps_recovery_takes_no_time() -> None:
    assert recoveries([Inflicted(FaultKind.NETWORK_CUT, 0, 1)], []) == {FaultKind.NETWORK_CUT: [Recovery(0.0, 0.0)]}
