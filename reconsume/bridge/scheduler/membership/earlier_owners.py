"""The progress of a partition's earlier owners: committed offsets, and finished records above them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.kafka.partitioning import NO_ID, is_another_topic
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.positions import LastPositions, PositionLog
from reconsume.delay_levels.errors import KafkaNotReachable, MalformedProperty, ReconsumeError
from reconsume.delay_levels.progress.done_ahead import decode_done
from reconsume.delay_levels.wire.positions import StoredPosition

logger = SafeLogger(__name__)

_SECONDS: Final = 3.0
_TRIES: Final = 4
"""A request to an absent coordinator may get no answer even after its return; a new request does."""
_PATIENCE_MS: Final = 30_000.0
"""Brokers have aborted a dead worker's transaction by then."""


class EarlierProgress(NamedTuple):
    """The next record to deliver by a commit or position, and the delivered records above.

    Attributes:
        is_restored: whether the coordinator had lost it.
        is_outdated: whether the group's commit was for a deleted topic of this name.
    """

    offset: int
    metadata: str = ""
    done: frozenset[int] = frozenset()
    is_restored: bool = False
    is_outdated: bool = False


class EarlierOwners:
    """Finds where partitions continue: at the committed offset, or at the last position if that is ahead.

    A group's coordinator may lose offsets; positions are records of the same transactions. An open transaction of any
    worker hides later positions from readers of committed records, but seldom delays a partition: if not even the last
    uncommitted position is ahead of the committed offset, no committed one is.

    Guarantees: offsets that a coordinator loses do no harm. Only a partition with an uncommitted position ahead of
    its committed offset waits, 30 s at most. Topic ids are asked for before the first record is read, so a position
    never has the id of a later topic. A position without an id counts only for a partition whose topic had none at its
    assignment, and has that offset: else it may be for a deleted topic. A commit beyond the end of a partition does not
    count if its last position is for a deleted topic. With the same id the brokers have lost records, and the delivered
    ones are not repeated.
    Tests: tests/unit/bridge/scheduler/membership/test_earlier_owners.py, tests/integration/bridge/test_lost_offsets.py,
    tests/integration/scheduler/test_positions.py, tests/models/scheduler/test_worker_model.py.

    Args:
        consumer: a member of the schedulers' group, which reads committed records.
        positions: the positions; with None the committed offsets count.
        is_stopping: returns whether to stop waiting for the coordinator.
        clock: monotonic milliseconds.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        positions: PositionLog | None,
        is_stopping: Callable[[], bool] = lambda: False,
        clock: Clock = monotonic_ms,
    ) -> None:
        self._consumer = consumer
        self._positions = positions
        self._is_stopping = is_stopping
        self._clock = clock
        self._undecided_since: dict[Partition, float] = {}
        self._first_ids: dict[Partition, str] = {}
        self._ids: dict[Partition, str] = {}

    def meet(self, partitions: Collection[Partition]) -> Mapping[str, str]:
        """Note the topics of partitions that are about to be assigned; return their ids.

        Raises:
            KafkaNotReachable: no answer.
        """
        if self._positions is None:
            return {}
        self._positions.meet({topic for topic, _ in partitions})
        ids = {where: id_ for where in partitions if (id_ := self._positions.id_of(where[0])) is not None}
        self._first_ids.update(ids)
        self._ids.update(ids)
        return {topic: id_ for (topic, _), id_ in ids.items()}

    def recreated(self, ids: Mapping[str, str]) -> list[Partition]:
        """Return the assigned partitions whose topics have another id than at the assignment.

        A topic that had none gets its id in an upgrade of the brokers; from now on its positions have it too.
        """
        if self._positions is not None:
            self._positions.learn(ids)
        present = {where: ids.get(where[0], id_) for where, id_ in self._ids.items()}
        self._ids |= {where: id_ for where, id_ in present.items() if self._ids[where] == NO_ID}
        return sorted(where for where, id_ in present.items() if is_another_topic(self._ids[where], id_))

    def ask(self, partitions: Collection[Partition]) -> tuple[dict[Partition, EarlierProgress], set[Partition]]:
        """Return where partitions continue, if they have an offset, and the undecided ones to ask again.

        After 30 s the committed offset counts.

        Raises:
            ReconsumeError: the committed offsets are unavailable.
        """
        if not partitions:
            return {}, set()
        left = self._committed(partitions)
        undecided = self._look_ahead(partitions, left) if self._positions is not None else set()
        now = self._clock()
        self._undecided_since = {
            where: since
            for where, since in self._undecided_since.items()
            if where in undecided or where not in partitions
        }
        late = {where for where in undecided if now - self._undecided_since.setdefault(where, now) >= _PATIENCE_MS}
        if late:
            told = ", ".join(f"{topic}-{number}" for topic, number in sorted(late))
            logger.error("position unknown after %.0f s, using the committed offset: %s", _PATIENCE_MS / 1_000, told)
            self.forget(late)
        return {where: one for where, one in left.items() if where not in undecided - late}, undecided - late

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions of another worker."""
        for where in partitions:
            self._undecided_since.pop(where, None)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Write and use no positions of these topics: their ids may not match the committed offsets."""
        if self._positions is not None:
            self._positions.forget(topics)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that are no longer assigned."""
        self.forget(partitions)
        for where in partitions:
            self._first_ids.pop(where, None)
            self._ids.pop(where, None)

    def _look_ahead(self, partitions: Collection[Partition], left: dict[Partition, EarlierProgress]) -> set[Partition]:
        """Replace commits by positions ahead of them; return partitions that may have a hidden one."""
        assert self._positions is not None
        try:
            written = self._positions.uncommitted()
            for where in [where for where in left if self._is_outdated(written, where, left[where].offset)]:
                left[where] = EarlierProgress(0, is_outdated=True)
            ahead = [where for where in partitions if self._ahead(written, where, left)]
            if not ahead:
                return set()
            stored = self._positions.committed()
            counted = {where: position for where in ahead if (position := self._ahead(stored, where, left))}
        except ReconsumeError as error:
            logger.warning("positions not read, trying again: %s", error)
            return set(partitions)
        for where, position in counted.items():
            left[where] = _left(where, position.offset, position.metadata, is_restored=True)
        return {where for where in ahead if written.last[where][0] >= stored.end}

    def _ahead(
        self, written: LastPositions, where: Partition, left: Mapping[Partition, EarlierProgress]
    ) -> StoredPosition | None:
        """Return a partition's last position if it is ahead of the commit and counts."""
        _, position = written.last.get(where, (0, None))
        if position is None or covers(left.get(where), where, position.offset, position.metadata):
            return None
        return position if self._counts(position, where) else None

    def _counts(self, position: StoredPosition, where: Partition) -> bool:
        """Return whether a position is for the topic that was assigned; without ids a shorter topic is another one."""
        assert self._positions is not None
        id_ = self._ids.get(where)
        if id_ is None or self._positions.id_of(where[0]) is None or is_another_topic(position.topic_id, id_):
            return False
        if NO_ID not in (position.topic_id, id_):
            return True
        had_none = self._first_ids[where] == NO_ID
        return had_none and position.offset <= self._consumer.first_and_end(where, _SECONDS)[1]

    def _is_outdated(self, written: LastPositions, where: Partition, committed: int) -> bool:
        """Return whether a partition's last position is for a deleted topic, and its new topic is not that long."""
        assert self._positions is not None
        id_, (_, position) = self._positions.id_of(where[0]), written.last.get(where, (0, None))
        is_of_deleted = position is not None and id_ is not None and is_another_topic(position.topic_id, id_)
        return is_of_deleted and self._consumer.first_and_end(where, _SECONDS)[1] < committed

    def _committed(self, partitions: Collection[Partition]) -> dict[Partition, EarlierProgress]:
        for tries_left in reversed(range(_TRIES)):
            try:
                found = self._consumer.committed(partitions, _SECONDS)
            except KafkaNotReachable:
                if not tries_left or self._is_stopping():
                    raise
            else:
                break
        left = {}
        for where, one in found.items():
            if isinstance(one, ReconsumeError):
                raise one
            if one.offset >= 0:
                left[where] = _left(where, *one)
        return left


def covers(left: EarlierProgress | None, where: Partition, offset: int, metadata: str) -> bool:
    """Return whether the partition is at this offset with this metadata, or beyond.

    Records that are delivered out of order change only the metadata.
    """
    if left is None or left.offset != offset:
        return left is not None and left.offset > offset
    return _left(where, offset, metadata).done <= left.done


def _left(where: Partition, offset: int, metadata: str, *, is_restored: bool = False) -> EarlierProgress:
    try:
        return EarlierProgress(offset, metadata, decode_done(offset, metadata), is_restored)
    except MalformedProperty as error:
        logger.warning("metadata ignored topic=%s partition=%d: %s", *where, error)
        return EarlierProgress(offset, is_restored=is_restored)
