"""Withdrawn delayed messages, which every worker reads in a background thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.topic_follower import TopicFollower
from reconsume.bridge.scheduler.withdrawals.withdrawals_reader import WithdrawalsReader
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.withdrawals import Withdrawals

logger = SafeLogger(__name__)

HEARD_WITHIN_MS: Final = 1_000
"""A withdrawal acknowledged at least this long before its message is due is always obeyed."""

_LOOK_EVERY_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 2.0
_COUNT_SECONDS: Final = 1.0


class CancelsNotRead(KafkaNotReachable):
    """The worker has not read the CANCEL topic recently, so this message may have been withdrawn."""


class CancelsFollower(TopicFollower):
    """Follows withdrawals, and knows how current its knowledge is.

    Guarantees: a delayed message leaves only if CANCEL was read to its end later than one second before its moment;
    otherwise it is held, and its run ends before it. Test: tests/unit/bridge/scheduler/test_worker.py.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        clock: returns milliseconds, for the moments at which messages are due.
        elapsed: monotonic milliseconds.
    """

    def __init__(
        self, base: Mapping[str, Any], names: TopicNames, clock: Clock = now_ms, elapsed: Clock = monotonic_ms
    ) -> None:
        super().__init__(base, names.cancel, "reconsume-cancels", _AGAIN_SECONDS, _COUNT_SECONDS)
        self._names = names
        self._clock = clock
        self._elapsed = elapsed
        self._withdrawals = Withdrawals()
        self._met: deque[bytes] = deque()
        self._complete_at = (float("-inf"), float("-inf"))

    def __len__(self) -> int:
        """Return the number of withdrawals in memory."""
        return len(self._withdrawals)

    def __contains__(self, withdrawal: bytes) -> bool:
        """Return whether a message is known to be withdrawn; also before everything was read."""
        return withdrawal in self._withdrawals

    def require(self, due_ms: float) -> None:
        """Return if every withdrawal acknowledged `HEARD_WITHIN_MS` before this moment is known.

        Raises:
            CancelsNotRead: not known yet; ask again in a moment.
        """
        elapsed_ms, clock_ms = self._complete_at
        # The clock may have been set back since, and no time elapses on a machine that is suspended.
        if min(clock_ms, self._clock() - (self._elapsed() - elapsed_ms)) < due_ms - HEARD_WITHIN_MS:
            raise CancelsNotRead(f"topic {self._names.cancel} was not read lately; delayed messages wait until it is")

    def met(self, withdrawals: Iterable[bytes]) -> None:
        """Note dropped messages whose drop is committed: their withdrawals are done."""
        self._met.extend(withdrawals)

    def _follow(self, admin: KafkaAdmin) -> None:
        """Read until stopped; look up the topic's end, and read that far, four times a second.

        The end is not looked up again before it is reached: while requests arrive, the newest one is rarely read.
        """
        look_at, ends, looked_at = 0.0, None, self._complete_at
        with closing(WithdrawalsReader(self._base, self._names, self._withdrawals, self._clock)) as reader:
            reader.start(admin, self._stop)
            while not self._stop.is_set() and not reader.is_over(admin):
                reader.read()
                if ends is None and time.monotonic() >= look_at:
                    look_at = time.monotonic() + _LOOK_EVERY_SECONDS
                    looked_at = self._elapsed(), self._clock()
                    if self._has_grown(admin, len(reader.partitions)):
                        return
                    # Withdrawals of an open transaction count too, so this waits for its end.
                    ends = admin.end_offsets(reader.partitions, uncommitted=True)
                    self._forget(reader)
                if ends is not None and reader.has_reached(ends):
                    self._complete_at, ends = looked_at, None

    def _failed(self, error: ReconsumeError) -> None:
        logger.warning("withdrawals not read, delayed messages wait: %s", error)

    def _forget(self, reader: WithdrawalsReader) -> None:
        now = self._clock()
        while self._met:
            self._withdrawals.met(self._met.popleft(), now)
        reader.done(self._withdrawals.forget(now))
