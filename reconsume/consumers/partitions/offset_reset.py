"""Where a partition starts that has no offset to go on from."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.group_consumer import BEGINNING, COMMITTED, END, GroupConsumer, names_of
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.kept_progress import Committed
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

__all__ = ["OffsetReset", "Start"]

logger = logging.getLogger(__name__)

_SECONDS: Final = 10.0


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
        answer = self._ask([where], _SECONDS)[where]
        if isinstance(answer, ReconsumeError):
            # librdkafka asks again until it is told, and comes back if there is none. To take it for none could skip
            # what nobody has consumed.
            logger.warning("%s", answer)
            return Start(COMMITTED)
        committed = answer.offset
        offset = self._configured(where, is_new=committed < 0)
        if offset == COMMITTED:
            return Start(COMMITTED)
        logger.info("%s has no offset to go on from: starting at %s", names_of([where]), _shown(offset))
        try:
            # As numbers: librdkafka 2.16 would ask by itself, and read on if the partition is lost before the answer.
            first, end = self._consumer.first_and_end(where, _SECONDS)
        except ReconsumeError as error:
            logger.warning("%s", error)
            return Start(offset)
        if had_none and first <= committed <= end:
            return Start(committed)
        made_again = committed > end
        if made_again:
            logger.warning(
                "%s ends at %d, before the committed offset %d: it was deleted and made again",
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
                return self._consumer.offset_at(where, self._consume_from.timestamp_ms, _SECONDS)
            except KafkaNotReachable as error:
                logger.warning("%s; trying again", error)
                return COMMITTED
        return BEGINNING if wanted is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET else END


def _shown(offset: int) -> str:
    return {BEGINNING: "its beginning", END: "its end"}.get(offset, f"offset {offset}")
