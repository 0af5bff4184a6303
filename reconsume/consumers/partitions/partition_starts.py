"""The start of a partition: the committed offset and finished messages of earlier owners, or a default."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import BEGINNING, COMMITTED, END, Answer, GroupConsumer, names_of
from reconsume.bridge.kafka.partitioning import is_another_topic
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.known_offsets import TopicIds
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import KafkaRefused, MalformedProperty, ReconsumeError, TopicNotReady
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress

logger = SafeLogger(__name__)

_COMMITTED_SECONDS: Final = 3.0
"""Limit of a request: the consumer is not polled meanwhile, and librdkafka reports only in polls."""
_RESET_SECONDS: Final = 10.0
_AGAIN_MS: Final = 1_000.0
_ID_HOLDS_MS: Final = 1_000.0
"""All partitions of a topic are assigned within this time; each request holds up the polling thread."""
_GIVE_UP_MS: Final = 120_000.0
"""Longer than brokers wait before they end a dead member's transaction."""

Committed = Callable[[Collection[Partition], float], Mapping[Partition, Answer]]
"""Returns the group's committed offsets."""


class KeptProgressReader:
    """Asks which messages of assigned partitions are done already; this is stored beside the committed offset.

    The loop continues meanwhile, and holds the first messages until the answer. The request follows the first message,
    not the assignment: an open transaction of a dead owner holds the offset back for up to 20 s, and librdkafka has
    waited for it by then. Starting without the answer would send failed messages back twice, so the request is
    repeated. After two minutes without an answer the consumer restarts.
    Tests: tests/unit/consumers/partitions/test_kept_progress.py, tests/chaos.

    Args:
        committed: requests committed offsets of the group's coordinator.
    """

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._clock: Clock = monotonic_ms
        self._refused_since: float | None = None
        self._ask_at = 0.0

    def learn(self, queues: Iterable[ProcessQueue]) -> list[tuple[ProcessQueue, Sequence[Message]]]:
        """Ask for partitions with held messages; return those that may start now, with their messages in order.

        A request takes at most 3 s, and is repeated a second later.

        Raises:
            KafkaRefused: rights are missing.
            MembershipLost: no coordinator has answered for two minutes.
        """
        waiting = {queue.where: queue for queue in queues if queue.held}
        if not waiting:
            self._refused_since = None
            return []
        if self._clock() < self._ask_at:
            return []
        refusal, begun = None, []
        for where, answer in self._committed(waiting, _COMMITTED_SECONDS).items():
            queue = waiting[where]
            if isinstance(answer, ReconsumeError):
                refusal = answer
            else:
                _keep(queue, answer)
                begun += [(queue, messages) for messages in queue.held or ()]
                queue.held = None
        self._heed(refusal)
        return begun

    def _heed(self, refusal: ReconsumeError | None) -> None:
        if refusal is None:
            self._refused_since = None
            return
        if isinstance(refusal, KafkaRefused):
            raise refusal
        logger.warning("%s", refusal)
        now = self._clock()
        self._ask_at = now + _AGAIN_MS
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= _GIVE_UP_MS:
            raise MembershipLost(str(refusal))


def _keep(queue: ProcessQueue, committed: Commit) -> None:
    """Make the queue skip the messages that are done."""
    if committed.offset < 0:
        return
    queue.committed = committed
    try:
        queue.keep(decode_progress(*committed), committed.offset)
    except MalformedProperty as error:
        # Without the metadata, finished messages may be read again; none is lost.
        queue.keep(KeptProgress(), committed.offset)
        logger.warning("progress above the committed offset unknown: %s", error)


class Start(NamedTuple):
    """A start offset.

    Attributes:
        offset: of the first record, or one of Kafka's logical offsets.
        is_made_again: whether the topic was deleted and recreated after the group's last commit.
        must_commit: whether it is committed at once, because a later owner would choose another one.
    """

    offset: int
    is_made_again: bool = False
    must_commit: bool = False


_WITHOUT_AN_ANSWER: Final = {
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: BEGINNING,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET: END,
    # librdkafka asks for the missing committed offset again. At the end, records of the meantime would be skipped.
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: COMMITTED,
}
"""The start if the brokers do not say where a partition begins and ends."""


