"""A scheduler worker's membership in its consumer group: kept after a kill, given up at a planned stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import is_fatal, is_instance_fenced, is_session_timeout_refused
from reconsume.bridge.kafka.group_consumer import Answer, GroupConsumer
from reconsume.bridge.process.polled_records import ClientError
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, WorkerFenced
from reconsume.delay_levels.wire.names import TopicNames

OnPartitions = Callable[[Sequence[Partition]], None]


class GroupMember:
    """Joins the group as a static or dynamic member.

    A static member that returns within its session gets its former partitions without a rebalance. So topics and
    partitions that were created meanwhile would have no owner until the next rebalance (KAFKA-12759,
    KAFKA-13435, up to Kafka 4.3). A static member therefore joins without the inbox first, and with it as soon as it
    has its partitions: the changed subscription starts a rebalance, which moves no other partition.
    Remove when: KAFKA-12759 and KAFKA-13435 are fixed in all supported versions.

    After a session without an answer librdkafka (2.16) forgets its member id and sends heartbeats without one; brokers
    answer `FENCED_INSTANCE_ID`, which is fatal. If `was_shut_out` is set, a worker restarts and does not suspect a
    second worker. Remove when: librdkafka joins again with its `group.instance.id`.

    Test of both: tests/integration/scheduler/test_group.py.

    Args:
        consumer: the consumer that joins.
        names: the installation's topics.
        is_static: whether the consumer has a `group.instance.id`.
        noticed: called after each rebalance, before the partitions are taken, with whether there are any.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
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
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._consumer.owner = self
        self._consumer.subscribe([self._names.delay_pattern if self._joins_again else self._names.scheduled_pattern])

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Pass the partitions on, and join again if that is pending."""
        # First, because a dead owner's open transaction delays a worker that looks up its start.
        self._noticed(bool(partitions))
        self._on_assign(partitions)
        if self._joins_again:
            self._joins_again = False
            self._consumer.subscribe([self._names.scheduled_pattern])

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Pass the partitions on."""
        self._on_revoke(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Pass the partitions on, and note that the group has ended this membership."""
        self.was_shut_out = True
        self._on_revoke(partitions)

    def committed(self, answers: Mapping[Partition, Answer]) -> None:
        """Do nothing: workers wait for each commit."""


def group_error(error: ClientError) -> ReconsumeError | None:
    """Return the error that ends the membership, None for a temporary error."""
    doing = "reading as a member of the schedulers' group"
    if is_session_timeout_refused(error):
        return KafkaRefused(
            f"{doing}: the brokers refuse the session timeout; set scheduler.session_timeout_ms to a value between the "
            "brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    if not is_fatal(error):
        return None
    if is_instance_fenced(error):
        return WorkerFenced(
            f"{doing}: another live worker has the same instance id; give each worker its own --instance-id"
        )
    return KafkaNotReachable(f"{doing}: {error.str()}")
