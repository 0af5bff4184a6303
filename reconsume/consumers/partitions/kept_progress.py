"""What an earlier owner of a partition finished above the committed offset."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import Answer
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import KafkaRefused, MalformedProperty, ReconsumeError
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress

__all__ = ["Committed", "KeptProgressReader"]

logger = logging.getLogger(__name__)

_COMMITTED_SECONDS: Final = 3.0
"""The consumer is not polled meanwhile, and librdkafka tells what it is about in polls only."""
_AGAIN_MS: Final = 1_000.0
_GIVE_UP_MS: Final = 120_000.0
"""Longer than the brokers wait for the end of a dead member's transaction."""

Committed = Callable[[Collection[Partition], float], Mapping[Partition, Answer]]
"""Asks what the group has committed."""


class KeptProgressReader:
    """Asks for partitions that were assigned what is done already: it is kept beside the committed offset.

    Their first messages are held until then, and the loop goes on meanwhile. It is asked with the first message, not at
    the assignment: an open transaction of a dead owner holds the offset back for up to 20 s, and librdkafka has waited
    for it by then. Beginning without it would send back twice what failed, so it is asked until somebody knows; after
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
        # Without it messages that are done may come again; nothing is lost.
        queue.keep(KeptProgress(), committed.offset)
        logger.warning("what was done above the committed offset is not known: %s", error)
