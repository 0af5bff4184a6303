"""The circuit breaker's rule: when it opens, how long, and what closes it. Times are milliseconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from reconsume.consumers import CircuitBreaker, CircuitChange, CircuitMetrics, CircuitState, PushConsumer
from reconsume.consumers.listeners.circuit_breaker import Circuit, Permit
from reconsume.delay_levels.errors import IllegalSetting

CLOSED, HALF_OPEN, OPEN = CircuitState.CLOSED, CircuitState.HALF_OPEN, CircuitState.OPEN
SETTINGS = CircuitBreaker(
    failure_share=0.8,
    minimum_calls=5,
    window=timedelta(seconds=10),
    open_for=timedelta(seconds=1),
    open_for_at_most=timedelta(seconds=3),
    probes=2,
)


def called(circuit: Circuit, outcomes: str, now: float) -> None:
    """Calls that end at once: `+` works, `-` fails."""
    for outcome in outcomes:
        permit = circuit.admit(now)
        assert permit is not None
        circuit.settle(permit, failed=outcome == "-", now=now)


def opened(now: float = 0.0) -> Circuit:
    circuit = Circuit(SETTINGS, "departures")
    called(circuit, "-----", now)
    assert circuit.state is OPEN
    return circuit


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ("----", CLOSED),
        ("-----", OPEN),
        ("+----", OPEN),
        ("++---", CLOSED),
        ("++--------", OPEN),
        ("+-+-+-+-+-+-+-", CLOSED),
        ("+++++", CLOSED),
    ],
)
def test_it_opens_when_enough_calls_in_the_window_failed(outcomes: str, state: CircuitState) -> None:
    circuit = Circuit(SETTINGS)
    called(circuit, outcomes, 0)
    assert circuit.state is state


def test_it_may_open_with_a_success_when_that_makes_the_calls_enough() -> None:
    circuit = Circuit(CircuitBreaker(failure_share=0.5, minimum_calls=4))
    called(circuit, "---", 0)
    called(circuit, "+", 0)
    assert circuit.state is OPEN, "three of four is more than half, and four are enough"


@pytest.mark.parametrize(("later", "state"), [(8_999, OPEN), (10_000, CLOSED), (60_000, CLOSED)])
def test_calls_that_ended_before_the_window_do_not_count(later: float, state: CircuitState) -> None:
    circuit = Circuit(SETTINGS)
    called(circuit, "----", 0)
    called(circuit, "-", later)
    assert circuit.state is state


def test_while_it_is_open_the_listener_is_not_called_until_the_pause_is_over() -> None:
    circuit = opened(500)
    assert circuit.admit(1_499) is None
    assert circuit.state is OPEN
    assert circuit.admit(1_500) is not None
    assert circuit.state is HALF_OPEN


@pytest.mark.parametrize("tenths", range(1_000, 1_050))
def test_the_pause_is_over_when_it_says_so(tenths: int) -> None:
    pause = timedelta(milliseconds=tenths / 10)
    circuit = Circuit(CircuitBreaker(minimum_calls=1, open_for=pause, open_for_at_most=timedelta(hours=1)))
    called(circuit, "-", 1_767_225_600_000.0)
    ends = circuit.pause_ends_ms
    assert ends is not None
    circuit.advance(ends)
    assert circuit.state is HALF_OPEN


def test_after_the_pause_it_lets_exactly_the_probes_through() -> None:
    circuit = opened()
    assert [circuit.admit(1_000) is not None for _ in range(4)] == [True, True, False, False]
    assert circuit.probes_left == 0


def test_a_probe_that_was_not_made_leaves_its_place_to_another() -> None:
    circuit = opened()
    first, second = circuit.admit(1_000), circuit.admit(1_000)
    assert first is not None
    assert second is not None
    circuit.cancel(first)
    assert circuit.admit(1_000) is not None
    assert circuit.admit(1_000) is None


@pytest.mark.parametrize(("outcomes", "state"), [("-", HALF_OPEN), ("--", OPEN), ("+", CLOSED), ("-+", CLOSED)])
def test_the_share_of_the_probes_decides_as_soon_as_it_can(outcomes: str, state: CircuitState) -> None:
    circuit = opened()
    called(circuit, outcomes, 1_000)
    assert circuit.state is state


def test_each_round_that_fails_doubles_the_pause_up_to_its_bound_and_closing_begins_anew() -> None:
    circuit, now, pauses = opened(), 0.0, []
    for _ in range(4):
        pauses.append(circuit.changes[-1].open_seconds)
        now += pauses[-1] * 1_000
        called(circuit, "--", now)
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    now += 3_000
    called(circuit, "+-----", now)
    assert circuit.changes[-1] == CircuitChange("departures", OPEN, 5, 5, 1.0)


def test_results_of_an_earlier_period_change_nothing() -> None:
    circuit = Circuit(SETTINGS)
    running = circuit.admit(0)
    assert running is not None
    called(circuit, "-----", 0)
    circuit.settle(running, failed=False, now=10)
    assert circuit.state is OPEN
    late = circuit.admit(1_000)
    assert late is not None
    circuit.settle(running, failed=False, now=1_000)
    assert circuit.state is HALF_OPEN
    called(circuit, "-", 1_000)
    circuit.settle(late, failed=True, now=1_000)
    assert circuit.admit(3_000) is not None
    circuit.settle(late, failed=False, now=3_000)
    circuit.cancel(late)
    assert (circuit.state, circuit.probes_left) == (HALF_OPEN, 1)


def test_the_changes_tell_what_led_to_them() -> None:
    circuit = opened()
    called(circuit, "-+", 1_500)
    assert circuit.changes == [
        CircuitChange("departures", OPEN, 5, 5, 1.0),
        CircuitChange("departures", HALF_OPEN, 0, 0, 1.5),
        CircuitChange("departures", CLOSED, 2, 1, 1.5),
    ]


def test_a_clock_that_is_set_back_begins_the_pause_anew_and_the_window_too() -> None:
    circuit = opened(1_000_000)
    assert circuit.admit(400) is None
    assert circuit.admit(1_399) is None
    called(circuit, "+----", 1_400)
    assert circuit.state is CLOSED
    called(circuit, "-", 0)
    assert circuit.state is CLOSED


class AnyHistory(RuleBasedStateMachine):
    """Calls that end late, early or never, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.circuit = Circuit(SETTINGS)
        self.now = 0.0
        self.running: list[tuple[Permit, CircuitState]] = []
        self.opened_at = 0.0
        self.pause = 0.0
        self.probes = 0

    def look(self) -> None:
        for change in self.circuit.changes:
            if change.state is OPEN:
                assert 1 <= change.open_seconds <= 3
                assert change.failures >= 0.8 * change.calls
                self.opened_at, self.pause = self.now, change.open_seconds * 1_000
            if change.state is HALF_OPEN:
                self.probes = 0
                assert self.now >= self.opened_at + self.pause
        self.circuit.changes.clear()

    @rule(step=st.sampled_from([0, 1, 500, 1_000, 3_000, 20_000]))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.circuit.advance(self.now)
        self.look()
        assert self.circuit.state is not OPEN or self.now < self.opened_at + self.pause

    @rule()
    def a_call_begins(self) -> None:
        permit = self.circuit.admit(self.now)
        self.look()
        if permit is not None:
            assert self.circuit.state is not OPEN
            self.running.append((permit, self.circuit.state))
            self.probes += self.circuit.state is HALF_OPEN
        else:
            assert self.circuit.state is not CLOSED

    @precondition(lambda self: self.running)
    @rule(failed=st.booleans(), which=st.integers(min_value=0))
    def a_call_ends(self, failed: bool, which: int) -> None:
        permit, _ = self.running.pop(which % len(self.running))
        counts, before = self.circuit.is_valid(permit), self.circuit.state
        self.circuit.settle(permit, failed=failed, now=self.now)
        assert counts or self.circuit.state is before
        self.look()

    @precondition(lambda self: self.running)
    @rule(which=st.integers(min_value=0))
    def a_call_is_not_made(self, which: int) -> None:
        permit, state = self.running.pop(which % len(self.running))
        self.probes -= self.circuit.is_valid(permit) and state is HALF_OPEN
        self.circuit.cancel(permit)

    @invariant()
    def no_more_probes_than_allowed(self) -> None:
        if self.circuit.state is HALF_OPEN:
            assert self.probes + self.circuit.probes_left == SETTINGS.probes


