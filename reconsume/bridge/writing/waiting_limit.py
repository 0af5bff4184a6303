"""The limit of a group's waiting messages (`maxWaiting`), which each member enforces."""

from __future__ import annotations

import heapq
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.clients import clients_of
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import GroupIsFull, IllegalName, KafkaRefused, ReconsumeError, SendBackFailed
from reconsume.delay_levels.rules.send_back import DeadLetter
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import SendBackCopy, SendBackRequest

logger = SafeLogger(__name__)

OnDone = Callable[[SendBackFailed | None], None]
"""Called once: with None after the acknowledgement, else with the error."""

_ASK_EVERY_SECONDS: Final = 5.0
_WARN_EVERY_MS: Final = 60_000
NEARLY_FULL: Final = 0.8


class NotDue:
    """Counts added records that are not due yet, in steps of a second."""

    def __init__(self) -> None:
        self._seconds: list[int] = []
        self._counts: Counter[int] = Counter()
        self._total = 0

    def add(self, due_ms: float) -> None:
        """Add a record."""
        second = int(due_ms // 1_000)
        if second not in self._counts:
            heapq.heappush(self._seconds, second)
        self._counts[second] += 1
        self._total += 1

    def count(self, now_ms: float) -> int:
        """Return how many wait; due records are forgotten."""
        while self._seconds and (self._seconds[0] + 1) * 1_000 <= now_ms:
            self._total -= self._counts.pop(heapq.heappop(self._seconds))
        return self._total


class WaitingLimit:
    """Refuses first send-backs of messages while their group is at its limit. Safe to use from several threads.

    Waiting messages are unconsumed records of the group's retry topic, records in its parked topic, and this member's
    send-backs that are in flight or not due. Send-backs of other members are unknown before they are due.

    Guarantees: messages that were sent back before, and dead letters, are never refused, so the waiting messages always
    drain. A group without a limit costs nothing; with one, a background thread asks Kafka every five seconds, and no
    send-back waits for an answer. Tests: tests/unit/bridge/writing/test_waiting_limit.py,
    tests/integration/groups/test_waiting_limit.py.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        groups: the groups as known now.
        client_id: shown in the brokers' logs.
    """

    def __init__(
        self, base: Mapping[str, Any], names: TopicNames, groups: Callable[[], Groups], client_id: str
    ) -> None:
        self._base = base
        self._names = names
        self._groups = groups
        self._client_id = client_id
        self._clock = clients_of(base).steady_clock
        self._lock = threading.Lock()
        self._own: dict[str, NotDue] = {}
        self._begun: Counter[str] = Counter()
        self._told: dict[str, int] = {}
        self._warn_at: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def admit(self, request: SendBackRequest, copy: SendBackCopy, on_done: OnDone) -> OnDone:
        """Count a send-back until the returned function is called in place of `on_done`; or refuse it.

        Raises:
            GroupIsFull: the message may not be sent back now.
        """
        group = request.group
        if not self._limit_of(group):
            return on_done
        self.check(request, copy)
        with self._lock:
            self._begun[group] += 1

        def done(error: SendBackFailed | None) -> None:
            with self._lock:
                self._begun[group] -= 1
            on_done(error)

        return done

    def check(self, request: SendBackRequest, copy: SendBackCopy, beside: int = 0) -> None:
        """Raise `GroupIsFull` if the message may not be sent back now.

        Args:
            request: the send-back request.
            copy: the copy to write; a dead letter does not wait.
            beside: number of other copies that are about to be written.
        """
        group = request.group
        limit = self._limit_of(group)
        if not limit or request.stored.reconsume_times > 0 or isinstance(copy.outcome, DeadLetter):
            return
        waiting = self.waiting(group) + beside
        if waiting >= limit:
            raise GroupIsFull(
                f"group {group}: {waiting:,} messages wait for a retry, and the limit is {limit:,}; this message stays "
                "uncommitted and is tried again. Fix the cause of the failures, lift the pause of the group, or "
                f"change the limit: reconsume groups set {shlex.quote(group)} --max-waiting N, 0 for none"
            )
        if waiting >= NEARLY_FULL * limit and self._clock() >= self._warn_at.get(group, 0):
            self._warn_at[group] = self._clock() + _WARN_EVERY_MS
            logger.warning("group %s: %s messages wait for a retry, and the limit is %s", group, waiting, limit)

    def sent(self, group: str, lane: str) -> None:
        """Note a copy that was stored in a delay topic now; this machine's clock may differ from the brokers'."""
        if self._limit_of(group) and lane != self._names.send_back:
            with self._lock:
                now_ms, own = self._clock(), self._own.setdefault(group, NotDue())
                own.add(now_ms + self._names.delay_ms(lane))
                own.count(now_ms)  # a member that sees only retries asks for no count

    def waiting(self, group: str) -> int:
        """Return how many messages wait, as far as this member knows."""
        with self._lock:
            own = self._own.get(group)
            not_due = 0 if own is None else own.count(self._clock())
            self._told.setdefault(group, 0)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._ask, name="reconsume-waiting", daemon=True)
                self._thread.start()
            return not_due + self._begun[group] + self._told[group]

    def share(self, group: str) -> float:
        """Return the waiting messages as a fraction of the limit; 0 without a limit."""
        limit = 0 if self._stop.is_set() else self._limit_of(group)
        return self.waiting(group) / limit if limit else 0.0

    def close(self) -> None:
        """Stop asking, without waiting for a request in flight."""
        self._stop.set()

    def _limit_of(self, group: str) -> int:
        known = self._groups().by_name.get(group)
        return 0 if known is None else known.max_waiting or 0

    def _ask(self) -> None:
        admin = KafkaAdmin(self._base, self._client_id)
        while not self._stop.is_set():
            for group in list(self._told):
                try:
                    self._told[group] = self._count(admin, group)
                except ReconsumeError as error:
                    logger.debug("waiting messages of group %s unknown: %s", group, error)
                except Exception:
                    # Without this thread the last count would hold forever.
                    logger.exception("waiting messages of group %s unknown; trying again", group)
            self._stop.wait(_ASK_EVERY_SECONDS)

    def _count(self, admin: KafkaAdmin, group: str) -> int:
        found = _unread(admin, self._names.retry(group), group)
        try:
            return found + _unread(admin, self._names.parked(group), self._names.scheduler_group)
        except (KafkaRefused, IllegalName) as error:
            # Consumers need no other right to parked topics, whose names are longer than those of retry topics.
            logger.debug("parked records of group %s do not count: %s", group, error)
            return found


def _unread(admin: KafkaAdmin, topic: str, reader: str) -> int:
    """Return how many records of a topic its reader has not committed.

    Ends of transactions count too, except the one behind each partition's last record: otherwise a limit below the
    number of partitions would stay reached with nothing waiting.
    """
    partitions = all_partitions(admin.partitions([topic]))
    if not partitions:
        return 0
    commits = admin.committed(reader, partitions)
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions)
    return sum(max(0, ends[where] - max(starts[where], commits.get(where, 0)) - 1) for where in partitions)
