"""Blocking send-backs for consumers with their own poll loop; producers and followers start on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from typing import Any, Final, cast

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.exactly_once import (
    ExactlyOnceWriter,
    Failed,
    Offsets,
    OutcomeUnknown,
    transactional_identity,
)
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.group_settings import GroupSettings
from reconsume.consumers.message import Message
from reconsume.consumers.sending.retry_topic import check_group_consumes, make_delay_topics, make_retry_topic
from reconsume.consumers.sending.send_back_log import SendBackLog, fate_of, way_of
from reconsume.consumers.sending.senders import request_of
from reconsume.delay_levels.errors import GroupIsFull, IllegalSetting, KafkaNotReachable, ReconsumeError, SendBackFailed
from reconsume.delay_levels.foreign_values import type_name
from reconsume.delay_levels.wire.send_back_copy import Cause, Position

logger = SafeLogger(__name__)

_WAKE_SECONDS: Final = 0.2
_AGAIN_SECONDS: Final = 0.5
_REGISTER_SECONDS: Final = 5.0
"""How long `close` waits for a running try."""


@contextmanager
def failures_of(messages: range) -> Iterator[None]:
    """Give a failure the indexes of its messages: all of these, or those that it names, counted from the first."""
    try:
        yield
    except SendBackFailed as error:
        error.failed = tuple(messages[index] for index in error.failed) or tuple(messages)
        raise


class SendBackClient:
    """Follows the groups, creates the retry topic, sends back. Safe to use from several threads."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._log = SendBackLog(settings.group)
        self._lock = threading.Lock()
        self._transaction_lock = threading.Lock()
        self._stop = threading.Event()
        self._prepared: Future[None] = Future()
        self._has_delay_topics = False
        self._thread: threading.Thread | None = None
        self._follower: GroupsFollower | None = None
        self._writer: SendBackWriter | None = None
        self._transactions: ExactlyOnceWriter | None = None
        self._closing = ExitStack()

    def prepare(self, seconds: float) -> None:
        """Start to read the groups and to create the retry topic; wait for both, at most `seconds`.

        With `exactly_once` it also initialises transactions, which ends open ones of a dead predecessor. After an
        error the next call starts anew.

        Args:
            seconds: how long to wait.

        Raises:
            KafkaRefused: the group's `consumeEnable` is false.
            SubscriptionGroupNotExist: the group must be registered first.
            TopicNotReady: the delay topics of `delay_levels` do not exist and this client may not create them.
        """
        with self._lock:
            has_failed = self._prepared.done() and self._prepared.exception() is not None
            if (self._thread is None or has_failed) and not self._stop.is_set():
                follower, self._prepared = self._followed(), Future()
                self._thread = threading.Thread(
                    target=self._prepare, args=(follower, self._prepared), name="reconsume-retry-topic", daemon=True
                )
                self._thread.start()
            prepared = self._prepared
        try:
            prepared.result(seconds)
        except TimeoutError:
            group = self._settings.group
            logger.warning("group %s: Kafka does not answer; the retry topic is created when it does", group)

    def _prepare(self, follower: GroupsFollower, prepared: Future[None]) -> None:
        try:
            if follower.wait_until_loaded(self._stop):
                check_group_consumes(self._settings.group, follower.groups)
                self._make_delay_topics(follower.groups)
                make_retry_topic(self._settings, follower.groups, self._stop)
        except Exception as error:
            own = isinstance(error, ReconsumeError)  # its text is complete
            prepared.set_exception(error)
            # It is raised in `prepare` too, if that still waits.
            logger.error("group %s: %s", self._settings.group, error, exc_info=not own)  # noqa: TRY400
        else:
            prepared.set_result(None)
            if self._settings.exactly_once:
                self._register()

    def _register(self) -> None:
        """Register the group. The first send-back reports a refusal; a program may never need one."""
        try:
            transactions = self._transactional_writer()
            with self._transaction_lock:
                transactions.register(self._stop, _REGISTER_SECONDS)
        except ReconsumeError as error:
            logger.warning("%s", error)

    def _followed(self) -> GroupsFollower:
        """Return the follower of GROUPS; the caller holds the lock."""
        if self._follower is None:
            self._follower = self._settings.groups_follower()
            self._follower.start()
            self._closing.callback(self._follower.close)
        return self._follower

    def _groups(self) -> Groups:
        """Return the groups, waiting for them: a send-back before would use the wrong table."""
        with self._lock:
            if self._follower is None:
                self._require_open()
            follower = self._followed()
        if not follower.wait_until_loaded(self._stop):
            self._require_open()
        return follower.groups

    def _make_delay_topics(self, groups: Groups) -> None:
        """Create the delay topics of `delay_levels`, once; raises `TopicNotReady`."""
        if not self._has_delay_topics:
            make_delay_topics(self._settings, groups, self._stop)
            self._has_delay_topics = True

    def send_back(self, messages: Sequence[Message], delay_level: int, cause: Cause | None) -> None:
        """Send all back; return when the brokers have acknowledged them.

        Raises:
            SendBackFailed: delay topic and inbox refused some, or the group is full (`GroupIsFull`); `failed` has
                their indexes, and the others are acknowledged.
        """
        writer, groups = self._ordinary_writer(), self._groups()
        answers: list[Future[SendBackFailed | None]] = [Future() for _ in messages]
        requests = [self._failed(message, delay_level, cause) for message in messages]
        for request, answer in zip(requests, answers, strict=True):
            writer.send_back(request.request, request.key, request.value, answer.set_result)
        errors: dict[int, SendBackFailed] = {}
        for index, (message, request, answer) in enumerate(zip(messages, requests, answers, strict=True)):
            while not wait([answer], _WAKE_SECONDS).done:
                """So that Ctrl-C ends the wait on Windows too."""
            if (error := answer.result()) is None:
                self._log.tell(message, fate_of(way_of(request.request, groups)), is_failure=False)
            else:
                errors[index] = error
        if errors:
            first = next(iter(errors.values()))
            where = ", ".join(str(Position(*messages[index].kafka[:3])) for index in [*errors][:10])
            kind = GroupIsFull if all(isinstance(error, GroupIsFull) for error in errors.values()) else SendBackFailed
            raise kind(f"{len(errors)} of {len(messages)} not sent back ({where}): {first}", tuple(errors)) from first

    def send_back_exactly_once(
        self,
        messages: Sequence[Message],
        delay_level: int,
        cause: Cause | None,
        offsets: Offsets,
        owned_metadata: Callable[[], Any],
    ) -> None:
        """Send all back and commit the offsets in one transaction; blocks while no broker answers.

        Args:
            messages: the failed messages.
            delay_level: the requested level.
            cause: the cause of the failure.
            offsets: the next offset to read of each partition.
            owned_metadata: returns the group metadata, or raises `PartitionLost`; called before each try.

        Raises:
            PartitionLost: the group has rebalanced; nothing was sent.
            SendBackFailed: delay topic and inbox refused them; nothing was sent.
        """
        transactions = self._transactional_writer()
        failed, groups = [self._failed(message, delay_level, cause) for message in messages], self._groups()
        # Partitions without a failed message prove nothing: the program may have committed them itself.
        proving = {message.kafka[:2] for message in messages}
        unresolved: Offsets | None = None
        while True:
            try:
                with self._transaction_lock:
                    if unresolved is None or not transactions.was_committed(unresolved):
                        unresolved = None
                        transactions.send_back(failed, offsets, owned_metadata())
            except OutcomeUnknown as error:
                logger.warning("%s", error)
                unresolved = {where: offset for where, offset in error.offsets.items() if where in proving}
            except KafkaNotReachable as error:
                logger.warning("%s; trying again", error)
                if self._stop.wait(_AGAIN_SECONDS):
                    raise SendBackFailed(str(error)) from error
            else:
                break
        for message, one in zip(messages, failed, strict=True):
            self._log.tell(message, fate_of(way_of(one.request, groups)), is_failure=False)

    def _transactional_writer(self) -> ExactlyOnceWriter:
        self._make_delay_topics(self._groups())
        settings = self._settings
        with self._lock:
            self._require_open()
            if self._transactions is None:
                identity = transactional_identity(settings.conf, settings.names, settings.group, settings.client_id)
                self._transactions = ExactlyOnceWriter(
                    settings.base, settings.names, self._groups, settings.group, identity.name
                )
                self._closing.callback(identity.release)
                self._closing.callback(self._end_transactions, self._transactions)
            return self._transactions

    def _ordinary_writer(self) -> SendBackWriter:
        self._make_delay_topics(self._groups())
        settings = self._settings
        with self._lock:
            self._require_open()
            if self._writer is None:
                self._writer = SendBackWriter(settings.base, settings.names, self._groups, settings.client_id)
                self._closing.callback(self._writer.close)
            return self._writer

    def _require_open(self) -> None:
        if self._stop.is_set():
            raise SendBackFailed(f"sending back for group {self._settings.group}: the consumer is closed")

    def _failed(self, message: Message, delay_level: int, cause: Cause | None) -> Failed:
        settings = self._settings
        request = request_of(settings.group, message, delay_level, settings.max_reconsume_times, cause)
        return Failed(request, message.key, message.body)

    def _end_transactions(self, transactions: ExactlyOnceWriter) -> None:
        with self._transaction_lock:
            transactions.close()

    def close(self) -> None:
        """Stop the background threads."""
        self._stop.set()
        with self._lock:
            closing = self._closing.pop_all()
        closing.close()
        if self._thread is not None:
            self._thread.join()

    def close_in_a_thread(self) -> None:
        """Close without waiting, as a garbage collection must."""
        threading.Thread(target=self.close, name="reconsume-end", daemon=True).start()


def as_cause(cause: object) -> Cause | None:
    """Return the cause that a dead letter shows, from an exception or a text.

    Raises:
        IllegalSetting: neither an exception nor a text.
    """
    kind = type(cause)  # isinstance would read the cause's `__class__`, which may raise
    if cause is None or kind is Cause:
        return cast("Cause | None", cause)
    if issubclass(kind, str):
        return Cause.saying(cast("str", cause))
    if issubclass(kind, BaseException):
        return Cause.of(cast("BaseException", cause))
    raise IllegalSetting(f"cause must be an exception or a text, got {type_name(kind)}")