TestAnyHistory = AnyHistory.TestCase


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"failure_share": 0}, "failure_share must be above 0 and at most 1, not 0"),
        ({"failure_share": 1.1}, "failure_share must be above 0 and at most 1"),
        ({"minimum_calls": 0}, "minimum_calls must be 1 or more, not 0"),
        ({"probes": 0}, "probes must be 1 or more, not 0"),
        ({"window": timedelta(0)}, "window must be longer than 0"),
        ({"open_for": timedelta(0)}, "open_for must be longer than 0"),
        ({"open_for": timedelta(minutes=2)}, r"open_for_at_most must be 0:02:00 \(open_for\) or longer, not 0:01:00"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(IllegalSetting, match=why):
        CircuitBreaker(**settings)


def test_an_orderly_listener_is_refused_beside_a_circuit_breaker() -> None:
    consumer = PushConsumer("departures", circuit_breaker=CircuitBreaker())
    with pytest.raises(IllegalSetting, match="circuit_breaker is for concurrent listeners"):
        consumer.register_message_listener(lambda _messages, _context: None, orderly=True)


def test_the_metrics_show_the_state_and_count_the_openings() -> None:
    registry = CollectorRegistry()
    metrics = CircuitMetrics(registry)

    def shown() -> tuple[float | None, float | None]:
        labels = {"group": "departures"}
        return (
            registry.get_sample_value("reconsume_circuit_breaker_state", labels),
            registry.get_sample_value("reconsume_circuit_breaker_openings_total", labels),
        )

    seen = []
    for state in (CLOSED, OPEN, HALF_OPEN, OPEN, HALF_OPEN, CLOSED):
        metrics.changed(CircuitChange("departures", state))
        seen.append(shown())
    assert seen == [(0, 0), (2, 1), (1, 1), (2, 2), (1, 2), (0, 2)]
