"""Broadcasting: each member reads all partitions, keeps its offsets in a file, and drops failed messages.

The poll loop and the listener services are those of clustering; only the consumer and the sender differ
(RocketMQ: BP-01 to BP-03). The consumer assigns incrementally, because only that
works with either group protocol. Test: tests/integration/consumers/test_broadcasting.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconsume.bridge.kafka.admin import Commit, KafkaAdmin, Partition
from reconsume.bridge.kafka.group_consumer import Answer, GroupConsumer
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.topics.missing_topics import MissingTopics
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import FailedMessage, Sender, points_of, uncommitted
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import OffsetStoreUnusable

logger = SafeLogger(__name__)

_LOOKS_WITHOUT: Final = 6
"""After so many looks a topic counts as deleted: one broker may not know it for a while."""


class Starts(dict[Partition, int]):
    """All partitions to read, each with its start offset.

    Attributes:
        recreated: topics that were deleted and created again since they were found.
    """

    recreated: Collection[str] = ()


class PartitionFinder:
    """Finds the partitions of the subscribed topics and their start offsets, for a `RepeatedLook`.

    A start is saved as soon as it is found, so a restart misses no record after it (RocketMQ uses the new end until a
    first message was consumed). Partitions that appear later are read from their beginning, because all is new. So are
    recreated topics: an offset of the old topic would skip records. If one is being read, the consumer starts anew.
    Deleted topics are read no more, and their offsets are forgotten.
    Tests: tests/unit/consumers/broadcasting/, tests/integration/consumers/test_broadcasting.py.
    """

    def __init__(
        self, admin: KafkaAdmin, subscriptions: Subscriptions, offsets: LocalOffsets, consume_from: ConsumeFrom
    ) -> None:
        self._admin = admin
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._consume_from = consume_from
        self._starts: Starts | None = None
        self._missing: set[str] = set()
        self._missing_topics = MissingTopics()

    def __call__(self) -> Starts:
        """Ask the cluster; return the same object as before if nothing is new.

        Raises:
            KafkaNotReachable: no broker answers.
            KafkaRefused: rights are missing.
            OffsetStoreUnusable: the starts cannot be saved.
        """
        before = self._starts or Starts()
        existing = self._existing()
        new = {(topic, number) for topic, count in existing.items() for number in range(count)} - before.keys()
        if before and (recreated := self._offsets.recreated(self._admin.topic_ids({topic for topic, _ in before}))):
            # Nothing is saved: offsets of the old topic, which are still committed, belong to its id.
            self._starts = Starts(before)
            self._starts.recreated = recreated
            return self._starts
        deleted = self._deleted(existing)
        if self._starts is not None and not new and not deleted:
            return self._starts
        self._offsets.forget(deleted)
        ids = self._admin.topic_ids({topic for topic, _ in new})
        recreated = self._offsets.recreated(ids)
        saved = {
            where: point.offset
            for where in new
            if where[0] not in recreated and (point := self._offsets.get(*where)) is not None
        }
        first = self._first_offsets(new - saved.keys())
        self._offsets.save({where: Commit(offset, "") for where, offset in first.items()}, ids)
        for topic in sorted(recreated):
            logger.warning("broadcasting: topic %s was recreated; it is read from its beginning", topic)
        kept = {where: offset for where, offset in before.items() if where[0] not in deleted}
        self._starts = Starts({**kept, **saved, **first})
        return self._starts

    def _existing(self) -> dict[str, int]:
        wanted = self._subscriptions
        existing = wanted.existing(self._admin)
        missing = set(wanted) - existing.keys()
        for topic in sorted(missing - self._missing):
            remedy = wanted.remedy_if_missing(topic)
            logger.warning(
                "broadcasting: topic %s does not exist; %s; it will be read from its beginning", topic, remedy
            )
        self._missing = missing
        return existing

    def _deleted(self, existing: Mapping[str, int]) -> set[str]:
        """Return subscribed topics with offsets that have not existed for `_LOOKS_WITHOUT` looks."""
        wanted = self._subscriptions
        without = [topic for topic in self._offsets.topics() - existing.keys() if wanted.get(topic) is not None]
        deleted = {topic for topic, looks in self._missing_topics.look(without).items() if looks >= _LOOKS_WITHOUT}
        for topic in sorted(deleted):
            logger.info("broadcasting: topic %s was deleted; its offsets are forgotten", topic)
        return deleted

    def _first_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return start offsets; in a topic that was read before, a partition without an offset is new."""
        known = self._offsets.topics()
        appeared = {one for one in partitions if self._starts is not None or one[0] in known}
        others = set(partitions) - appeared
        where = self._consume_from.where
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            appeared, others = appeared | others, set()
        found = self._admin.end_offsets(appeared, earliest=True)
        if others and where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            found |= self._admin.offsets_at(others, self._consume_from.timestamp_ms)
        elif others:
            found |= self._admin.end_offsets(others)
        return found


