"""The cost of failing look-ups of topics: each is remembered for a while, all share a budget of time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

T = TypeVar("T")

_REFUSED_MS: Final = 5_000.0
"""A topic that is made meanwhile, or a right that is granted, is noticed after so long."""
_UNANSWERED_MS: Final = 1_000.0
_MOST_FAILURES: Final = 10_000
_BUDGET_MS: Final = 500.0


class LookUpsSpent(KafkaNotReachable):
    """Look-ups have taken their share of the worker's time; what has to be looked up waits for a moment."""


class _Failure(NamedTuple):
    kind: type[ReconsumeError]
    text: str
    until_ms: float


class LookUps:
    """Asks the cluster for topics, in the worker's thread.

    Guarantees: a failure is remembered by topic, over aborted batches too: a refusal for 5 s, no answer for 1 s.
    Look-ups take half a second in one go and half of the time in the long run, and at most one look-up more: one that
    takes long is followed by a pause of its length. So no target puts a worker out of its group.
    Tests: tests/unit/bridge/scheduler/targets/test_targets.py, tests/integration/test_failing_look_ups.py.

    Args:
        clock: milliseconds that only grow.
        refused_ms: how long a refusal is remembered; of a question without an answer at most a second.
    """

    def __init__(self, clock: Clock = monotonic_ms, refused_ms: float = _REFUSED_MS) -> None:
        self._clock = clock
        self._refused_ms = refused_ms
        self._unanswered_ms = min(refused_ms, _UNANSWERED_MS)
        self._failures: OrderedDict[str, _Failure] = OrderedDict()
        self._left_ms = _BUDGET_MS
        self._refilled_at = clock()

    def is_refused(self, topic: str) -> bool:
        """Whether it was asked for a short while ago, and the answer was a failure."""
        failure = self._failures.get(topic)
        return failure is not None and self._clock() < failure.until_ms

    def run(self, topic: str, ask: Callable[[], T]) -> T:
        """The answer to a question about a topic, which may make it.

        Raises:
            LookUpsSpent: it was not asked; ask again in a moment.
            ReconsumeError: what was the answer, a short while ago too.
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
        """Give this answer for a while; the oldest of too many is forgotten."""
        now = self._clock()
        keep_ms = self._unanswered_ms if isinstance(error, KafkaNotReachable) else self._refused_ms
        self._failures.pop(topic, None)
        # Not the error itself: each time it is raised it would keep one more traceback.
        self._failures[topic] = _Failure(type(error), str(error), now + keep_ms)
        if len(self._failures) > _MOST_FAILURES:
            self._failures.popitem(last=False)
