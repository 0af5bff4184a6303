"""A scheduler worker's place in its consumer group: kept over a kill, given up at a planned stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, WorkerFenced
from reconsume.delay_levels.wire.names import TopicNames

logger = logging.getLogger(__name__)

_LEAVE_SECONDS: Final = 5.0
"""A rebalance that is under way has to end first."""
_POLL_SECONDS: Final = 0.05
_FENCED: Final = "Static consumer fenced"
"""librdkafka's text for FENCED_INSTANCE_ID; a consumer's fatal errors have no code but `_FATAL` in confluent-kafka 2.16
(confluent-kafka-python issue 869)."""

OnPartitions = Callable[[Consumer, list[TopicPartition]], None]
"""A rebalance callback."""


class GroupMember:
    """Joins the group, static or not, and leaves it.

    A static member that comes back within its session gets the partitions of its former life without a rebalance. So
    topics and partitions that were made meanwhile would stay without an owner until the next rebalance (KAFKA-12759,
    KAFKA-13435, up to Kafka 4.3). A static member therefore joins without the inbox first, and with it as soon as it
    has its partitions: the changed subscription starts a rebalance, which moves no other partition.
    Remove when: KAFKA-12759 and KAFKA-13435 are fixed in all supported versions.

    After a session without an answer librdkafka (2.16) forgets its member id and sends heartbeats without one; brokers
    answer `FENCED_INSTANCE_ID`, which is fatal. Where `was_shut_out` is set, a worker starts afresh and suspects no
    second one. Remove when: librdkafka joins again with its `group.instance.id`.

    Test of both, and of `leave`: tests/integration/test_scheduler_group.py.

    Args:
        consumer: that joins.
        names: of the topics.
        is_static: whether the consumer has a `group.instance.id`.
        noticed: called after each rebalance, before the partitions are taken; told whether there are any.
    """

    def __init__(
        self,
        consumer: Consumer,
        names: TopicNames,
        *,
        is_static: bool,
        noticed: Callable[[bool], None] = lambda _came: None,
    ) -> None:
        self._consumer = consumer
        self._names = names
        self._noticed = noticed
        self._joins_again = is_static
        self.was_shut_out = False
        """Whether the group has ended this membership."""

    def join(self, on_assign: OnPartitions, on_revoke: OnPartitions) -> None:
        """Ask Kafka for partitions."""

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            # First, because a dead owner's open transaction holds up a worker that asks where to begin.
            self._noticed(bool(partitions))
            on_assign(consumer, partitions)
            if self._joins_again:
                self._joins_again = False
                subscribe(self._names.scheduled_pattern)

        def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.was_shut_out = True
            on_revoke(consumer, partitions)

        def subscribe(pattern: str) -> None:
            self._consumer.subscribe([pattern], on_assign=assigned, on_revoke=on_revoke, on_lost=lost)

        subscribe(self._names.delay_pattern if self._joins_again else self._names.scheduled_pattern)

    def leave(self) -> None:
        """Give the partitions to other members now.

        `Consumer.close` alone keeps the place of a static member until its session ends; `unsubscribe` gives it up
        (librdkafka 2.16, `rd_kafka_cgrp_leave_maybe`). Remove when: `Consumer.close` can leave the group.
        """
        deadline = time.monotonic() + _LEAVE_SECONDS
        try:
            self._consumer.unsubscribe()
            while self._consumer.memberid() and time.monotonic() < deadline:
                self._consumer.poll(_POLL_SECONDS)
        except (KafkaException, RuntimeError) as error:
            logger.debug("the partitions wait for the end of the session: %s", error)


def group_error(error: KafkaError) -> ReconsumeError | None:
    """Return the error that ends the membership, None for an error that passes."""
    doing = "reading as a member of the schedulers' group"
    if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
        return KafkaRefused(
            f"{doing}: the brokers refuse the session timeout; set scheduler.session_timeout_ms to a value between the "
            "brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    # As a polled message a fatal error does not say `fatal()`. Nothing is read any more with its consumer.
    if not error.fatal() and error.code() != KafkaError._FATAL:
        return None
    if error.code() == KafkaError.FENCED_INSTANCE_ID or _FENCED in error.str():
        return WorkerFenced(
            f"{doing}: another live worker has the same instance id; give each worker its own --instance-id"
        )
    return KafkaNotReachable(f"{doing}: {error.str()}")
