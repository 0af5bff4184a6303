"""The partitions of a worker from their assignment on, and the start of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.errors import is_end
from reconsume.bridge.kafka.group_consumer import COMMITTED, GroupConsumer, names_of
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.polled_records import PolledRecord, offset_of, place_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.membership.earlier_owners import EarlierOwners, EarlierProgress
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.bridge.scheduler.stalls import ReadingStopped
from reconsume.delay_levels.errors import IllegalName, ReconsumeError
from reconsume.delay_levels.wire.names import TopicNames

logger = SafeLogger(__name__)

_AGAIN_MS: Final = 500.0

Refused = Callable[[Collection[str]], dict[str, str]]
"""Returns those of these topics that may not be scheduled from, with the reasons."""


class Assignment:
    """Passes a partition's records to the read-ahead once the progress of earlier owners is known.

    The request follows the first record of a partition, or its end: by then librdkafka has waited for open transactions
    of dead owners, which hold the offset back for up to 20 s.

    Args:
        consumer: the group's member.
        read_ahead: the queues of the partitions.
        owners: finds where partitions continue.
        names: the installation's topics.
        refused: returns those of these topics that are not scheduled from, with the reasons.
        due_of: returns the due moment of a record of `DELAY.0s`.
        is_paused: returns whether the retries of a group are paused now.
        clock: monotonic milliseconds.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        read_ahead: ReadAhead,
        owners: EarlierOwners,
        *,
        names: TopicNames,
        refused: Refused,
        due_of: Callable[[PolledRecord], float],
        is_paused: Callable[[str], bool],
        clock: Clock = monotonic_ms,
    ) -> None:
        self._consumer = consumer
        self._read_ahead = read_ahead
        self._owners = owners
        self._names = names
        self._refused = refused
        self._due_of = due_of
        self._is_paused = is_paused
        self._clock = clock
        self._new: set[Partition] = set()
        self._waiting: dict[Partition, list[PolledRecord]] = {}
        self._done_before: dict[Partition, int] = {}
        self._refused_partitions: set[Partition] = set()
        self._again_at = 0.0

    @property
    def refused(self) -> int:
        """The number of partitions that are not scheduled from."""
        return len(self._refused_partitions)

    @property
    def is_begun(self) -> bool:
        """Whether records of all partitions can go directly to the read-ahead."""
        return not (self._new or self._waiting or self._done_before)

    def assign(self, partitions: Sequence[Partition]) -> None:
        """Start assigned partitions; drop leftovers of an earlier assignment that was not revoked.

        Raises:
            KafkaNotReachable: no answer about their topics.
            ReadingStopped: one of their topics was created again, and other partitions of it are being read.
        """
        self.revoke(set(partitions))
        # At once: from now on positions would have the new id beside offsets of the deleted topic.
        self.check_ids(self._owners.meet(partitions))
        waits: dict[str, int | str] = {}
        refused: dict[str, str] = {}
        for topic in {topic for topic, _ in partitions}:
            is_parked = self._names.is_parked(topic)
            try:
                waits[topic] = self._names.group_parked_in(topic) if is_parked else self._names.delay_ms(topic)
            except IllegalName as error:
                refused[topic] = str(error)
        refused |= self._refused(waits)
        for topic, reason in refused.items():
            logger.error("not scheduling from %s: %s", topic, reason)
        for where in partitions:
            if where[0] not in refused:
                self._read(where, waits[where[0]])
        self._consumer.start(dict.fromkeys(partitions, COMMITTED))
        # librdkafka (2.16) keeps a pause across an assignment that was lost and returned:
        # tests/integration/scheduler/test_faults.py.
        self._consumer.resume(partitions)
        paused = [where for where in partitions if not self._read_ahead.owns(where)]
        self._consumer.pause(paused)
        self._refused_partitions.update(paused)

    def _read(self, where: Partition, waits: int | str) -> None:
        """Read a partition whose records wait for these milliseconds, or for the end of this group's pause."""
        if where[0] == self._names.delay(0):
            self._read_ahead.assign_held(*where, self._due_of)
        elif isinstance(waits, str):
            self._read_ahead.assign_parked(*where, partial(self._is_paused, waits))
        else:
            self._read_ahead.assign(*where, waits)
        self._new.add(where)

    def revoke(self, gone: set[Partition]) -> None:
        """Release partitions: another worker starts with them."""
        self._read_ahead.revoke(gone)
        self._owners.revoke(gone)
        self._refused_partitions -= gone
        self._new -= gone
        for where in gone:
            self._done_before.pop(where, None)
            self._waiting.pop(where, None)

    def heard_of(self, messages: Iterable[PolledRecord]) -> None:
        """Look up where partitions continue whose first record, or end, has arrived.

        Raises:
            ReconsumeError: the committed offsets are unavailable.
            ReadingStopped: the offsets are those of a deleted topic.
        """
        read = {place_of(one) for one in messages if _is_record_or_end(one)}
        if come := self._new & read:
            self._begin(come)

    def try_again(self) -> None:
        """Ask again for partitions with a later position in an open transaction; raises the same."""
        if self._waiting and self._clock() >= self._again_at:
            self._begin(set(self._waiting))

    def _begin(self, partitions: set[Partition]) -> None:
        left, undecided = self._owners.ask(partitions)
        if any(one.is_outdated for one in left.values()):
            # All at once, because the consumer is restarted.
            left, _ = self._owners.ask([(queue.topic, queue.partition) for queue in self._read_ahead])
            outdated = sorted(where for where, one in left.items() if one.is_outdated)
            self._commit_beginnings(outdated)  # the next consumer finds the refused ones again
            raise _begun_anew(outdated)
        self._new -= partitions
        if undecided:
            self._again_at = self._clock() + _AGAIN_MS
            come = [where for where in undecided if where not in self._waiting]
            self._consumer.pause(come)
            self._waiting.update({where: [] for where in come})
        restored = {where: one for where, one in left.items() if one.is_restored}
        if restored:
            self._restore(restored)
        for where, one in left.items():
            self._read_ahead.learn(where, one.offset, one.done)
            self._done_before[where] = one.offset
        decided = [where for where in partitions - undecided if where in self._waiting]
        for where in decided:
            self._read_ahead.was_paused(where)
            if messages := self._waiting.pop(where):
                self.add(where, messages)
        self._consumer.resume(decided)

    def check_ids(self, ids: Mapping[str, str]) -> None:
        """Begin partitions anew whose topics were deleted and created again: their records are not copies of read ones.

        librdkafka (2.16) compares names alone, so nothing was revoked if no request for metadata fell in between.
        If Kafka does not take their new offsets, the next call tries again: a new consumer would take the old offsets
        for those of the new topic.

        Raises:
            ReadingStopped: there are some.
        """
        recreated = self._owners.recreated(ids)
        if not recreated:
            return
        if self._commit_beginnings(recreated):
            self._owners.forget_topics({topic for topic, _ in recreated})
            told = names_of(recreated)
            logger.error("topics were deleted and created again, offsets not replaced, trying again: %s", told)
            return
        raise _begun_anew(recreated)

    def _commit_beginnings(self, partitions: Iterable[Partition]) -> Collection[Partition]:
        """Replace the offsets of a deleted topic; return the refused partitions."""
        return self._consumer.commit(dict.fromkeys(partitions, Commit(0, "")), wait=True)

    def _restore(self, positions: dict[Partition, EarlierProgress]) -> None:
        """Commit positions that the group's coordinator has lost, and continue from there."""
        logger.warning(
            "coordinator lost offsets of the group, continuing at positions: %s",
            ", ".join(f"{topic}-{number}@{one.offset}" for (topic, number), one in sorted(positions.items())),
        )
        self._consumer.commit({where: Commit(one.offset, one.metadata) for where, one in positions.items()}, wait=True)
        for where, one in positions.items():
            try:
                self._consumer.seek(where, one.offset)
            except ReconsumeError as error:
                # Records below the position are read and dropped.
                logger.warning("%s", error)

    def add(self, where: Partition, run: Sequence[PolledRecord]) -> None:
        """Keep records of a partition that earlier owners have not delivered.

        librdkafka may return delivered ones too (see `StaleRecords`). It also starts anew if the group's coordinator
        reports no commit.
        """
        if (waiting := self._waiting.get(where)) is not None:
            waiting.extend(run)
            return
        offset = self._done_before.get(where, 0)
        left = [message for message in run if offset_of(message) >= offset] if offset_of(run[0]) < offset else run
        if left:
            self._done_before.pop(where, None)
        self._read_ahead.add(where, left)


def _begun_anew(partitions: Sequence[Partition]) -> ReadingStopped:
    """Return the error after which the next consumer reads the new topics from their beginnings."""
    return ReadingStopped(f"topics were deleted and created again, beginning anew: {names_of(partitions)}")


def _is_record_or_end(message: PolledRecord) -> bool:
    error = message.error()
    return error is None or is_end(error)
