"""A `confluent_kafka.Consumer` over the in-memory Kafka."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import OFFSET_END, OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST
from reconsume.consumers.group_settings import is_cooperative, is_off
from reconsume.testing.admin import InMemoryClient
from reconsume.testing.cluster import LONGEST_WAIT_SECONDS, InMemoryCluster, Member, Unwritten
from reconsume.testing.positions import AssignedPositions, StoredOffsets, given_offsets
from reconsume.testing.producer import GroupMetadata, as_message

_Callback = Callable[[Consumer, list[TopicPartition]], object]
_MOST_MESSAGES: Final = 1_000_000


@dataclass(slots=True)
class _Subscription:
    """A group membership with its callbacks."""

    member: Member
    on_assign: _Callback | None = None
    on_revoke: _Callback | None = None

    def want(self, topics: list[str], on_assign: _Callback | None, on_revoke: _Callback | None) -> None:
        """Replace the subscription: topic names, or regular expressions that begin with `^`."""
        patterns = [re.compile(one) for one in topics if one.startswith("^")]
        names = frozenset(topics)
        self.on_assign, self.on_revoke = on_assign, on_revoke
        self.member.wants = lambda topic: topic in names or any(pattern.match(topic) for pattern in patterns)


class InMemoryConsumer(InMemoryClient, Consumer):
    """Reads and commits in memory. `poll` never blocks in the thread of the test, where time stands still.

    Rebalances happen in `poll` and `consume`, with callbacks, as in confluent-kafka.
    """

    def __init__(self, cluster: InMemoryCluster, settings: Mapping[str, Any]) -> None:
        # No super().__init__(): without a librdkafka handle, this class overrides every method that would use it.
        self._cluster = cluster
        self._group = str(settings["group.id"])
        self._commits_itself = not is_off(settings.get("enable.auto.commit", True))
        self._interval_ms = float(settings.get("auto.commit.interval.ms", 5_000))
        self._commit_at = 0.0
        self._on_commit = settings.get("on_commit")
        self._answers: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        reset = str(settings.get("auto.offset.reset", "latest"))
        tells_ends = not is_off(settings.get("enable.partition.eof", False))
        self._positions = AssignedPositions(cluster, self._group, reset=reset, tells_ends=tells_ends)
        self._stored = StoredOffsets(cluster, self._group, settings)
        self._subscription: _Subscription | None = None
        self._cooperative = is_cooperative(settings)
        self._generation = 0
        self._assigned_by_callback = False
        self._closed = False
        self._follows = threading.get_ident() != cluster.driver
        self._waiting = False

    def is_quiet(self) -> bool:
        """Return False while a background thread that follows a topic with this consumer has records left to read."""
        with self._cluster.changed:
            busy = self._follows and not self._closed and self._subscription is None
            return not busy or (self._waiting and not self._positions.readable())

    def subscribe(
        self,
        topics: list[str],
        on_assign: _Callback | None = None,
        on_revoke: _Callback | None = None,
        on_lost: _Callback | None = None,  # noqa: ARG002 - nothing is ever lost here
    ) -> None:
        """Join the group at once; `poll` assigns the partitions. A missing topic is created."""
        self._require_open()
        if not isinstance(topics, list):
            raise TypeError("expected list of topic unicode strings")  # the message of confluent-kafka
        if not topics:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "the subscription is empty; use unsubscribe()"))
        for topic in topics:
            self._cluster.create_if_allowed(topic)
        if self._subscription is None:
            self._subscription = _Subscription(Member(lambda _topic: False))
        self._subscription.want(topics, on_assign, on_revoke)
        self._positions.note_ends()
        self._cluster.join(self._group, self._subscription.member)

    def unsubscribe(self) -> None:
        """Leave the group and give up all partitions."""
        self._require_open()
        self._leave()

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message or event, None if none is available."""
        self._require_open()
        self._serve()
        found = self._next()
        if found is not None or threading.get_ident() == self._cluster.driver:
            return found
        return self._wait(LONGEST_WAIT_SECONDS if timeout < 0 else min(timeout, LONGEST_WAIT_SECONDS))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages and events, without waiting for the full number."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")  # the message of confluent-kafka
        self._require_open()
        found: list[Message] = []
        one = InMemoryConsumer.poll(self, timeout) if num_messages else None  # librdkafka calls no override either
        while one is not None:
            found.append(one)
            one = self._next() if len(found) < num_messages else None
        return found

    def _wait(self, seconds: float) -> Message | None:
        end = time.monotonic() + seconds
        with self._cluster.changed:
            self._waiting = True
            self._cluster.changed.notify_all()
            while (found := self._next()) is None and (left := end - time.monotonic()) > 0:
                self._cluster.changed.wait(left)
            self._waiting = False
        return found

    def _next(self) -> Message | None:
        with self._cluster.changed:
            if (event := self._positions.next_event()) is not None:
                return event
            found = self._positions.next_record()
            if found is None:
                return None
            (topic, partition), one = found
            self._stored.returned((topic, partition), one.offset)
            self._cluster.turns += 1
            return as_message(
                Unwritten(topic, partition, one.key, one.value, one.headers), partition, one.offset, one.timestamp
            )

    def _serve(self) -> None:
        """Do librdkafka's work behind a poll: answers to commits, automatic commits, rebalances."""
        while self._answers:
            self._on_commit(*self._answers.popleft())  # type: ignore[misc]  # only kept where it is set
        now = self._cluster.clock()
        if self._commits_itself and now >= self._commit_at:
            self._commit_at = now + self._interval_ms
            self._stored.commit()
        if self._subscription is not None:
            self._rebalance(self._subscription)

    def _rebalance(self, subscription: _Subscription) -> None:
        cluster, member = self._cluster, subscription.member
        share = cluster.share(self._group, member)
        lost, gained = member.held - share, cluster.free(self._group, member, share - member.held)
        if (lost or gained) and not self._cooperative:
            lost = set(member.held)
            gained = cluster.free(self._group, member, share)
        if lost:
            self._give_back(subscription, lost)
        if gained:
            with cluster.changed:
                member.held |= gained
                self._generation = cluster.group(self._group).generation
                cluster.happened()
            self._take(subscription, gained)
        self._generation = cluster.group(self._group).generation

    def _give_back(self, subscription: _Subscription, partitions: set[Partition]) -> None:
        given = [TopicPartition(*where) for where in sorted(partitions)]
        if subscription.on_revoke is not None:
            subscription.on_revoke(self, given)
        self._unassign(partitions)
        with self._cluster.changed:
            subscription.member.held -= partitions
            self._cluster.happened()

    def _take(self, subscription: _Subscription, partitions: set[Partition]) -> None:
        given = [TopicPartition(*where) for where in sorted(partitions)]
        self._assigned_by_callback = False
        if subscription.on_assign is not None:
            subscription.on_assign(self, given)
        if not self._assigned_by_callback:
            self._positions.assign(TopicPartition(*where) for where in sorted(partitions))

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        gone = set(partitions)
        if self._commits_itself:
            self._stored.commit(gone)
        self._stored.forget(gone)
        self._positions.unassign(gone)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment."""
        self._require_open(partitions, incremental=False)
        self._assigned_by_callback = True
        self._unassign(self._positions.assigned)
        self._positions.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._require_open(partitions, incremental=True)
        self._assigned_by_callback = True
        self._positions.assign(partitions)

    def unassign(self) -> None:
        """Clear the assignment."""
        self._require_open(incremental=False)
        self._unassign(self._positions.assigned)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._require_open(partitions, incremental=True)
        self._unassign((one.topic, one.partition) for one in partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assignment."""
        self._require_open()
        return [TopicPartition(*where) for where in sorted(self._positions.assigned)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no messages of these partitions until they are resumed."""
        self._require_open(partitions)
        self._positions.paused.update((one.topic, one.partition) for one in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume these partitions."""
        self._require_open(partitions)
        self._positions.paused.difference_update((one.topic, one.partition) for one in partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at an offset; a paused partition stays paused."""
        self._require_open()
        if (partition.topic, partition.partition) not in self._positions.assigned:
            raise KafkaException(KafkaError(KafkaError._STATE, "the partition is not assigned"))
        paused = set(self._positions.paused)
        self._positions.assign([partition])
        self._positions.paused = paused

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last returned message of each partition, invalid before the first."""
        self._require_open(partitions)
        given = self._positions.given
        return [
            TopicPartition(one.topic, one.partition, given.get((one.topic, one.partition), OFFSET_INVALID))
            for one in partitions
        ]

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit; refused if the consumer stores them by itself, as by default."""
        self._require_open(offsets or [])
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")  # the message of confluent-kafka
        self._stored.store(given_offsets(message, offsets), self._positions.assigned)

    def commit(  # type: ignore[override]  # the stub has one overload for each combination
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit at once; the callback of an asynchronous commit runs in `poll`, also if nothing was to commit."""
        self._require_open(offsets or [])
        if message is None and offsets is None:
            chosen = self._stored.commit()
        else:
            chosen = given_offsets(message, offsets)
            self._cluster.commit(self._group, chosen)
        error = None if chosen else KafkaError(KafkaError._NO_OFFSET, "Commit failed: no offset stored")
        answer = [TopicPartition(*where, at.offset, at.metadata) for where, at in chosen]
        if asynchronous and self._on_commit is not None:
            self._answers.append((error, answer))
        if error is not None and not asynchronous:
            raise KafkaException(error)
        return None if asynchronous else answer

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:  # noqa: ARG002
        """Return the group's committed offsets."""
        self._require_open(partitions)
        offsets = self._cluster.group(self._group).offsets
        nothing = Commit(OFFSET_INVALID, "")
        return [
            TopicPartition(one.topic, one.partition, *offsets.get((one.topic, one.partition), nothing))
            for one in partitions
        ]

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,  # noqa: ARG002
        cached: bool = False,  # noqa: ARG002
    ) -> tuple[int, int]:
        """Return the first offset and the end offset."""
        if partition.topic not in self._cluster.topics:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, f"no topic {partition.topic}"))
        return 0, len(self._cluster.log((partition.topic, partition.partition)))

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:  # noqa: ARG002
        """Return the first offset at or after the timestamp in each `offset` field; `OFFSET_END` if none follows.

        Kafka's special timestamps -2 and -1 return the first offset and the end offset.
        """
        found = []
        for one in partitions:
            log = self._cluster.log((one.topic, one.partition))
            special = {EARLIEST: 0, LATEST: len(log)}.get(one.offset)
            later = (record.offset for record in log if record.timestamp[1] >= one.offset)
            offset = next(later, OFFSET_END) if special is None else special
            found.append(TopicPartition(one.topic, one.partition, offset))
        return found

    def consumer_group_metadata(self) -> Any:
        """Return the membership for a transaction; after a rebalance, transactions with it are refused."""
        return GroupMetadata(self._group, self._generation)

    def memberid(self) -> str:
        """Return an id that is unique among the members."""
        return f"in-memory-{id(self)}"

    def close(self) -> None:
        """Give up all partitions and leave the group."""
        if not self._closed:
            self._leave()
            self._unassign(self._positions.assigned)
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            if subscription.member.held:
                self._give_back(subscription, set(subscription.member.held))
            self._cluster.leave(self._group, subscription.member)

    def _require_open(self, *lists: object, incremental: bool | None = None) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
        if not all(isinstance(one, list) for one in lists):
            raise TypeError("requires list of TopicPartition")  # the message of confluent-kafka
        if self._subscription is not None and incremental not in (None, self._cooperative):
            way = "incremental_assign() or incremental_unassign()" if self._cooperative else "assign()"
            raise KafkaException(KafkaError(KafkaError._STATE, f"change the assignment by {way}"))
