"""Target partitions that accept no records for now, so that only their own records wait for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.routing import UNWRITTEN, Delivery
from reconsume.delay_levels.errors import KafkaRefused, ReconsumeError

logger = SafeLogger(__name__)

_LOOK_AGAIN_MS: Final = 5_000.0


class TopicStates(Protocol):
    """The part of `KafkaAdmin` that shows whether topics accept records."""

    def described(self, topics: Collection[str], refused: dict[str, ReconsumeError], /) -> Mapping[str, Any]:
        """Return the brokers' description of each existing topic."""

    def settings(self, topics: Iterable[str], /) -> Mapping[str, Mapping[str, str]]:
        """Return the settings in force of each topic, by name."""


class UnavailableTargets:
    """Remembers target partitions without a leader, or with too few in-sync replicas.

    librdkafka retries their records until a timeout that fails the whole transaction, and names no partition.

    Guarantees: their records wait, and are never quarantined for it. Other records wait only behind one of them in the
    same partition. One aborted batch, and then one look every 5 s, is the cost for as long as it lasts.
    Tests: tests/unit/bridge/scheduler/delivery/test_unavailable_targets.py,
    tests/unit/bridge/scheduler/test_worker.py, tests/integration/scheduler/test_refusals.py.

    Args:
        look_up: returns the partitions of these topics that accept no records now, and why.
    """

    def __init__(self, look_up: Callable[[Collection[str]], Mapping[Partition, str]] = lambda _topics: {}) -> None:
        self._look_up = look_up
        self._found: Mapping[Partition, str] = {}
        self._again_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._found)

    def learn(self, batch: Iterable[Delivery], now_ms: float) -> bool:
        """Look at the targets of an aborted batch; return whether one of them accepts no records now."""
        targets = {_target(one) for one in batch if one.outcome not in UNWRITTEN}
        return self._look({topic for topic, _ in targets}, now_ms) and not targets.isdisjoint(self._found)

    def step(self, now_ms: float) -> None:
        """Look again at the unavailable partitions, every 5 s; without an answer their records wait on."""
        if self._found and now_ms >= self._again_at:
            self._look((), now_ms)

    def _look(self, topics: Iterable[str], now_ms: float) -> bool:
        """Look at these topics and at those of unavailable partitions; False without an answer."""
        self._again_at = now_ms + _LOOK_AGAIN_MS
        try:
            found = self._look_up({*topics, *(topic for topic, _ in self._found)})
        except ReconsumeError as error:
            logger.warning("unknown whether topics accept records: %s", error)
            return False
        before, self._found = self._found, found
        for topic, partition in sorted(found.keys() - before.keys()):
            reason = found[topic, partition]
            logger.warning("%s-%d accepts no records now: %s; its records wait", topic, partition, reason)
        for topic, partition in sorted(before.keys() - found.keys()):
            logger.info("%s-%d is written to again", topic, partition)
        return True

    def hold(
        self, runs: Iterable[DueRun], batch: Iterable[Delivery], until_ms: float
    ) -> tuple[list[DueRun], list[Delivery]]:
        """Return the part of the batch that can be written now; hold partitions with a record that cannot."""
        kept_runs, kept, deliveries = list[DueRun](), list[Delivery](), iter(batch)
        for run in runs:
            routed = list(islice(deliveries, len(run.records)))
            ready = next((at for at, one in enumerate(routed) if _target(one) in self._found), len(routed))
            if ready < len(routed):
                run.hold(until_ms)
            if ready:
                kept_runs.append(run.first(ready))
                kept += routed[:ready]
        return kept_runs, kept


def _target(one: Delivery) -> Partition:
    """Return the partition of a delivery; only the quarantine, which has one, is written to without naming it."""
    return one.topic, max(0, one.partition)


def unavailable_partitions(admin: TopicStates, topics: Collection[str]) -> dict[Partition, str]:
    """Return the partitions of these topics that accept no records now, and why.

    Topics that may not be described count as available.
    """
    described = admin.described(topics, {})
    short = [
        topic for topic, told in described.items() if any(len(one.isr) < len(one.replicas) for one in told.partitions)
    ]
    needed = _needed_replicas(admin, short)
    found = {}
    for topic, told in described.items():
        for one in told.partitions:
            if (reason := _why_unavailable(one, needed.get(topic, 1))) is not None:
                found[topic, one.id] = reason
    return found


def _needed_replicas(admin: TopicStates, topics: Sequence[str]) -> dict[str, int]:
    """Return `min.insync.replicas` of those of these topics whose settings may be read."""
    try:
        return {topic: int(found.get("min.insync.replicas", 1)) for topic, found in admin.settings(topics).items()}
    except KafkaRefused as error:
        if len(topics) == 1:
            logger.debug("min.insync.replicas of %s unknown: %s", topics[0], error)
            return {}
    return {name: needed for topic in topics for name, needed in _needed_replicas(admin, [topic]).items()}


def _why_unavailable(partition: Any, needed: int) -> str | None:
    """Return why a partition accepts no records, None if it does.

    Since Kafka 3.7 a topic needs no more in-sync replicas than it has replicas, whatever its setting.
    """
    if getattr(partition.leader, "id", -1) < 0:
        return "it has no leader"
    in_sync, needed = len(partition.isr), min(needed, len(partition.replicas))
    return f"{in_sync} of {needed} needed replicas are in sync" if in_sync < needed else None
