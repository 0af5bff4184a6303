"""Where a partition starts: what an earlier owner has committed and finished, or what holds without that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import BEGINNING, COMMITTED, END, Answer, GroupConsumer, names_of
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, MalformedProperty, ReconsumeError
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress

logger = logging.getLogger(__name__)

_COMMITTED_SECONDS: Final = 3.0
"""The consumer is not polled meanwhile, and librdkafka tells what it is about in polls only."""
_RESET_SECONDS: Final = 10.0
_AGAIN_MS: Final = 1_000.0
_GIVE_UP_MS: Final = 120_000.0
"""Longer than the brokers wait for the end of a dead member's transaction."""

Committed = Callable[[Collection[Partition], float], Mapping[Partition, Answer]]
"""Asks what the group has committed."""


class KeptProgressReader:
    """Asks for partitions that were assigned what is done already: it is kept beside the committed offset.

    Their first messages are held until then, and the loop goes on meanwhile. It is asked with the first message, not at
    the assignment: an open transaction of a dead owner holds the offset back for up to 20 s, and librdkafka has waited
    for it by then. Beginning without it would send back twice what failed, so it is asked until someone knows; after
    two minutes without an answer the consumer begins afresh.
    Tests: tests/unit/consumers/partitions/test_kept_progress.py, tests/chaos.

    Args:
        committed: asks the group's coordinator.
    """

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._clock: Clock = monotonic_ms
        self._refused_since: float | None = None
        self._ask_at = 0.0

    def learn(self, queues: Iterable[ProcessQueue]) -> list[tuple[ProcessQueue, Sequence[Message]]]:
        """Ask for the partitions of which messages are held; gives those that may begin now, in order.

        A question takes 3 s at most, and is asked again a second later.

        Raises:
            KafkaRefused: rights are missing.
            MembershipLost: this consumer has found nobody who knows for two minutes.
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
    """Have the queue leave out what is done."""
    if committed.offset < 0:
        return
    queue.committed = committed
    try:
        queue.keep(decode_progress(*committed), committed.offset)
    except MalformedProperty as error:
        # Without it finished messages may be read again; nothing is lost.
        queue.keep(KeptProgress(), committed.offset)
        logger.warning("progress above the committed offset unknown: %s", error)


class Start(NamedTuple):
    """Where to start.

    Attributes:
        offset: of the first record, or one of Kafka's logical offsets.
        is_made_again: the topic was deleted and made again since the group committed its offset.
    """

    offset: int
    is_made_again: bool = False


class OffsetReset:
    """librdkafka has one `auto.offset.reset` for all topics; ours is `error`, and each topic starts where it should.

    Test: tests/integration/test_push_consumer_offsets.py.

    With `latest` a group would lose the retries that were delivered before its first start (RocketMQ: TN-06, T-34). A
    group that fell behind goes on with the oldest record that there is.

    Args:
        consumer: asks.
        retry_topic: starts at its beginning.
        consume_from: for the other topics of a new group.
        committed: tells what can be believed.
    """

    def __init__(
        self, consumer: GroupConsumer, retry_topic: str, consume_from: ConsumeFrom, committed: Committed
    ) -> None:
        self._consumer = consumer
        self._ask = committed
        self._retry_topic = retry_topic
        self._consume_from = consume_from

    def start_of(self, where: Partition, *, had_none: bool) -> Start:
        """For a partition without a committed offset, or with one that is no longer kept.

        Args:
            where: the partition.
            had_none: whether there was no committed offset. If there is one now, the coordinator had lost it.

        Raises:
            ReconsumeError: the cluster refuses to tell.
        """
        answer = self._ask([where], _RESET_SECONDS)[where]
        if isinstance(answer, ReconsumeError):
            # librdkafka asks again until it is told, and comes back if there is none. To take it for none could skip
            # what nobody has consumed.
            logger.warning("%s", answer)
            return Start(COMMITTED)
        committed = answer.offset
        offset = self._configured(where, is_new=committed < 0)
        if offset == COMMITTED:
            return Start(COMMITTED)
        logger.info("%s has no committed offset: starting at %s", names_of([where]), _shown(offset))
        try:
            # As numbers: librdkafka 2.16 would ask by itself, and read on if the partition is lost before the answer.
            first, end = self._consumer.first_and_end(where, _RESET_SECONDS)
        except ReconsumeError as error:
            logger.warning("%s", error)
            return Start(offset)
        if had_none and first <= committed <= end:
            return Start(committed)
        made_again = committed > end
        if made_again:
            logger.warning(
                "%s ends at %d, before the committed offset %d: the topic was recreated",
                *(names_of([where]), end, committed),
            )
        return Start({BEGINNING: first, END: end}.get(offset, offset), made_again)

    def _configured(self, where: Partition, *, is_new: bool) -> int:
        """Where a partition starts for a group that knows nothing of it.

        A moment that cannot be looked up now gives the committed offset, which is not there; so the question comes
        again.
        """
        wanted = self._consume_from.where
        if where[0] == self._retry_topic or not is_new or not self._consume_from.was_there(*where):
            return BEGINNING
        if wanted is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            try:
                return self._consumer.offset_at(where, self._consume_from.timestamp_ms, _RESET_SECONDS)
            except KafkaNotReachable as error:
                logger.warning("%s; trying again", error)
                return COMMITTED
        return BEGINNING if wanted is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET else END


def _shown(offset: int) -> str:
    return {BEGINNING: "its beginning", END: "its end"}.get(offset, f"offset {offset}")
