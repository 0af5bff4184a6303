"""The figures of the demo, as the judge of its topics tells them."""

from __future__ import annotations

from reconsume.cli.demo.application import failures_of
from reconsume.cli.demo.run import report_of
from reconsume.cli.judging.judge import DEAD, TopicsJudge


def test_figures_of_messages_that_succeed_at_once_later_and_never() -> None:
    judge = TopicsJudge()
    for place, failures in ((1, 0), (2, 2), (3, DEAD)):
        judge.produced(place, failures, 0)
        for times in range(1, failures + 1):
            dead = times == DEAD
            judge.sent_back(place, times, times * 10_000, 0 if dead else 1_000, f"delay-0@{times}")
            judge.moved(place, times, times * 10_000 + 1_005, f"retry-0@{times}", dead=dead)
        if failures < DEAD:
            judge.processed(place, 90_000)
    assert judge.moves == (6, 6)
    report = report_of(judge)
    assert report == {
        "produced": 3,
        "delivered": 8,
        "sent_back": {"3": 2, "4": 2, "5": 1},
        "succeeded_after": {"0": 1, "2": 1},
        "dead_letters": 1,
        "quarantined": 0,
        "lateness_ms": {"p50": 5, "p99": 1_005, "max": 1_005},
        "early": 0,
        "lost": 0,
        "duplicates": 0,
    }
    judge.processed(1, 91_000)
    judge.quarantined(2, 1, 91_000, "quarantine-0@0: why")
    wrong = report_of(judge)
    assert (wrong["quarantined"], wrong["lost"], wrong["duplicates"]) == (1, 1, 2)


def test_one_message_in_twenty_fails_once_or_twice() -> None:
    failures = [failures_of(b'{"a": 1}', f"flights/0/{number}", lambda row: row["a"] == 2) for number in range(2_000)]
    assert {0, 1, 2} == set(failures)
    assert 60 < sum(map(bool, failures)) < 140
    assert failures_of(b'{"a": 2}', "flights/0/0", lambda row: row["a"] == 2) == DEAD
