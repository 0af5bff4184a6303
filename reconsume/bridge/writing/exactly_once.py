"""Send-backs and their offsets, in one Kafka transaction."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Commit, KafkaAdmin, Partition
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.clients import clients_of, clock_of
from reconsume.bridge.kafka.errors import is_passing, is_rebalance, translate, translated
from reconsume.bridge.kafka.group_consumer import Answer
from reconsume.bridge.process.identity import Identity, stable_identity
from reconsume.bridge.process.safe_logger import LimitedLogger, SafeLogger
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.bridge.topics.existing_topics import ExistingTopics
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.bridge.writing.send_back import direct_copy
from reconsume.bridge.writing.transactions import (
    PATIENCE_SECONDS,
    SHUT_OUT,
    START_SECONDS,
    InDoubt,
    ShutOut,
    Transactions,
    Undone,
)
from reconsume.bridge.writing.waiting_limit import WaitingLimit
from reconsume.delay_levels.errors import (
    KafkaNotReachable,
    KafkaRefused,
    PartitionLost,
    ReconsumeError,
    SendBackFailed,
    SubscriptionGroupNotExist,
    TopicNotReady,
)
from reconsume.delay_levels.wire.inbox import inbox_copy
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

logger = SafeLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
_TRANSACTION_MS: Final = 10_000
_LAYOUT: Final = b"CGMDv2"
_BY_THE_INBOX: Final = (KafkaRefused, TopicNotReady, SubscriptionGroupNotExist)


Offsets = Mapping[Partition, Commit]
"""The offset to commit of each partition."""


class OutcomeUnknown(KafkaNotReachable):
    """A transaction got no answer; `was_committed` finds out its outcome.

    Attributes:
        offsets: the offsets that it was to commit.
    """

    def __init__(self, offsets: Offsets, error: ReconsumeError) -> None:
        super().__init__(f"{error}; whether the transaction counts is not known yet")
        self.offsets = offsets


class Failed(NamedTuple):
    """One failed message with its own key and value."""

    request: SendBackRequest
    key: bytes | None
    value: bytes | None


class ExactlyOnceWriter:
    """Sends failed messages back and commits their offsets atomically. For one thread at a time.

    Group metadata fences a member that the group has removed (KIP-447), so the transactional id only has to be unique
    for each live consumer. If it is the same after a restart, the new consumer ends the dead one's open transaction,
    and no reader of the delay topics waits for its timeout.

    Guarantees:
        1. The offset and its metadata prove whether a transaction without an answer counts: `was_committed`.
        2. No offset is committed unfenced: metadata of a consumer outside its group is refused, see `_is_member`.
    Tests: tests/integration/drop_in/test_exactly_once.py, tests/models/consumers/test_consumer_model_bugs.py.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        groups: the groups as known now.
        group: the consumer group whose offsets are committed.
        transactional_id: unique for each live consumer, see `transactional_identity`.
        known: known committed offsets of the group; without them the coordinator's answers always count.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        names: TopicNames,
        groups: Callable[[], Groups],
        group: str,
        transactional_id: str,
        known: KnownOffsets | None = None,
    ) -> None:
        self._names = names
        self._groups = groups
        self._clock = clock_of(base)
        self._group = group
        self._transactional_id = transactional_id
        self._known = known
        # Records that were refused alone.
        only_errors = {"delivery.report.only.error": True}
        settings = transactional_settings(base, transactional_id, _TRANSACTION_MS) | only_errors
        self._settings = settings
        self._transactions = Transactions(settings)
        self._was_shut_out = False
        self._admin = KafkaAdmin(base, transactional_id)
        self._existing = ExistingTopics(self._admin)
        self._lanes = LanePartitions(groups)
        self.limit = WaitingLimit(base, names, groups, transactional_id)
        self._inbox_logger = LimitedLogger(__name__)
        self._doing = f"sending back for group {group}"

    def register(self, stop: threading.Event, seconds: float = START_SECONDS) -> None:
        """Register with the transaction coordinator in advance; wait for an unreachable one.

        Args:
            stop: ends the wait, at most `seconds` later.
            seconds: the time for each try.

        Raises:
            KafkaRefused: rights are missing.
        """
        while not stop.is_set():
            try:
                self._started(seconds)
            except KafkaNotReachable as error:
                logger.warning("waiting for Kafka: %s", error)
                stop.wait(_AGAIN_SECONDS)
            else:
                return

    def send_back(self, failed: Sequence[Failed], offsets: Offsets, group_metadata: Any) -> None:
        """Write all copies and commit the offsets in one transaction; return when it is committed.

        After a refusal, all go to the inbox in a second transaction (RocketMQ: SB-04, SB-05).

        Args:
            failed: the messages; empty just commits the offsets.
            offsets: the offsets to commit.
            group_metadata: the consumer's metadata, taken before the check that it still has these partitions.

        Raises:
            PartitionLost: the group has rebalanced, or has removed this consumer; nothing was sent.
            OutcomeUnknown: all was sent, or nothing; call `was_committed` before sending again.
            KafkaNotReachable: nothing was sent, the same call may succeed later.
            SendBackFailed: delay topic and inbox refused it, or the group is full; nothing was sent.
        """
        if not _is_member(group_metadata):
            raise PartitionLost(
                f"{self._doing}: this consumer is no longer a member of the group, and nothing was sent; "
                "call poll() again: it returns the message here, or in another member. exactly_once needs subscribe(), "
                "because assign() alone joins no group"
            )
        try:
            copies = self._direct(failed)
            self._write(copies, offsets, group_metadata)
            for copy in copies:
                self.limit.sent(self._group, copy.topic)
        except _BY_THE_INBOX as first:
            try:
                self._write(self._inbox(failed), offsets, group_metadata)
            except _BY_THE_INBOX as second:
                raise SendBackFailed(f"{first}; then {second}") from second
            self._inbox_logger.warning("%s; sent through %s instead", first, self._names.send_back)

    def close(self) -> None:
        """Release the producer at once; no transaction is open."""
        self.limit.close()
        self._transactions.close()

    def _direct(self, failed: Sequence[Failed]) -> list[NewRecord]:
        groups, now = self._groups(), self._clock()
        copies: list[NewRecord] = []
        for request, key, value in failed:
            copy = direct_copy(request, key, self._names, groups, now)
            if copy is not None:
                self.limit.check(request, copy, len(copies))
                lane, count = copy.topic, self._existing.require(copy.topic)
                partition = self._lanes.choose(lane, count, request.group, key)
                copies.append(NewRecord(lane, value, key, partition, copy.headers))
        return copies

    def _inbox(self, failed: Sequence[Failed]) -> list[NewRecord]:
        self._existing.require(self._names.send_back)
        copies = [(inbox_copy(request, self._names, self._clock()), key, value) for request, key, value in failed]
        return [NewRecord(copy.topic, value, key, ANY_PARTITION, copy.headers) for copy, key, value in copies]

    def _write(self, copies: Sequence[NewRecord], offsets: Offsets, metadata: Any) -> None:
        try:
            self._try(copies, offsets, metadata)
        except ReconsumeError as error:
            if isinstance(error, TopicNotReady) and any(one.partition != ANY_PARTITION for one in copies):
                # Look-ups may know added partitions before the producer does; without them records go by key.
                anywhere = [one._replace(partition=ANY_PARTITION) for one in copies]  # noqa: SLF001 - public
                self._write(anywhere, offsets, metadata)
                return
            # For a deleted topic librdkafka may only report that it got no answer.
            for one in copies:
                self._existing.forget(one.topic)
            raise

    def _try(self, copies: Sequence[NewRecord], offsets: Offsets, metadata: Any) -> None:
        try:
            with translated(self._registering):
                self._transactions.write_records(copies, offsets, metadata)
        except Undone as undone:
            raise self._undone(undone) from undone
        except (InDoubt, ShutOut) as unknown:
            self._was_shut_out = unknown.cause.code() in SHUT_OUT
            why = translate(unknown.cause, self._doing)
            raise OutcomeUnknown(offsets, KafkaNotReachable(str(why))) from unknown

    def _undone(self, undone: Undone) -> ReconsumeError:
        cause = undone.cause
        if is_rebalance(cause):
            return PartitionLost(
                f"{self._doing}: {cause.name()}: the group has rebalanced meanwhile; nothing was sent, go on with "
                "poll(): the message is read again, here or in another member"
            )
        why = translate(cause, self._doing)
        return KafkaNotReachable(str(why)) if is_passing(cause) else why

    @property
    def _registering(self) -> str:
        return f"registering the transactional id {self._transactional_id}"

    def was_committed(self, offsets: Offsets) -> bool:
        """Return whether the transaction with these offsets was committed, after `OutcomeUnknown`.

        A new producer with the same transactional id makes the brokers end the old one's transaction.

        Args:
            offsets: the offsets of partitions that this consumer has owned ever since, as far as it knows.

        Raises:
            KafkaNotReachable: the outcome is still unknown.
            PartitionLost: the offsets prove nothing, because some partitions have another owner; ask without them.
        """
        self._started()
        if self._was_shut_out:
            self._go_on_under_another_id()
        committed = self._commits(offsets.keys())
        covered = [_is_covered(one, committed.get(where)) for where, one in offsets.items()]
        if any(covered) and not all(covered):
            # A transaction changes all or nothing, so another member has committed some of them.
            raise PartitionLost(
                f"group {self._group}: another member has committed for partitions of a transaction without an answer"
            )
        return any(covered)

    def _commits(self, partitions: Collection[Partition]) -> Mapping[Partition, Answer]:
        """Return the committed offsets; after a loss by the coordinator, each transaction would seem aborted."""
        ask = partial(self._admin.commits, self._group, stable=True)
        return ask(partitions) if self._known is None else self._known.ask_once(ask, partitions)

    def _go_on_under_another_id(self) -> None:
        """Continue under a new id: two consumers with one id, as on copied machines, would fence each other forever.

        Guarantees: the registration of the old id has just ended its open transaction, and `was_committed` looks it up
        next. Test: tests/integration/drop_in/test_exactly_once_restarts.py.
        """
        self._transactions.close()
        self._transactional_id += f"-{secrets.token_hex(4)}"
        self._transactions = Transactions(self._settings | {"transactional.id": self._transactional_id})
        self._was_shut_out = False
        logger.warning("another producer took over the transactional id, continuing as %s", self._transactional_id)

    def _started(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Register with the transaction coordinator, if necessary."""
        with translated(self._registering):
            self._transactions.register(seconds)


def transactional_identity(conf: Mapping[str, Any], names: TopicNames, group: str, client_id: str) -> Identity:
    """Return the transactional id of a consumer, the same after its restart if possible.

    A `group.instance.id` is unique in its group, so it is used; otherwise the id belongs to a slot of this machine.

    Args:
        conf: the consumer's settings.
        names: the installation's topics.
        group: the consumer group.
        client_id: the prefix of the id, because ACLs refer to it.
    """
    if instance := conf.get("group.instance.id"):
        return Identity(f"{client_id}-{group}-{instance}")
    if not clients_of(conf).outlive_the_process:
        return Identity(f"{client_id}-{secrets.token_hex(8)}")
    address = str(conf.get("bootstrap.servers"))
    identity = stable_identity("exactly-once", f"{address}\n{names.prefix}\n{group}\n{client_id}")
    identity.name = f"{client_id}-{identity.name}"
    return identity


def _is_member(group_metadata: Any) -> bool:
    """Return whether the coordinator can fence it: offsets without a generation are committed unfenced.

    When a member leaves, also after `max.poll.interval.ms`, librdkafka forgets its generation at once, but its
    assignment only at the next `poll`. The metadata of confluent-kafka is `CGMDv2:`, the generation as a native 32-bit
    integer, then the names.
    """
    if not isinstance(group_metadata, bytes):
        return True  # metadata of the in-memory Kafka
    layout, _, rest = group_metadata.partition(b":")
    return layout != _LAYOUT or int.from_bytes(rest[:4], sys.byteorder, signed=True) > 0


def _is_covered(offset: Commit, committed: Answer | None) -> bool:
    """Return whether this commit, or a later one, is in force.

    Records that finish out of order change only the metadata.
    """
    return isinstance(committed, Commit) and (committed.offset > offset.offset or committed == offset)
