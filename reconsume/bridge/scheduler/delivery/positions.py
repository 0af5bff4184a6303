"""The POSITIONS topic: positions of workers, written with their deliveries and read when a partition is assigned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.admin import Commit, KafkaAdmin, Partition
from reconsume.bridge.kafka.partitioning import NO_ID
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import KafkaRefused, MalformedProperty
from reconsume.delay_levels.wire.positions import (
    StoredPosition,
    decode_position,
    encode_position,
    partition_of_key,
    position_key,
)

logger = SafeLogger(__name__)

ONLY_PARTITION: Final = 0
"""The only partition of the POSITIONS topic."""
_SECONDS: Final = 5.0
"""Limit of a read, during which the worker delivers nothing."""


class PositionRecord(NamedTuple):
    """One record to write."""

    topic: str
    key: str
    value: bytes | None


class LastPositions(NamedTuple):
    """The last position of each partition, up to some end of the topic.

    Attributes:
        end: the offset before which every record was read.
        last: by partition the offset of the record, and the position; None after a reset.
    """

    end: int
    last: Mapping[Partition, tuple[int, StoredPosition | None]]


class PositionLog:
    """Writes and reads the positions of one installation.

    Args:
        base: librdkafka settings that every client uses.
        topic: the POSITIONS topic, with one partition, so the last record of a key counts.
        transactional_id: this worker's id.
    """

    def __init__(self, base: Mapping[str, Any], topic: str, transactional_id: str = "") -> None:
        self._base = base
        self._topic = topic
        self._transactional_id = transactional_id
        self._admin = KafkaAdmin(base, "reconsume-positions")
        self._ids: dict[str, str] = {}
        self._uncommitted = LastPositions(0, {})

    def meet(self, topics: Iterable[str]) -> None:
        """Ask for topic ids before the first record is read, so that no position gets a later topic's id.

        Without the right to describe a topic, its positions are neither written nor used.

        Raises:
            KafkaNotReachable: no answer.
        """
        self._uncommitted = LastPositions(0, {})
        wanted = list(topics)
        self.forget(wanted)
        try:
            self._ids.update(self._admin.topic_ids(wanted))
        except KafkaRefused as error:
            if len(wanted) > 1:
                for topic in wanted:
                    self.meet([topic])
            else:
                logger.warning("no positions topic=%s: %s", wanted[0], error)

    def learn(self, ids: Mapping[str, str]) -> None:
        """Note the ids of known topics that had none: they got them in an upgrade of the brokers."""
        self._ids |= {topic: ids[topic] for topic, id_ in self._ids.items() if id_ == NO_ID and topic in ids}

    def forget(self, topics: Iterable[str]) -> None:
        """Forget the ids of topics: their positions are neither written nor used."""
        for topic in topics:
            self._ids.pop(topic, None)

    @property
    def trial(self) -> PositionRecord:
        """Return a record for an aborted transaction that tests whether positions can be written."""
        return PositionRecord(self._topic, position_key(self._topic, 0), None)

    def id_of(self, topic: str) -> str | None:
        """Return the id of a topic, if it is known."""
        return self._ids.get(topic)

    def records(self, offsets: Mapping[Partition, Commit]) -> list[PositionRecord]:
        """Return the records that go with a batch which commits these offsets."""
        return [
            PositionRecord(
                self._topic,
                position_key(*where),
                encode_position(StoredPosition(*one, self._ids[where[0]], self._transactional_id)).encode(),
            )
            for where, one in offsets.items()
            if where[0] in self._ids
        ]

    def uncommitted(self) -> LastPositions:
        """Return all written positions, also of open and aborted transactions; reads records since `meet`."""
        self._uncommitted = self._read(self._uncommitted, uncommitted=True)
        return self._uncommitted

    def committed(self) -> LastPositions:
        """Return all positions before the first open transaction.

        Raises:
            KafkaNotReachable: no answer; also from `uncommitted`.
            KafkaRefused: the right to read the topic is missing.
        """
        return self._read(LastPositions(0, {}), uncommitted=False)

    def _read(self, before: LastPositions, *, uncommitted: bool) -> LastPositions:
        where = self._topic, 0
        end, last = self._admin.end_offsets([where], uncommitted=uncommitted)[where], dict(before.last)
        with RangeReader(self._base, self._topic, uncommitted=uncommitted, seconds=_SECONDS) as reader:
            newest = {message.key(): message for message in reader.read({where: (before.end, end)})}
        for key, message in newest.items():
            try:
                partition, value = partition_of_key(key), message.value()
                last[partition] = message.offset() or 0, None if value is None else decode_position(value)
            except MalformedProperty as error:
                logger.warning("record skipped topic=%s offset=%s: %s", self._topic, message.offset(), error)
        return LastPositions(max(before.end, end), last)
