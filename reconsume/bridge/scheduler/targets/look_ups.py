"""The cost of failing look-ups of topics: failures are remembered, and all look-ups share a time budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

T = TypeVar("T")

_REFUSED_MS: Final = 5_000.0
"""A newly created topic, or a granted right, is noticed after this time."""
_UNANSWERED_MS: Final = 1_000.0
_MOST_FAILURES: Final = 10_000
_BUDGET_MS: Final = 500.0


class LookUpsSpent(KafkaNotReachable):
    """Look-ups have used their share of the worker's time; further ones wait for a moment."""


class _Failure(NamedTuple):
    kind: type[ReconsumeError]
    text: str
    until_ms: float


class LookUps:
    """Looks topics up in the cluster, in the worker's thread.

    Guarantees: a failure is remembered by topic, also after aborted batches: a refusal for 5 s, no answer for 1 s.
    Look-ups take at most half a second at once and half of the time in the long run, plus one look-up: a long one is
    followed by a pause of its length. So no target makes a worker lose its membership.
    Tests: tests/unit/bridge/scheduler/targets/test_targets.py, tests/integration/bridge/test_failing_look_ups.py.

    Args:
        clock: monotonic milliseconds.
        refused_ms: how long a refusal is remembered; a missing answer at most a second.
    """

    def __init__(self, clock: Clock = monotonic_ms, refused_ms: float = _REFUSED_MS) -> None:
        self._clock = clock
        self._refused_ms = refused_ms
        self._unanswered_ms = min(refused_ms, _UNANSWERED_MS)
        self._failures: OrderedDict[str, _Failure] = OrderedDict()
        self._left_ms = _BUDGET_MS
        self._refilled_at = clock()

    def is_refused(self, topic: str) -> bool:
        """Return whether a look-up of the topic has recently failed."""
        failure = self._failures.get(topic)
        return failure is not None and self._clock() < failure.until_ms

    def run(self, topic: str, ask: Callable[[], T]) -> T:
        """Return the answer to a request about a topic, which may create it.

        Raises:
            LookUpsSpent: no request was made; ask again in a moment.
            ReconsumeError: the error, possibly of a recent request.
        """
        now = self._clock()
        failure = self._failures.get(topic)
        if failure is not None and now < failure.until_ms:
            raise failure.kind(failure.text)
        self._left_ms = min(_BUDGET_MS, self._left_ms + now - self._refilled_at)
        self._refilled_at = now
        if self._left_ms <= 0:
            raise LookUpsSpent(
                f"topic {topic} was not looked up yet, because look-ups have used their share of the time; the worker "
                "tries again"
            )
        try:
            return ask()
        except ReconsumeError as error:
            self.remember(topic, error)
            raise
        finally:
            self._refilled_at = self._clock()
            self._left_ms -= self._refilled_at - now

    def remember(self, topic: str, error: ReconsumeError) -> None:
        """Remember an error for a while; the oldest of too many is forgotten."""
        now = self._clock()
        keep_ms = self._unanswered_ms if isinstance(error, KafkaNotReachable) else self._refused_ms
        self._failures.pop(topic, None)
        # Not the error itself: each raise would add a traceback to it.
        self._failures[topic] = _Failure(type(error), str(error), now + keep_ms)
        if len(self._failures) > _MOST_FAILURES:
            self._failures.popitem(last=False)
