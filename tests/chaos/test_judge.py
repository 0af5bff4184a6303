"""The judge finds what it is there for, and excuses no more than it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.journal import Event, What
from tests.chaos.judge import COMMIT_SECONDS, Copy, Evidence, Judge
from tests.chaos.programs.member import SESSION_SECONDS

LATER = 2 * COMMIT_SECONDS
"""A repeat then has nothing to do with a commit that was due."""


def event(at: float, what: What, member: str = "a", **more: Any) -> Event:
    return Event(at, member, what, **more)


def delivery(
    begin: float, end: float | None, member: str = "a", *, offset: int = 0, body: str = "ok-0", times: int = 0
) -> list[Event]:
    where = {"topic": "t", "partition": 0, "offset": offset, "origin": f"t/0/{offset}", "body": body, "times": times}
    events = [event(begin, "begin", member, **where)]
    return events if end is None else [*events, event(end, "end", member, **where, succeeded=body.startswith("ok"))]


def worked(at: float) -> Event:
    return event(at, "worked", topic="t", partition=0, offset=0, origin="t/0/0", body="ok-0")


def taken(at: float, what: What, member: str = "a") -> Event:
    return event(at, what, member, partitions=("t-0",))


def findings(events: Sequence[Event], *, bodies: Sequence[str] = ("ok-0",), **more: Any) -> list[str]:
    """The first word of each."""
    evidence = Evidence(
        origins={f"t/0/{offset}": body for offset, body in enumerate(bodies)},
        copies=[],
        events=events,
        exactly_once=True,
    )
    return [one.split(":")[0] for one in Judge(replace(evidence, **more)).findings()]


ONCE = delivery(1, 2)
AGAIN = delivery(LATER, LATER + 1, "b")
MUCH_LATER = delivery(3 * LATER, 3 * LATER + 1, "b")


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param(ONCE, [], id="once"),
        pytest.param([], ["LOST"], id="never"),
        pytest.param(delivery(1, None), ["LOST"], id="begun alone"),
        pytest.param([*delivery(1, None), worked(2), event(2, "killed")], [], id="killed when it was committed"),
        pytest.param([*ONCE, *AGAIN], ["REPEATED"], id="for no reason"),
        pytest.param([*ONCE, *delivery(3, 4)], ["REPEATED"], id="in the same member"),
        pytest.param([*delivery(1, None), event(1.5, "killed"), *AGAIN], [], id="killed in the middle"),
        pytest.param([*ONCE, event(2.5, "killed"), *AGAIN], [], id="killed before a commit was due"),
        pytest.param([*ONCE, event(2 + COMMIT_SECONDS, "killed"), *AGAIN], ["REPEATED"], id="killed later"),
        pytest.param(
            [*ONCE, taken(7, "refused"), event(7.1, "killed"), *AGAIN],
            [],
            id="killed after a rebalance refused a commit",
        ),
        pytest.param(
            [*ONCE, taken(7, "refused"), event(7 + COMMIT_SECONDS, "killed"), *MUCH_LATER],
            ["REPEATED"],
            id="killed when it could have committed again",
        ),
        pytest.param(
            [*ONCE, taken(2.1 + COMMIT_SECONDS + SESSION_SECONDS, "refused"), event(10.2, "killed"), *MUCH_LATER],
            ["REPEATED"],
            id="refused by another rebalance",
        ),
        pytest.param(
            [*ONCE, Event(3, "a", "refused", partitions=("t-1",)), event(6.5, "killed"), *AGAIN],
            ["REPEATED"],
            id="the commit of another partition was refused",
        ),
        pytest.param([*ONCE, event(2.5, "stopped"), *AGAIN], [], id="stopped before a commit was due"),
        pytest.param([event(0.9, "stopped"), *ONCE, *AGAIN], [], id="stopped a moment later than it was told"),
        pytest.param([*ONCE, event(2 + COMMIT_SECONDS, "stopped"), *AGAIN], ["REPEATED"], id="stopped later"),
        pytest.param([*ONCE, taken(1.5, "revoked"), *AGAIN], [], id="revoked in the middle"),
        pytest.param([*ONCE, taken(2.5, "revoked"), *AGAIN], ["REPEATED"], id="revoked after it had ended"),
        pytest.param([*ONCE, taken(2.5, "lost"), *AGAIN], [], id="lost before a commit was due"),
        pytest.param([*ONCE, taken(2 + COMMIT_SECONDS, "lost"), *AGAIN], ["REPEATED"], id="lost later"),
        pytest.param([*ONCE, event(2.5, "ended"), *AGAIN], ["REPEATED"], id="left"),
        pytest.param(
            [
                *ONCE,
                event(0.5, "stopped", "b"),
                event(LATER - 1, "continued", "b"),
                *AGAIN,
                taken(LATER + 1, "lost", "b"),
            ],
            [],
            id="a zombie's repeat",
        ),
        pytest.param(
            [*ONCE, event(0.5, "stopped", "b"), event(1, "continued", "b"), taken(1.1, "lost", "b"), *AGAIN],
            ["REPEATED"],
            id="one that is no zombie any more",
        ),
    ],
)
def test_a_delivery_is_repeated_only_if_it_was_unfinished(events: list[Event], found: list[str]) -> None:
    assert findings(events) == found


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_in_a_poll_loop_nothing_is_settled_twice(first: bool, second: bool) -> None:
    (begin, end), (again, end_again) = ONCE, AGAIN
    events = [begin, replace(end, settled=first), event(2.1, "killed"), again, replace(end_again, settled=second)]
    assert findings(events, poll_loop=True) == (["REPEATED"] if first and second else [])


FAILED = [*delivery(1, 2, body="fail-0"), *delivery(4, 5, offset=0, body="fail-0", times=1)]
COPY = Copy("t/0/0", 1, dead=False)


@pytest.mark.parametrize(
    ("copies", "exactly_once", "found"),
    [
        ([COPY], True, []),
        ([], True, ["NOT SENT BACK"]),
        ([COPY, COPY], True, ["SENT BACK 2 TIMES, not 1"]),
        ([COPY, COPY], False, ["SENT BACK 2 TIMES, not 1"]),
        ([COPY, Copy("t/0/0", 2, dead=True)], True, ["SENT BACK WITHOUT A FAILURE"]),
    ],
)
def test_each_failure_is_sent_back(copies: list[Copy], exactly_once: bool, found: list[str]) -> None:
    assert findings(FAILED, bodies=["fail-0"], copies=copies, exactly_once=exactly_once) == found


def test_at_least_once_a_delivery_that_was_repeated_may_be_sent_back_again() -> None:
    events = [*delivery(0.5, None, "c", body="fail-0"), event(0.6, "killed", "c"), *FAILED]
    assert findings(events, bodies=["fail-0"], copies=[COPY, COPY], exactly_once=False) == []


def second(begin: float, end: float, member: str = "a") -> list[Event]:
    return delivery(begin, end, member, offset=1, body="ok-1")


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param([*ONCE, *second(2, 3)], [], id="in order"),
        pytest.param([*ONCE, *second(3, 4, "b")], [], id="in order, handed over"),
        pytest.param([*delivery(1, 2), *second(0, 1)], ["OUT OF ORDER"], id="swapped"),
        pytest.param([*ONCE, *second(1.5, 3)], ["OUT OF ORDER", "TWO AT ONCE"], id="two in one member"),
        pytest.param([*ONCE, *second(1.5, 3, "b")], ["OUT OF ORDER", "TWO AT ONCE"], id="two in two members"),
        pytest.param(
            [*delivery(1, 9), taken(2, "revoked"), taken(6, "overdue"), *delivery(7, 8, "b"), *second(8, 9, "b")],
            [],
            id="one that runs on after its partition was given away",
        ),
        pytest.param(
            [*delivery(1, None), event(2, "ended"), event(6, "left"), *delivery(7, 8, "b"), *second(8, 9, "b")],
            [],
            id="one that is left behind at the end",
        ),
        pytest.param(
            [*delivery(1, 9), taken(2, "revoked"), *delivery(7, 8, "b"), *second(8, 9, "b")],
            ["TWO AT ONCE", "TWO AT ONCE"],
            id="one that was not waited for",
        ),
        pytest.param(
            [
                *delivery(1, 9),
                event(2, "stopped"),
                *delivery(5, 6, "b"),
                *second(6, 7, "b"),
                event(8, "continued"),
                taken(9, "lost"),
            ],
            [],
            id="a stopped one",
        ),
    ],
)
def test_orderly_listeners_work_in_order_and_alone(events: list[Event], found: list[str]) -> None:
    assert findings(events, bodies=["ok-0", "ok-1"], orderly=True) == found
