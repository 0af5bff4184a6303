"""What Kafka promises of a consumer group, for the model: logs, commits, generations, and a consumer on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress
from tests.unit.consumers.doubles import RETRY_TOPIC

__all__ = ["PARTITIONS", "Client", "Kafka", "Meanwhile", "Where"]

PARTITIONS: Final = [("flights", 0), ("flights", 1), (RETRY_TOPIC, 0)]
READ_AT_ONCE: Final = 4
_NO_OFFSET: Final = KafkaError(KafkaError._NO_OFFSET).str()

Where = tuple[str, int]
Meanwhile = Callable[[], None]


@dataclass(eq=False)
class Kafka:
    """The logs, the group, and what became of each record; a record's body tells where it stands.

    Attributes:
        logs: None is a marker of a transaction, which no consumer gets.
        told: what the group's coordinator says is committed.
        generation: of the group; of a member that was put out it is a lower one.
        broken: what was promised and not kept, noted when it happened.
        busy: whose listeners go on, by partition.
    """

    now: float = 0.0
    logs: dict[Where, list[KafkaMessage | None]] = field(default_factory=lambda: {one: [] for one in PARTITIONS})
    committed: dict[Where, tuple[int, str]] = field(default_factory=dict)
    told: dict[Where, tuple[int, str]] = field(default_factory=dict)
    generation: int = 1
    succeeded: set[bytes] = field(default_factory=set)
    calls: Counter[bytes] = field(default_factory=Counter)
    sent_back: Counter[bytes] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    busy: dict[Where, list[Client]] = field(default_factory=lambda: defaultdict(list))

    def append(self, where: Where) -> None:
        log, (topic, partition) = self.logs[where], where
        log.append(
            KafkaMessage(
                topic=topic,
                partition=partition,
                offset=len(log),
                value=f"{topic}/{partition}/{len(log)}".encode(),
                timestamp=(TIMESTAMP_LOG_APPEND_TIME, int(self.now)),
            )
        )

    def commit(self, generation: int, offsets: Iterable[TopicPartition]) -> bool:
        """False if the group is not as this member knows it; whose the partitions are Kafka does not ask."""
        if generation != self.generation:
            return False
        for one in offsets:
            where, before = (one.topic, one.partition), self.covered((one.topic, one.partition))
            self.committed[where] = self.told[where] = one.offset, one.metadata or ""
            if not before <= self.covered(where):
                self.broken.append(f"the commit of {where} went back: {sorted(before)} to {self.committed[where]}")
        return True

    def covered(self, where: Where) -> set[int]:
        """The offsets of records that the commit says are done."""
        offset, metadata = self.committed.get(where, (0, ""))
        done = decode_progress(offset, metadata).done
        return {at for at, one in enumerate(self.logs[where]) if one is not None and (at < offset or at in done)}

    def is_done(self, body: bytes) -> bool:
        """Whether a listener was done with it, or its send-back is stored."""
        return body in self.succeeded or self.sent_back[body] > 0

    def records(self, where: Where) -> Mapping[int, bytes]:
        return {at: one.value() or b"" for at, one in enumerate(self.logs[where]) if one is not None}


@dataclass(eq=False)
class Client:
    """The consumer of one member, as far as it is used.

    Attributes:
        fate: what becomes of the next commits, in turn; then all is well.
        deaf: how often nobody answers what is committed.
        believed: what it has as far as it knows, with the next offset to read; None before that is known.
        first: what was done already, and had failed, when each of them came.
        left_over: librdkafka gives these once more.
        meanwhile: happens between `poll` and `consume`.
    """

    kafka: Kafka
    alive: bool = True
    generation: int = 0
    fate: list[str] = field(default_factory=list)
    deaf: int = 0
    believed: dict[Where, int | None] = field(default_factory=dict)
    first: dict[Where, KeptProgress] = field(default_factory=dict)
    paused: set[Where] = field(default_factory=set)
    left_over: list[KafkaMessage] = field(default_factory=list)
    answers: list[tuple[KafkaError | None, list[TopicPartition]]] = field(default_factory=list)
    on_commit: Callable[[KafkaError | None, list[TopicPartition]], None] = lambda *_: None
    on_poll: Meanwhile = lambda: None
    meanwhile: Meanwhile | None = None

    def memberid(self) -> str:
        """No assignment waits when it closes."""
        return ""

    def is_member(self) -> bool:
        """And has not been put out."""
        return self.alive and self.generation == self.kafka.generation

    def owns(self, where: Where) -> bool:
        return self.is_member() and where in self.believed

    def subscribe(self, _topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost

    def poll(self, _timeout: float) -> KafkaMessage | None:
        self.on_poll()
        self.answer()
        read = self._read(1)
        return read[0] if read else None

    def consume(self, _count: int, _timeout: float) -> list[KafkaMessage]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._read(READ_AT_ONCE)

    def answer(self) -> None:
        answers, self.answers = self.answers, []
        for error, offsets in answers:
            self.on_commit(error, offsets)

    def _read(self, count: int) -> list[KafkaMessage]:
        found, self.left_over = [one for one in self.left_over if _place(one) in self.believed], []
        for where, position in self.believed.items():
            if where in self.paused or len(found) >= count:
                continue
            if position is None and where not in self.kafka.told:
                found.append(_without_offset(where))
                continue
            at = self.kafka.told[where][0] if position is None else position
            part = self.kafka.logs[where][at : at + count - len(found)]
            self.believed[where] = at + len(part)
            found += [one for one in part if one is not None]
        return found

    def assign(self, wheres: Iterable[Where], left_over: Iterable[KafkaMessage] = ()) -> None:
        for where in wheres:
            self.believed[where] = None
            kept = decode_progress(*self.kafka.committed.get(where, (0, "")))
            self.first[where] = KeptProgress(frozenset(self.kafka.covered(where)), kept.failures)
        self.left_over = list(left_over)
        self.on_assign(self, _partitions(wheres))

    def give_back(self, wheres: Iterable[Where], *, lost: bool = False) -> None:
        for where in wheres:
            self.believed.pop(where, None)
            if lost:
                # Nobody waits for its listeners.
                self.kafka.busy[where] = [one for one in self.kafka.busy[where] if one is not self]
        (self.on_lost if lost else self.on_revoke)(self, _partitions(wheres))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.believed |= {(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in partitions}

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            del self.believed[one.topic, one.partition]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(one.topic, one.partition) for one in partitions}

    def offsets_for_times(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        found = []
        for one in partitions:
            offset = {EARLIEST: 0, LATEST: len(self.kafka.logs[one.topic, one.partition])}[one.offset]
            found.append(TopicPartition(one.topic, one.partition, offset))
        return found

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        if self.deaf:
            self.deaf -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        found = {one: self.kafka.told.get((one.topic, one.partition), (-1001, "")) for one in partitions}
        return [TopicPartition(one.topic, one.partition, *at) for one, at in found.items()]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Sequence[Any] | None:
        """What is refused as a whole raises, as what gets no answer does."""
        fate, error = self.fate.pop(0) if self.fate else "is taken", None
        if fate == "is refused":
            error = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)
        elif fate == "is lost":
            error = KafkaError(KafkaError._TIMED_OUT)
        elif not self.kafka.commit(self.generation, offsets):
            error = KafkaError(KafkaError.ILLEGAL_GENERATION)
        elif fate == "gets no answer":
            error = KafkaError(KafkaError._TIMED_OUT)
        if asynchronous:
            self.answers.append((error, offsets))
            return None
        if error is not None and fate != "is refused":
            raise KafkaException(error)
        return [SimpleNamespace(topic=one.topic, partition=one.partition, error=error) for one in offsets]

    def consumer_group_metadata(self) -> int:
        return self.generation

    def close(self) -> None:
        self.give_back(list(self.believed))


def _place(record: KafkaMessage) -> Where:
    return record.topic() or "", record.partition() or 0


def _partitions(wheres: Iterable[Where]) -> list[TopicPartition]:
    return [TopicPartition(*where) for where in wheres]


def _without_offset(where: Where) -> KafkaMessage:
    """How librdkafka says that it does not know where to begin."""
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, f"no previously committed offset: {_NO_OFFSET}")
    return KafkaMessage(topic=where[0], partition=where[1], error=error)
