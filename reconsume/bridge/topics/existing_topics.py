"""Whether a topic exists, asked once for each that does, and now and then for one that does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.delay_levels.errors import KafkaRefused, ReconsumeError, TopicNotReady

__all__ = ["ExistingTopics"]

_FAILED_SECONDS: Final = 5.0
_MOST_FAILED: Final = 1_000
_NEVER_FAILED: Final = (float("-inf"), TopicNotReady, "")


class ExistingTopics:
    """Never let the brokers make a topic of ours by themselves: it would have the wrong timestamps.

    A topic that is missing, or may not be looked at, is asked for again after 5 s. Safe to use from several threads.

    Args:
        admin: to look for topics.
        way_out: what to do about a topic that is missing.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        way_out: str = "make it: reconsume topics apply",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._way_out = way_out
        self._clock = clock
        self._known: set[str] = set()
        self._failed: dict[str, tuple[float, type[ReconsumeError], str]] = {}

    def knows(self, topic: str) -> bool:
        """Whether it is known to exist, without asking."""
        return topic in self._known

    def require(self, topic: str) -> None:
        """Raises `TopicNotReady` if it does not exist, `KafkaNotReachable` if nobody can tell."""
        if topic in self._known:
            return
        until, kind, text = self._failed.get(topic, _NEVER_FAILED)
        if self._clock() < until:
            raise kind(text)
        try:
            is_there = topic in self._admin.partitions([topic])
        except KafkaRefused as error:
            self._remember(topic, error)
            raise
        if not is_there:
            missing = TopicNotReady(f"topic {topic} does not exist; {self._way_out}")
            self._remember(topic, missing)
            raise missing
        self._known.add(topic)

    def _remember(self, topic: str, error: ReconsumeError) -> None:
        now = self._clock()
        if len(self._failed) >= _MOST_FAILED:
            self._failed = {name: one for name, one in self._failed.items() if one[0] > now}
        if len(self._failed) < _MOST_FAILED:
            self._failed[topic] = now + _FAILED_SECONDS, type(error), str(error)

    def forget(self, topic: str) -> None:
        """Look again the next time."""
        self._known.discard(topic)
        self._failed.pop(topic, None)
