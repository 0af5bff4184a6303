"""The read positions and the stored offsets of an in-memory consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.consumers.group_settings import is_off
from reconsume.testing.cluster import InMemoryCluster, StoredRecord

_BEGINNING: Final = ("earliest", "beginning", "smallest")
_END: Final = ("latest", "end", "largest")


class AssignedPositions:
    """The assigned partitions and the next offset of each.

    Args:
        cluster: the cluster to read from.
        group: the group whose committed offsets are the starts.
        reset: `auto.offset.reset`.
        tells_ends: `enable.partition.eof`.

    Attributes:
        paused: partitions that return no records for now.
        given: for each partition, the offset after the last record returned since it was assigned or sought.
    """

    def __init__(self, cluster: InMemoryCluster, group: str, *, reset: str, tells_ends: bool) -> None:
        self._cluster = cluster
        self._group = group
        self._reset = reset
        self._tells_ends = tells_ends
        self._next: dict[Partition, int | None] = {}
        self._ends_told: set[Partition] = set()
        self._ends: dict[Partition, int] | None = None
        self._events: deque[Message] = deque()
        self.paused: set[Partition] = set()
        self.given: dict[Partition, int] = {}

    @property
    def assigned(self) -> set[Partition]:
        """Return the assigned partitions."""
        return set(self._next)

    def note_ends(self) -> None:
        """Freeze the meaning of `latest` to this moment, however late the partitions are assigned."""
        topics = self._cluster.topics.values()
        self._ends = {(topic.name, number): len(log) for topic in topics for number, log in enumerate(topic.partitions)}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions; those without an offset start at the committed one."""
        with self._cluster.changed:
            for one in partitions:
                where = (one.topic, one.partition)
                self._next[where] = self._start(where, one.offset)
                self.given.pop(where, None)
                self._ends_told.discard(where)
                self.paused.discard(where)

    def unassign(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions from the assignment."""
        with self._cluster.changed:
            for where in set(partitions):
                self._next.pop(where, None)
                self.given.pop(where, None)
                self.paused.discard(where)
            kept = [one for one in self._events if (one.topic(), one.partition()) in self._next]
            self._events = deque(kept)

    def _start(self, where: Partition, offset: int) -> int | None:
        if offset == OFFSET_BEGINNING:
            return 0
        end = len(self._cluster.log(where))
        if offset == OFFSET_END:
            return end
        if offset < 0:
            committed = self._cluster.group(self._group).offsets.get(where)
            offset = -1 if committed is None else committed.offset
        if 0 <= offset <= end:
            return offset
        if self._reset in _BEGINNING:
            return 0
        if self._reset in _END:
            return end if self._ends is None else self._ends.get(where, 0)
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "no offset to go on from")
        self._events.append(Message(topic=where[0], partition=where[1], offset=offset, error=error))
        return None

    def next_event(self) -> Message | None:
        """Return the next error or end-of-partition event."""
        if self._tells_ends:
            for where, offset in self._next.items():
                if where not in self._ends_told and offset == len(self._cluster.log(where)):
                    self._ends_told.add(where)
                    end = KafkaError(KafkaError._PARTITION_EOF, "no more messages")
                    self._events.append(Message(topic=where[0], partition=where[1], offset=offset, error=end))
        return self._events.popleft() if self._events else None

    def next_record(self) -> tuple[Partition, StoredRecord] | None:
        """Return the oldest unread record of all partitions, and move on."""
        found = self.readable()
        if found is not None:
            where, record = found
            self._next[where] = self.given[where] = record.offset + 1
            self._ends_told.discard(where)
        return found

    def readable(self) -> tuple[Partition, StoredRecord] | None:
        """Return the oldest unread record of all partitions, without moving."""
        found: tuple[Partition, StoredRecord] | None = None
        logs = self._cluster.logs
        for where, offset in self._next.items():
            log = logs.get(where, ())
            if offset is None or offset >= len(log) or where in self.paused:
                continue
            if found is None or log[offset].sequence < found[1].sequence:
                found = where, log[offset]
        return found


_Offsets = list[tuple[Partition, Commit]]


class StoredOffsets:
    """The offsets that a consumer has stored for its commits, by the rules of librdkafka (2.16).

    Args:
        cluster: the cluster to commit to.
        group: the consumer's group.
        settings: the consumer's; with `enable.auto.offset.store` off the program stores.
    """

    def __init__(self, cluster: InMemoryCluster, group: str, settings: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._group = group
        self._by_itself = not is_off(settings.get("enable.auto.offset.store", True))
        self._stored: dict[Partition, int] = {}

    def returned(self, where: Partition, offset: int) -> None:
        """Note a record that the program has got."""
        if self._by_itself:
            self._stored[where] = offset + 1

    def store(self, offsets: _Offsets, assigned: Collection[Partition]) -> None:
        """Store the offsets of assigned partitions.

        Raises:
            KafkaException: the consumer stores offsets by itself, or none of the partitions is assigned.
        """
        if self._by_itself:
            told = "StoreOffsets failed: enable.auto.offset.store must be False"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, told))
        ours = {where: at.offset for where, at in offsets if where in assigned}
        if offsets and not ours:
            raise KafkaException(KafkaError(KafkaError._STATE, "StoreOffsets failed: the partition is not assigned"))
        self._stored.update(ours)

    def commit(self, partitions: Collection[Partition] | None = None) -> _Offsets:
        """Commit the stored offsets, of all or of these partitions, that are ahead of the committed ones."""
        done = self._cluster.group(self._group).offsets
        ahead = [
            (where, Commit(offset, ""))
            for where, offset in self._stored.items()
            if (partitions is None or where in partitions) and (where not in done or offset > done[where].offset)
        ]
        self._cluster.commit(self._group, ahead)
        return ahead

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget what is stored for partitions that leave."""
        for where in partitions:
            self._stored.pop(where, None)


def given_offsets(message: Message | None, offsets: Sequence[TopicPartition] | None) -> _Offsets:
    """Return the offsets in the arguments of `commit` or `store_offsets`."""
    if message is None:
        return [((one.topic, one.partition), Commit(one.offset, one.metadata or "")) for one in offsets or ()]
    if offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")  # the message of confluent-kafka
    if not isinstance(message, Message):
        raise TypeError("expected confluent_kafka.cimpl.Message")  # likewise
    return [((message.topic() or "", message.partition() or 0), Commit((message.offset() or 0) + 1, ""))]
