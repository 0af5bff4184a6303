"""Where the retry topic starts if the group has no committed offset there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.errors import is_end, is_passing, translate
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, OffsetsForTimes, watermark
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.polled_records import ClientError
from reconsume.bridge.process.safe_logger import SafeLogger

logger = SafeLogger(__name__)

_COMMITTED_SECONDS: Final = 10.0
_FIRST_SECONDS: Final = 2.0
"""Limit of a request: a leader that does not answer leaves time for the others."""
_FIRSTS_MS: Final = 10_000.0
"""Longer than brokers take to elect a leader. All other partitions wait meanwhile."""
_AGAIN_SECONDS: Final = 0.5
_NO_LEADER_YET: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""A broker answers with these shortly after its start, or after it became the leader."""

_Committed = Callable[[list[TopicPartition], float], list[TopicPartition]]


class RetryStarts:
    """Gives partitions of the retry topic without a committed offset an explicit start.

    librdkafka has one `auto.offset.reset` for all topics. Unless it is `earliest`, a group would lose the retries that
    were delivered before its first start (RocketMQ: TN-06, T-34). The start is a number where a leader returns it:
    after some errors, such as UNKNOWN_TOPIC_OR_PART, a start at the logical beginning falls back on the policy.

    Guarantees:

    * Without committed offsets nothing starts, as in librdkafka: an assignment waits for them. It waits 10 s for the
      leaders. A partition whose leader is away longer must not hold up the others. It starts at its committed offset,
      or at the logical beginning, again after each error until its first record arrives.
      Known gap: if retention has deleted records beyond that committed offset, the policy applies.
    * No error leaves an assignment: confluent-kafka would assign by the policy and drop the batch of that `consume`.
      A lasting one is kept in `refusals`.

    Tests: tests/unit/consumers/drop_in/test_retry_start.py, tests/unit/consumers/drop_in/test_refused_starts.py,
    tests/integration/drop_in/test_consumer.py, tests/integration/drop_in/test_leaderless.py,
    tests/integration/drop_in/test_refused_starts.py, tests/integration/bridge/librdkafka/test_listed_offsets.py.
    Remove when: librdkafka has a policy for each topic.

    Args:
        topic: the group's retry topic.
        committed: the consumer's method of this name.
        offsets_for_times: the consumer's method of this name.
        seek: the consumer's method of this name.
        closing: set when the consumer closes. It reads nothing more, and its group may answer nothing, so no start is
            looked up.

    Attributes:
        refusals: the cluster's lasting refusals, for the next poll.
        unconfirmed: partitions that start at the logical beginning and have returned nothing yet.
    """

    def __init__(
        self,
        topic: str,
        committed: _Committed,
        offsets_for_times: OffsetsForTimes,
        seek: Callable[[TopicPartition], None],
        closing: threading.Event,
    ) -> None:
        self._topic = topic
        self._committed = committed
        self._offsets_for_times = offsets_for_times
        self._seek = seek
        self._closing = closing
        self._clock: Clock = monotonic_ms
        self.refusals: list[KafkaException] = []
        self.unconfirmed: set[int] = set()

    def started(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return a new assignment, partitions of the retry topic without an offset with their start."""
        ours = [one for one in partitions if one.topic == self._topic]
        self.unconfirmed -= {one.partition for one in ours}
        silent = sorted({one.partition for one in ours if one.offset in (OFFSET_INVALID, OFFSET_STORED)})
        if not silent:
            return partitions
        committed = self._offsets(silent)
        firsts = self._firsts(committed)
        if self._closing.is_set():
            return partitions
        starts = {
            one: TopicPartition(self._topic, one, self._start(one, offset, firsts.get(one)))
            for one, offset in committed.items()
        }
        return [starts.get(one.partition, one) if one.topic == self._topic else one for one in partitions]

    def failed(self, partition: int | None, error: ClientError) -> None:
        """Note an error that a poll returned for a partition; start it again if nothing of it has arrived."""
        if partition not in self.unconfirmed:
            return
        if is_end(error):
            self.unconfirmed.discard(partition)
            return
        try:
            self._seek(TopicPartition(self._topic, partition, OFFSET_BEGINNING))
        except KafkaException as refusal:
            logger.warning("%s", translate(refusal, f"starting {self._topic}-{partition} at its beginning again"))

    def _offsets(self, partitions: list[int]) -> dict[int, int]:
        """Return the committed offsets, negative without one; ask until they are known or refused."""
        wanted = [TopicPartition(self._topic, one) for one in partitions]
        while not self._closing.is_set():
            try:
                return self._answered(self._committed(wanted, _COMMITTED_SECONDS))
            except KafkaException as error:
                if self._closing.is_set():
                    break
                if not is_passing(error.args[0]):
                    self._refuse(error.args[0])
                    return dict.fromkeys(partitions, OFFSET_INVALID)
                logger.warning("%s; trying again", translate(error, f"looking where to start {self._topic}"))
                self._closing.wait(_AGAIN_SECONDS)
        return {}

    def _answered(self, found: list[TopicPartition]) -> dict[int, int]:
        errors = {one.partition: one.error for one in found if one.error is not None}
        for error in errors.values():
            if is_passing(error):
                raise KafkaException(error)
        for error in errors.values():
            self._refuse(error)
        return {one.partition: OFFSET_INVALID if one.partition in errors else one.offset for one in found}

    def _firsts(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first kept offsets that leaders return in time."""
        firsts: dict[int, int] = {}
        waiting: dict[int, KafkaException | None] = dict.fromkeys(partitions)
        deadline = self._clock() + _FIRSTS_MS
        while waiting and self._clock() < deadline and not self._closing.is_set():
            for one in [*waiting]:
                if self._clock() >= deadline:
                    break
                try:
                    firsts[one] = watermark(self._offsets_for_times, self._topic, one, EARLIEST, _FIRST_SECONDS)
                except KafkaException as error:
                    if self._closing.is_set():
                        return {}
                    if is_passing(error.args[0]) or error.args[0].code() in _NO_LEADER_YET:
                        waiting[one] = error
                        continue
                    self._refuse(error.args[0])
                del waiting[one]
            if waiting:
                self._closing.wait(_AGAIN_SECONDS)
        for one, reason in waiting.items():
            why = (
                "not asked in time"
                if reason is None
                else translate(reason, f"looking where {self._topic}-{one} begins")
            )
            logger.warning("%s; %s-%d starts when its leader answers", why, self._topic, one)
        return firsts

    def _start(self, partition: int, committed: int, first: int | None) -> int:
        if committed >= 0 and (first is None or committed >= first):
            return OFFSET_INVALID
        logger.info("%s-%d has no committed offset: starting at its beginning", self._topic, partition)
        if first is not None:
            return first
        self.unconfirmed.add(partition)
        return OFFSET_BEGINNING

    def _refuse(self, error: KafkaError) -> None:
        """Keep a refusal, unless an earlier one has not been raised yet."""
        logger.warning("%s", translate(error, f"looking where to start {self._topic}"))
        if not self.refusals:
            self.refusals.append(KafkaException(error))
