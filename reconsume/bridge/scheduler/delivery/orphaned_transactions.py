"""Open transactions of dead workers, ended by the new owners of their partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Any, Final

from reconsume.bridge.kafka.errors import translated
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.transactions import PATIENCE_SECONDS, Transactions
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

logger = SafeLogger(__name__)

_FORGET_MS: Final = 60_000.0
"""Brokers have ended the transactions of members that are gone for this long."""
_SURE_MS: Final = 1_000.0
"""After a pause of its coordinator a group loses all members and gets them back one by one."""


def end_transactions(settings: Mapping[str, Any]) -> None:
    """Abort an open transaction with the transactional id of these settings, and fence its user.

    Raises:
        ReconsumeError: the transaction was not ended.
    """
    doing = f"ending the transactions of {settings['transactional.id']}"
    with closing(Transactions(settings)) as transactions, translated(doing):
        transactions.register(PATIENCE_SECONDS)


class FormerMembers:
    """The workers that were members of the group and are no longer."""

    def __init__(self) -> None:
        self._members: frozenset[str] = frozenset()
        self._gone: dict[str, float] = {}

    def look(self, members: Collection[str], now_ms: float) -> None:
        """Note the current members of the group."""
        current = frozenset(members)
        self._gone |= dict.fromkeys(self._members - current, now_ms)
        self._gone = {
            name: since for name, since in self._gone.items() if name not in current and now_ms - since < _FORGET_MS
        }
        self._members = current

    def take(self, now_ms: float) -> list[str]:
        """Return those that have been gone for a second, each once."""
        gone = sorted(name for name, since in self._gone.items() if now_ms - since >= _SURE_MS)
        for name in gone:
            del self._gone[name]
        return gone

    @property
    def are_left(self) -> bool:
        """Return whether some are gone and not taken yet."""
        return bool(self._gone)


class OrphanedTransactions:
    """Ends the transactions of dead workers, in a background thread.

    A dead worker's open transaction blocks readers of committed records on its targets, and of the offsets of its
    partitions. Brokers end it only after its timeout plus up to 10 s
    (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).

    The group decides which workers are gone: only members may commit offsets. A worker that lives after all, such as
    a paused process, registers again.

    Args:
        members: returns the names of the group's members.
        end: ends the transactions of the worker with this name.
        clock: monotonic milliseconds.
    """

    def __init__(
        self, members: Callable[[], Collection[str]], end: Callable[[str], None], clock: Clock = monotonic_ms
    ) -> None:
        self._ask = members
        self._end = end
        self._clock = clock
        self._former = FormerMembers()
        self._has_new_partitions = False
        self._is_closed = False
        self._rebalanced = threading.Event()
        self._thread = threading.Thread(target=self._work, name="reconsume-orphaned-transactions", daemon=True)

    def start(self) -> None:
        """Start with a look at the members."""
        self._rebalanced.set()
        self._thread.start()

    def noticed(self, has_new_partitions: bool) -> None:
        """Check the group after a rebalance; the new owner of partitions ends their former owners' transactions."""
        self._has_new_partitions |= has_new_partitions
        self._rebalanced.set()

    def close(self) -> None:
        """End the thread after its current request, or the transactions of one worker."""
        self._is_closed = True
        self._rebalanced.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        has_new_partitions = False
        while True:
            # New partitions without a rebalance mean that former members have just left.
            self._rebalanced.wait(_SURE_MS / 1_000 if has_new_partitions else None)
            if self._is_closed:
                return
            self._rebalanced.clear()
            came, self._has_new_partitions = self._has_new_partitions, False
            try:
                has_new_partitions = self.look(has_new_partitions=has_new_partitions or came)
            except Exception:
                # Without this thread each dead worker's transaction would hold its partitions up until its timeout.
                logger.exception("members of the group not compared; the next rebalance tries again")

    def look(self, *, has_new_partitions: bool) -> bool:
        """Compare the members with the previous ones, end orphaned transactions; return whether to look again soon."""
        try:
            self._former.look(self._ask(), self._clock())
        except ReconsumeError as error:
            logger.debug("members of the group unknown: %s", error)
            return has_new_partitions and isinstance(error, KafkaNotReachable)
        if has_new_partitions:
            self._end_orphaned()
        return has_new_partitions and self._former.are_left

    def _end_orphaned(self) -> None:
        for name in self._former.take(self._clock()):
            if self._is_closed:
                return
            try:
                self._end(name)
            except ReconsumeError as error:
                logger.warning("transaction not ended worker=%s: it ends by its timeout: %s", name, error)
            else:
                logger.info("transactions of a lost worker ended worker=%s", name)
