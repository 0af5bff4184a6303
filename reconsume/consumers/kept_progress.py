"""What an earlier owner of a partition finished above the committed offset."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from reconsume.bridge.kafka import metadata_of, translate
from reconsume.bridge.membership import MembershipLost
from reconsume.consumers.process_queue import CommitPoint, ProcessQueue
from reconsume.delay_levels.errors import KafkaRefused, MalformedProperty
from reconsume.delay_levels.progress_metadata import KeptProgress, decode_progress

__all__ = ["ask_for_kept"]

logger = logging.getLogger(__name__)

_COMMITTED_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.001
_GIVE_UP_SECONDS: Final = 120.0
"""Longer than the brokers wait for the end of a dead member's transaction."""
_DOING: Final = "asking what is done above the committed offset"

Committed = Callable[[list[TopicPartition], float], list[TopicPartition]]
"""`Consumer.committed`."""


def ask_for_kept(queue: ProcessQueue, committed: Committed, stop: threading.Event) -> bool:
    """Have the queue leave out what is done already: it is kept beside the committed offset.

    To be asked for with a partition's first message: librdkafka had to wait for the offset, and for an open transaction
    on it, before that. Beginning without it would send back twice what failed, so it is asked until somebody knows;
    False if the consumer is stopped before.

    Raises:
        KafkaRefused: rights are missing.
        MembershipLost: this consumer finds nobody who knows.
    """
    give_up_at = time.monotonic() + _GIVE_UP_SECONDS
    while not stop.is_set():
        try:
            found = committed([TopicPartition(queue.topic, queue.partition)], _COMMITTED_SECONDS)[0]
            if found.error is None:
                if found.offset >= 0:
                    queue.committed = CommitPoint(found.offset, metadata_of(found) or "")
                    queue.keep(decode_progress(found.offset, metadata_of(found)), found.offset)
                return True
            refusal = translate(found.error, _DOING)
        except KafkaException as error:
            refusal = translate(error, _DOING)
        except MalformedProperty as error:
            # Without it messages that are done may come again; nothing is lost.
            queue.keep(KeptProgress(), found.offset)
            logger.warning("what was done above the committed offset is not known: %s", error)
            return True
        if isinstance(refusal, KafkaRefused):
            raise refusal
        logger.warning("%s", refusal)
        if time.monotonic() > give_up_at:
            raise MembershipLost(str(refusal))
        stop.wait(_AGAIN_SECONDS)
    return False
