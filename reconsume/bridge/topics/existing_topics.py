"""Cached knowledge of topics: whether they exist, and their numbers of partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, TopicNotReady

_LOOK_AGAIN_SECONDS: Final = 60.0
_FAILED_SECONDS: Final = 5.0
_MOST_FAILED: Final = 1_000
_NEVER_FAILED: Final = (float("-inf"), TopicNotReady, "")


class ExistingTopics:
    """Looks topics up before a write, so that brokers never create one automatically with wrong timestamps.

    A missing or forbidden topic is looked up again after 5 s, an existing one after a minute, because partitions may be
    added. Safe to use from several threads.

    Args:
        admin: looks topics up.
        way_out: the remedy for a missing topic.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        way_out: str = "create it: reconsume topics apply",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._way_out = way_out
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}
        self._failed: dict[str, tuple[float, type[ReconsumeError], str]] = {}
        self._lock = threading.Lock()

    def known(self, topic: str) -> int | None:
        """Return the number of partitions if the topic is known to exist, without a look-up."""
        known = self._known.get(topic)
        return None if known is None else known[0]

    def look_again(self) -> None:
        """Look up again the topics that were looked up a minute ago."""
        for topic in list(self._known):
            with suppress(ReconsumeError):
                self.require(topic)

    def require(self, topic: str) -> int:
        """Return the number of partitions.

        Raises:
            TopicNotReady: the topic does not exist.
            KafkaNotReachable: the state is unknown; a topic that existed counts as existing.
        """
        known = self._known.get(topic)
        if known is not None and self._clock() < known[1] + _LOOK_AGAIN_SECONDS:
            return known[0]
        until, kind, text = self._failed.get(topic, _NEVER_FAILED)
        if self._clock() < until:
            raise kind(text)
        try:
            count = self._admin.partitions([topic]).get(topic)
        except KafkaRefused as error:
            self._known.pop(topic, None)
            self._remember(topic, error)
            raise
        except KafkaNotReachable:
            if known is None:
                raise
            count = known[0]
        if count is None:
            self._known.pop(topic, None)
            missing = TopicNotReady(f"topic {topic} does not exist; {self._way_out}")
            self._remember(topic, missing)
            raise missing
        self._known[topic] = count, self._clock()
        return count

    def _remember(self, topic: str, error: ReconsumeError) -> None:
        now = self._clock()
        with self._lock:
            if len(self._failed) >= _MOST_FAILED:
                self._failed = {name: one for name, one in self._failed.items() if one[0] > now}
            if len(self._failed) < _MOST_FAILED:
                self._failed[topic] = now + _FAILED_SECONDS, type(error), str(error)

    def forget(self, topic: str) -> None:
        """Look the topic up again next time."""
        with self._lock:
            self._known.pop(topic, None)
            self._failed.pop(topic, None)