class OffsetReset:
    """Starts for partitions without a valid committed offset. `auto.offset.reset` is `error`, so librdkafka asks us.

    Test: tests/integration/consumers/test_push_consumer_offsets.py.

    librdkafka has one policy for all topics. With `latest`, a group would lose retries that were delivered before its
    first start (RocketMQ: TN-06, T-34). A group that fell behind continues with the oldest record.

    Args:
        consumer: looks offsets up.
        retry_topic: the topic that always starts at its beginning.
        consume_from: the start of the other topics for a new group.
        committed: returns committed offsets that are still valid.
        topic_ids: returns Kafka's ids of topics.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        retry_topic: str,
        consume_from: ConsumeFrom,
        committed: Committed,
        topic_ids: TopicIds,
    ) -> None:
        self._consumer = consumer
        self._ask = committed
        self._retry_topic = retry_topic
        self._consume_from = consume_from
        self._topic_ids = topic_ids
        self._clock: Clock = monotonic_ms
        self._present: dict[str, tuple[str | None, float]] = {}

    def starts_of(self, out_of_range: Mapping[Partition, bool]) -> dict[Partition, Start]:
        """Return the starts of partitions without a committed offset, or with one that retention has deleted.

        Args:
            out_of_range: whether each had no committed offset. If there is one now, its coordinator had lost it before.

        Raises:
            ReconsumeError: the cluster refuses the request.
        """
        starts: dict[Partition, Start] = {}
        committed: dict[Partition, int] = {}
        wanted: dict[Partition, ConsumeFromWhere] = {}
        for where, answer in self._ask(out_of_range, _RESET_SECONDS).items():
            try:
                if isinstance(answer, ReconsumeError):
                    raise answer
                wanted[where] = self._wanted(where, is_new=answer.offset < 0)
                committed[where] = answer.offset
            except ReconsumeError as error:
                # librdkafka asks again, and reports a missing offset; about other errors see `never_starts`. Assuming
                # "none" here could skip records that the group has not consumed.
                logger.warning("%s", error)
                starts[where] = Start(COMMITTED)
        for where, found in self._offsets(wanted).items():
            if isinstance(found, ReconsumeError):
                if wanted[where] is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and isinstance(found, KafkaRefused):
                    raise found
                logger.warning("%s; trying again", found)
                starts[where] = Start(_WITHOUT_AN_ANSWER[wanted[where]])
                continue
            first, end, offset = found
            if out_of_range[where] and first <= committed[where] <= end:
                starts[where] = Start(committed[where])
                continue
            _tell(where, committed[where], first, end, offset)
            must_commit = committed[where] < 0 and self._may_change(where[0])
            starts[where] = Start(offset, is_made_again=committed[where] > end, must_commit=must_commit)
        return starts

    def _offsets(
        self, wanted: Mapping[Partition, ConsumeFromWhere]
    ) -> dict[Partition, tuple[int, int, int] | ReconsumeError]:
        """Return the first offset of each partition, its end, and the wanted start; or the error.

        As numbers: librdkafka 2.16 would resolve logical offsets itself, and read on if the partition is lost before
        the answer. The end is older than the look-up of a timestamp: a record in between has it.
        """
        ends = self._consumer.firsts_and_ends(wanted, _RESET_SECONDS)
        since = [where for where, by in wanted.items() if by is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP]
        known = [where for where in since if not isinstance(ends[where], ReconsumeError)]
        moments = self._consumer.offsets_at(known, self._consume_from.timestamp_ms, _RESET_SECONDS)
        found: dict[Partition, tuple[int, int, int] | ReconsumeError] = {}
        for where, by in wanted.items():
            extent, moment = ends[where], moments.get(where, END)
            if isinstance(extent, ReconsumeError):
                found[where] = extent
            elif isinstance(moment, ReconsumeError):
                found[where] = moment
            else:
                first, end = extent
                is_first = by is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
                found[where] = first, end, first if is_first else end if moment == END else moment
        return found

    def _wanted(self, where: Partition, *, is_new: bool) -> ConsumeFromWhere:
        """Return where a partition starts for a group without any knowledge of it.

        Raises:
            ReconsumeError: it is unknown whether the topic was recreated.
        """
        topic, since = where[0], self._consume_from
        if topic == self._retry_topic or not is_new or not since.was_there(*where) or self._is_recreated(topic):
            return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        return since.where

    def _may_change(self, topic: str) -> bool:
        """Return whether a later owner would start elsewhere: later, or in a topic that is not new for it."""
        return topic != self._retry_topic and self._consume_from.where is not ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

    def _is_recreated(self, topic: str) -> bool:
        """Return whether the topic was recreated after the subscription began: all its records are newer."""
        before = self._consume_from.ids.get(topic)
        if before is None:
            return False
        now = self._present_id(topic)
        if now is None:
            raise TopicNotReady(f"topic {topic} was deleted; create it again, and it is read from its beginning")
        is_recreated = is_another_topic(before, now)
        if is_recreated:
            logger.warning("topic %s was recreated; without a committed offset, it is read from its beginning", topic)
        return is_recreated

    def _present_id(self, topic: str) -> str | None:
        """Return the topic's id, None if it does not exist."""
        id_, until = self._present.get(topic, (None, 0.0))
        if self._clock() >= until:
            id_ = self._topic_ids([topic]).get(topic)
            self._present[topic] = id_, self._clock() + _ID_HOLDS_MS
        return id_


def _tell(where: Partition, committed: int, first: int, end: int, start: int) -> None:
    """Log why a partition starts there."""
    name = names_of([where])
    if committed < 0:
        logger.info("%s has no committed offset: starting at offset %d", name, start)
    elif committed < first:
        logger.warning(
            "%s: committed offset %d is gone, the first kept record is %d: up to %s offsets are skipped; raise the "
            "retention of topic %s",
            *(name, committed, first, f"{first - committed:,}", where[0]),
        )
    elif committed <= end:
        logger.warning(
            "%s has no record at the offset to read, committed is %d: starting at offset %d", name, committed, start
        )
    else:
        logger.warning(
            "%s ends at %d, before the committed offset %d: the topic was recreated; starting at offset %d",
            *(name, end, committed, start),
        )
