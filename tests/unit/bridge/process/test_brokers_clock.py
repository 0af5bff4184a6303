"""The brokers' clock as acknowledgements tell it: never ahead of it, whatever this machine's clock says."""

from __future__ import annotations

import sys
import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import example, given
from hypothesis import strategies as st

from reconsume.bridge.process.brokers_clock import BrokersClock, boot_ms
from reconsume.bridge.process.polled_records import stored_ms

EPOCH = 1_700_000_000_000


class Bench:
    """Brokers whose clock is right; `passed` is the monotonic clock of the machine, `ahead` its other clock's error."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.passed = 5_000.0
        self.brokers_ahead = EPOCH
        self.clock = BrokersClock(lambda: self.brokers + ahead, lambda: self.passed)

    @property
    def brokers(self) -> float:
        return self.brokers_ahead + self.passed

    def write(self, there: float, back: float) -> None:
        """A record takes so long to the broker, and its acknowledgement so long back."""
        sent = self.passed
        self.passed += there
        stored = int(self.brokers)
        self.passed += back
        self.clock.heard(stored, sent)


@pytest.mark.parametrize("ahead", [-30_000.0, 0.0, 30_000.0])
def test_before_anything_was_heard_it_is_the_machines_clock_and_then_the_brokers(ahead: float) -> None:
    bench = Bench(ahead)
    assert bench.clock() == bench.brokers + ahead
    bench.write(2, 3)
    assert bench.brokers - 4 <= bench.clock() <= bench.brokers


@given(st.lists(st.tuples(st.floats(0, 10_000), st.floats(0, 10_000), st.floats(0, 100_000)), min_size=1))
@example([(0.0, 0.0, 1.5), (0.0, 1.0, 0.0)])
def test_it_is_never_ahead_and_behind_by_no_more_than_the_quickest_answer_and_the_drift(
    writes: list[tuple[float, float, float]],
) -> None:
    bench = Bench(ahead=60_000)
    best = float("inf")
    for there, back, pause in writes:
        best += (there + back) * 0.0002
        bench.write(there, back)
        best = min(best, back + 1)
        bench.passed += pause
        best += pause * 0.0002
        assert bench.brokers - best - 0.01 <= bench.clock() <= bench.brokers


def test_brokers_whose_clock_was_set_back_are_followed() -> None:
    bench = Bench()
    bench.write(1, 1)
    bench.brokers_ahead -= 10_000
    bench.write(1, 1)
    assert bench.brokers - 3 <= bench.clock() <= bench.brokers


def test_brokers_whose_clock_was_set_forward_are_followed() -> None:
    bench = Bench()
    bench.write(1, 1)
    bench.brokers_ahead += 10_000
    bench.write(50, 50)
    assert bench.brokers - 52 <= bench.clock() <= bench.brokers


def test_what_was_heard_is_trusted_less_the_older_it_is() -> None:
    bench = Bench()
    bench.write(1, 0)
    bench.passed += 3_600_000
    assert bench.clock() == pytest.approx(bench.brokers - 720, abs=1)


def test_a_record_that_was_stored_a_moment_ago_tells_the_time_too_and_an_old_one_nothing() -> None:
    bench = Bench()
    bench.clock.saw(int(bench.brokers) + 1_000_000, is_new=True)
    assert bench.clock() == bench.brokers, "before anything of its own was stored there is nothing to compare it with"
    bench.write(1, 0)
    bench.passed += 3_600_000
    bench.clock.saw(int(bench.brokers) - 50_000, is_new=False)
    assert bench.clock() < bench.brokers - 700
    bench.clock.saw(int(bench.brokers) - 5, is_new=True)
    assert bench.brokers - 7 <= bench.clock() <= bench.brokers


def test_a_new_record_that_seems_old_sets_the_clock_back_until_the_brokers_are_asked() -> None:
    bench = Bench()
    bench.write(1, 1)
    bench.brokers_ahead -= 120_000
    bench.clock.saw(int(bench.brokers), is_new=True)
    assert bench.brokers - 1 <= bench.clock() <= bench.brokers
    assert bench.clock.is_in_doubt
    bench.write(1, 1)
    assert bench.brokers - 3 <= bench.clock() <= bench.brokers
    assert not bench.clock.is_in_doubt


def test_a_new_record_that_was_read_late_makes_nothing_late_once_the_brokers_were_asked() -> None:
    bench = Bench()
    bench.write(1, 1)
    bench.clock.saw(int(bench.brokers) - 20_000, is_new=True)
    assert bench.brokers - 20_002 <= bench.clock() <= bench.brokers - 20_000
    bench.write(1, 1)
    assert bench.brokers - 3 <= bench.clock() <= bench.brokers


@pytest.mark.parametrize(("unheard_ms", "in_doubt"), [(900, False), (1_100, True)])
def test_a_backlog_tells_nothing_but_that_the_clock_may_have_been_set_back_since_it_was_heard(
    unheard_ms: float, in_doubt: bool
) -> None:
    bench = Bench()
    bench.write(1, 1)
    bench.passed += unheard_ms
    bench.clock.saw(int(bench.brokers) - 50_000, is_new=False)
    assert bench.brokers - 3 <= bench.clock() <= bench.brokers
    assert bench.clock.is_in_doubt == in_doubt


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such clock")
def test_the_time_that_the_machine_was_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due meanwhile is delivered at once. `time.monotonic` stands still."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    clock = BrokersClock()
    clock.heard(EPOCH, boot_ms())
    monkeypatch.setattr(time, "clock_gettime", lambda kind: now + 3_600 * (kind == time.CLOCK_BOOTTIME))
    assert EPOCH + 3_598_000 < clock() <= EPOCH + 3_600_000


def test_a_record_that_was_just_stored_raises_no_doubt_however_long_nothing_was_heard() -> None:
    bench = Bench()
    bench.write(1, 1)
    bench.passed += 60_000
    bench.clock.saw(int(bench.brokers) - 60, is_new=True)
    assert not bench.clock.is_in_doubt


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(TIMESTAMP_LOG_APPEND_TIME, 70), (TIMESTAMP_CREATE_TIME, 900), (TIMESTAMP_NOT_AVAILABLE, 900)],
)
def test_a_record_with_its_producers_timestamp_counts_as_stored_when_it_is_read(kind: int, expected: float) -> None:
    assert stored_ms(Message(topic="t", timestamp=(kind, 70)), lambda: 900.0) == expected
