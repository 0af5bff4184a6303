"""A Kafka consumer with reconsume's types, for members of a group and for readers without one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.errors import is_rebalance, translate, translated
from reconsume.bridge.librdkafka.callback_errors import catchable
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST, OffsetLookUp, offsets_for, watermarks
from reconsume.bridge.librdkafka.membership import take_assignment
from reconsume.bridge.librdkafka.undecodable import metadata_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import ReconsumeError

logger = SafeLogger(__name__)

BEGINNING: Final[int] = OFFSET_BEGINNING
END: Final[int] = OFFSET_END
COMMITTED: Final[int] = OFFSET_STORED
"""Start at the group's committed offset."""

_PARTITIONS_OF_A_COMMIT: Final = 200
"""With the longest metadata of each they stay below 1 MiB, the default limit of a batch (`message.max.bytes`)."""
_LEAVE_SECONDS: Final = 5.0
"""Limit of a request; a running rebalance has to end first."""
_LEAVING_SECONDS: Final = 0.05

Answer = Commit | ReconsumeError
"""A partition's committed offset, negative if there is none; or the error."""


class PartitionOwner(Protocol):
    """Receives changes of a consumer's partitions, in its polls."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Take over assigned partitions."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Give partitions up; they are owned until this returns."""

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that other members own already."""

    def committed(self, answers: Mapping[Partition, Answer]) -> None:
        """Note the answer to an asynchronous commit."""


class GroupConsumer:
    """A consumer for the polling thread only.

    Args:
        settings: librdkafka settings.
        make: makes the client.

    Attributes:
        owner: receives changes of partitions; set it before the subscription.
    """

    owner: PartitionOwner

    def __init__(
        self, settings: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Consumer] = make_consumer
    ) -> None:
        self._consumer = make({**settings, "on_commit": self._committed})
        self._is_leaving = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group with these topics."""
        self._consumer.subscribe(
            list(topics),
            on_assign=catchable(self._on_assign),
            on_revoke=catchable(lambda _consumer, given: self.owner.revoked(_places(given))),
            on_lost=catchable(lambda _consumer, given: self.owner.lost(_places(given))),
        )

    def follow(self) -> None:
        """Update the read partitions; called before each poll."""

    def poll(self, seconds: float) -> Message | None:
        """Return one record or error."""
        return self._consumer.poll(seconds)

    def consume(self, count: int) -> list[Message]:
        """Return the available records without waiting."""
        return self._consumer.consume(count, 0)

    def start(self, offsets: Mapping[Partition, int]) -> None:
        """Read these too, each from its offset, or from `BEGINNING`, `END` or `COMMITTED`."""
        self._consumer.incremental_assign([TopicPartition(*where, offset) for where, offset in offsets.items()])

    def restart(self, where: Partition, offset: int) -> None:
        """Restart a partition at an offset. A seek does not work while librdkafka does not know where to begin."""
        self.stop([where])
        self.start({where: offset})

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions."""
        self._consumer.incremental_unassign([TopicPartition(*where) for where in partitions])

    def read_only(self, offsets: Mapping[Partition, int]) -> None:
        """Read exactly these partitions, each from its offset."""
        self._consumer.assign([TopicPartition(*where, offset) for where, offset in offsets.items()])

    def seek(self, where: Partition, offset: int) -> None:
        """Continue a partition at an offset.

        Raises:
            ReconsumeError: the partition is not read yet.
        """
        with translated(f"reading {names_of([where])} from {offset}"):
            self._consumer.seek(TopicPartition(*where, offset))

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Pause these partitions."""
        if wanted := [TopicPartition(*where) for where in partitions]:
            self._consumer.pause(wanted)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Resume these partitions."""
        if wanted := [TopicPartition(*where) for where in partitions]:
            self._consumer.resume(wanted)

    def committed(self, partitions: Collection[Partition], seconds: float) -> dict[Partition, Answer]:
        """Return the group's committed offset of each.

        Raises:
            ReconsumeError: no broker answers.
        """
        doing = "asking what the group has committed"
        try:
            found = self._consumer.committed([TopicPartition(*where) for where in partitions], seconds)
        except KafkaException as error:
            raise translate(error, doing) from error
        return {
            (one.topic, one.partition): Commit(one.offset, metadata_of(one) or "")
            if one.error is None
            else translate(one.error, f"{doing} of {one.topic}-{one.partition}")
            for one in found
        }

    def commit(
        self, points: Mapping[Partition, Commit], *, wait: bool, within: float = math.inf
    ) -> Collection[Partition]:
        """Commit; return the refused partitions. Messages of uncommitted offsets are read again.

        librdkafka (2.16) waits `session.timeout.ms` for a coordinator, 45 s by default, which is too long for the end
        of a process. So the coordinator is asked for something first. Remove when: `Consumer.commit` takes a timeout.

        Args:
            points: the offsets.
            wait: whether to wait for the answer; else it comes with a later poll.
            within: seconds for the first answer of the coordinator, if `wait` is set.
        """
        if not points:
            return ()
        try:
            if wait and within < math.inf:
                self._consumer.committed([TopicPartition(*next(iter(points)))], within)
            answers = self._send(points, wait=wait)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                logger.warning("%s", translate(error, "committing offsets"))
            return points.keys()
        return _refused(answers, "committing offsets")

    def restore(self, points: Mapping[Partition, Commit]) -> None:
        """Commit offsets again that the group's coordinator has lost.

        A member that was removed from the group cannot commit. It learns that in its next poll, so poll before a retry.

        Raises:
            ReconsumeError: it failed otherwise.
        """
        try:
            answers = self._send(points, wait=True)
        except KafkaException as error:
            failure = translate(error, f"restoring offsets of {names_of(points)}")
            if not is_rebalance(error.args[0]):
                raise failure from error
            logger.warning("%s", failure)
        else:
            _refused(answers, "restoring offsets")

    def _send(self, points: Mapping[Partition, Commit], *, wait: bool) -> list[TopicPartition]:
        answers: list[TopicPartition] = []
        for some in in_commits(points):
            answers += self._consumer.commit(offsets=some, asynchronous=not wait) or ()  # type: ignore[call-overload]
        return answers

    def first_and_end(self, where: Partition, seconds: float) -> tuple[int, int]:
        """Return the first kept offset of a partition, and its end.

        Raises:
            ReconsumeError: no broker answers.
        """
        found = self.firsts_and_ends([where], seconds)[where]
        if isinstance(found, ReconsumeError):
            raise found
        return found

    def firsts_and_ends(
        self, partitions: Collection[Partition], seconds: float
    ) -> dict[Partition, tuple[int, int] | ReconsumeError]:
        """Return the first kept offset of each partition and its end; or the error."""
        firsts, ends = (
            self._look_up(watermarks, partitions, which, seconds, "asking where {} begins and ends")
            for which in (EARLIEST, LATEST)
        )
        found: dict[Partition, tuple[int, int] | ReconsumeError] = {}
        for where, first in firsts.items():
            end = ends[where]
            found[where] = (
                first if isinstance(first, ReconsumeError) else end if isinstance(end, ReconsumeError) else (first, end)
            )
        return found

    def offsets_at(
        self, partitions: Collection[Partition], timestamp_ms: int, seconds: float
    ) -> dict[Partition, int | ReconsumeError]:
        """Return the first offset of each with that timestamp or a later one, `END` if none follows; or the error."""
        doing = "looking where {} was at the moment to start from"
        return self._look_up(offsets_for, partitions, timestamp_ms, seconds, doing)

    def _look_up(
        self, look_up: OffsetLookUp, partitions: Collection[Partition], at: int, seconds: float, doing: str
    ) -> dict[Partition, int | ReconsumeError]:
        """Return the answers for these partitions, with errors about each one's name."""
        answers: Mapping[Partition, int | KafkaError]
        try:
            answers = look_up(self._consumer.offsets_for_times, partitions, at, seconds)
        except KafkaException as error:
            answers = dict.fromkeys(partitions, error.args[0])
        return {
            where: one if isinstance(one, int) else translate(one, doing.format(names_of([where])))
            for where, one in answers.items()
        }

    def group_metadata(self) -> Any:
        """Return the metadata that fences a transaction once this member has lost a partition (KIP-447)."""
        return self._consumer.consumer_group_metadata()

    def leave(self) -> None:
        """Give up the partitions now, also those of a static member; the consumer reads nothing any more.

        `Consumer.close` alone keeps the place of a static member until its session ends; `unsubscribe` gives it up
        (librdkafka 2.16, `rd_kafka_cgrp_leave_maybe`). Remove when: `Consumer.close` can leave the group.
        Test: tests/integration/scheduler/test_group.py.
        """
        self._is_leaving = True
        deadline = time.monotonic() + _LEAVE_SECONDS
        try:
            self._consumer.unsubscribe()
            while self._consumer.memberid() and time.monotonic() < deadline:
                self._consumer.poll(_LEAVING_SECONDS)
        except (KafkaException, ReconsumeError, RuntimeError) as error:  # also of the partitions' owner, in a poll
            logger.debug("the partitions wait for the end of the session: %s", error)

    def close(self) -> None:
        """Leave the group."""
        self._is_leaving = True
        try:
            take_assignment(self._consumer, self._consumer.poll)
        finally:
            self._consumer.close()

    def _on_assign(self, _consumer: Consumer, given: Iterable[TopicPartition]) -> None:
        """Pass an assignment on, unless the consumer is leaving: librdkafka may have ended its group."""
        if not self._is_leaving:
            self.owner.assigned(_places(given))

    def _committed(self, error: KafkaError | None, offsets: Iterable[TopicPartition]) -> None:
        self.owner.committed(
            {
                (one.topic, one.partition): Commit(one.offset, one.metadata or "")
                if (refusal := error or one.error) is None
                else translate(refusal, f"committing offsets of {one.topic}-{one.partition}")
                for one in offsets
            }
        )


def in_commits(points: Mapping[Partition, Commit]) -> Iterator[list[TopicPartition]]:
    """Return offsets in lists for one request each, which coordinators store as one batch of records."""
    offsets = [TopicPartition(*where, *point) for where, point in points.items()]
    for first in range(0, len(offsets), _PARTITIONS_OF_A_COMMIT):
        yield offsets[first : first + _PARTITIONS_OF_A_COMMIT]


def names_of(partitions: Iterable[Partition]) -> str:
    """Return partitions as text for the log."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "none"


def _refused(answers: Iterable[TopicPartition], doing: str) -> Collection[Partition]:
    """Log and return the partitions that were refused, although Kafka took others."""
    refused = {(one.topic, one.partition): one.error for one in answers if one.error is not None}
    for where, refusal in refused.items():
        logger.warning("%s", translate(refusal, f"{doing} of {names_of([where])}"))
    return refused.keys()


def _places(given: Iterable[TopicPartition]) -> list[Partition]:
    return [(one.topic, one.partition) for one in given]
