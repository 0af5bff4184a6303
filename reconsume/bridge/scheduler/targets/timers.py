"""Delayed messages in a worker: the next lane, and the due moment on the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.polled_records import PolledRecord, stored_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.targets.targets import ListedTopics
from reconsume.delay_levels.errors import MalformedProperty, ReconsumeError
from reconsume.delay_levels.rules.cascade import next_delay_ms
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import REAL_TOPIC, text_property
from reconsume.delay_levels.wire.timer import deliver_ms_of, is_delayed_message

logger = SafeLogger(__name__)

_LOOK_EVERY_MS: Final = 60_000
_LOOK_AGAIN_MS: Final = 5_000


class Cancels(Protocol):
    """The withdrawn messages, by `withdrawal_id` of their UNIQ_KEY."""

    def __contains__(self, withdrawal: bytes) -> bool: ...

    def require(self, due_ms: float) -> None:
        """Raise `CancelsNotRead` while earlier withdrawals may be unknown."""

    def met(self, withdrawals: Iterable[bytes]) -> None:
        """Note that these messages were dropped and the drop was committed."""


@dataclass(slots=True)
class DelayTopics:
    """The existing delay topics of the level table.

    Guarantees: the worker's thread looks up only what no other thread lists, after a change of the table and after an
    aborted batch. Test: tests/unit/bridge/scheduler/targets/test_timers.py.

    Args:
        names: the installation's topics.
        admin: looks up topics.
        groups: the groups as known now, for the level table.
        listed: the topics of the cluster.
    """

    names: TopicNames
    admin: KafkaAdmin
    groups: Callable[[], Groups]
    listed: ListedTopics = field(default_factory=ListedTopics)
    _taken: Mapping[str, int] = field(default_factory=dict)
    _delays: tuple[int, ...] = ()
    _wanted: tuple[int, ...] = ()
    _look_at: float = float("-inf")

    def delays_ms(self, now: float) -> tuple[int, ...]:
        """Return the delays of the lanes; one that is missing or refused is not used, and looked up within a minute."""
        wanted = tuple(delay for delay in self.groups().table.distinct_delays_ms() if delay > 0)
        if self.listed.topics is not self._taken:
            self._taken = self.listed.topics
            if all(self.names.delay(delay) in self._taken for delay in wanted):
                self._delays = self._wanted = wanted
                self._look_at = now + _LOOK_EVERY_MS
        if wanted == self._wanted and now < self._look_at:
            return self._delays
        self._wanted = wanted
        refused: dict[str, ReconsumeError] = {}
        try:
            existing = self.admin.partitions((self.names.delay(delay) for delay in wanted), refused)
        except ReconsumeError as error:
            logger.warning("delay topics not listed: %s", error)
            self._delays = tuple(delay for delay in self._delays if delay in wanted)
            self._look_at = now + _LOOK_AGAIN_MS
            return self._delays
        for topic, why in refused.items():
            logger.warning("delay topic %s is not used for delayed messages: %s", topic, why)
        self._delays = tuple(delay for delay in wanted if self.names.delay(delay) in existing)
        self._look_at = now + _LOOK_EVERY_MS
        return self._delays

    def forget(self) -> None:
        """Look up all again, because a known topic was deleted."""
        self._look_at, self._taken = float("-inf"), self.listed.topics


@dataclass(slots=True)
class Timers:
    """Facts about delayed messages that a worker needs.

    Args:
        names: the installation's topics.
        lanes: the existing delay topics.
        cancels: the withdrawn messages.
        clock: returns milliseconds.
    """

    names: TopicNames
    lanes: DelayTopics
    cancels: Cancels
    clock: Clock = field(default=now_ms)

    def next_lane(self, deliver_ms: int, now: float) -> str:
        """Return the topic where a message waits next; `DELAY.0s` holds it in memory for the last stretch."""
        return self.names.delay(next_delay_ms(now, deliver_ms, self.lanes.delays_ms(now)) or 0)

    def due_ms(self, message: PolledRecord) -> float:
        """Return when a record of `DELAY.0s` leaves; all but delayed messages in their last stretch leave at once."""
        now = self.clock()
        stored = stored_ms(message, self.clock)
        try:
            headers = headers_of(message)
            deliver_ms = deliver_ms_of(headers, now)
            if deliver_ms is None or not is_delayed_message(text_property(headers, REAL_TOPIC) or ""):
                return stored
        except MalformedProperty:
            # The router reports it, in the quarantine.
            return stored
        held = next_delay_ms(now, deliver_ms, self.lanes.delays_ms(now)) is None
        return max(stored, deliver_ms) if held else stored