class BroadcastConsumer(GroupConsumer):
    """A consumer without a group for the poll loop. A `RepeatedLook` finds its partitions, and none is revoked.

    Args:
        settings: for librdkafka.
        found: must be started.
        offsets: the saved offsets.
    """

    def __init__(self, settings: Mapping[str, Any], found: RepeatedLook[Starts], offsets: LocalOffsets) -> None:
        super().__init__(settings)
        self._found = found
        self._offsets = offsets
        self._seen: Starts | None = None
        self._assigned: set[Partition] = set()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Do nothing: the `RepeatedLook` finds the topics."""

    def follow(self) -> None:
        """Assign new partitions, and leave those of deleted topics.

        Raises:
            MembershipLost: a topic was recreated.
        """
        latest = self._found.latest
        if latest is self._seen or latest is None:
            return
        if latest.recreated:
            raise MembershipLost(f"topic {', '.join(sorted(latest.recreated))} was deleted and created again")
        self._seen = latest
        if deleted := sorted(self._assigned - latest.keys()):
            self.owner.lost(deleted)
            self.stop(deleted)
        new = {where: offset for where, offset in sorted(latest.items()) if where not in self._assigned}
        self._assigned = set(latest)
        if new:
            logger.info(
                "reading %s", ", ".join(f"{topic}-{number} from {offset}" for (topic, number), offset in new.items())
            )
            self.owner.assigned(list(new))
            self.start(new)

    def committed(self, partitions: Collection[Partition], seconds: float) -> dict[Partition, Answer]:
        """Return the saved offsets and metadata."""
        del seconds
        return {where: self._offsets.get(*where) or Commit(-1, "") for where in partitions}


@dataclass(slots=True)
class DropCounter:
    """Counts dropped messages; only one thread may count."""

    count: int = 0


@dataclass(eq=False, kw_only=True)
class BroadcastSender(Sender):
    """Drops failed messages and logs them (RocketMQ: BP-01); saves offsets in the file (RocketMQ: BP-02).

    Attributes:
        offsets: the offset file.
        dropped: the counter.
    """

    offsets: LocalOffsets
    dropped: DropCounter

    def write(self, failed: FailedMessage) -> None:
        """Drop the message: every other member has it too, and a retry would reach only one of them."""
        self.dropped.count += 1
        self.log.dropped(failed.message, self.dropped.count)
        failed.done(None)

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Save new offsets; if the disk refuses, the next commit tries again."""
        pending = uncommitted(queues)
        if not pending:
            return
        try:
            self.offsets.commit(points_of(pending))
        except OffsetStoreUnusable as error:
            # Nothing is lost: messages of unsaved offsets are read again.
            logger.warning("%s; trying again", error)
            return
        for queue, point in pending.items():
            queue.committed = point

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Save new offsets."""
        written = self._wait_until_written(seconds)
        self.commit(queues)
        return written
