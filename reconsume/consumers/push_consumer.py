"""PushConsumer: RocketMQ's push consumer on Kafka."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, Literal, Self, TypeVar, overload

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.user_callbacks import in_user_code
from reconsume.consumers.assembly import LoopBuilder, Registration
from reconsume.consumers.broadcasting.broadcasting import DropCounter
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.consume_settings import MessageModel, checked_settings
from reconsume.consumers.listener import Listener, OrderlyListener, check_listener, check_order
from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker
from reconsume.consumers.observing.hooks import ConsumeMessageHook, check_hook
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere
from reconsume.consumers.sending.retry_topic import (
    check_group_consumes,
    make_delay_topics,
    make_retry_topic,
    with_known_partitions,
)
from reconsume.consumers.step_driver import LoopThread, step_driver_of
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import IllegalSetting, KafkaNotReachable
from reconsume.delay_levels.foreign_values import check_types

logger = SafeLogger(__name__)
L = TypeVar("L", bound=Listener)
OL = TypeVar("OL", bound=OrderlyListener)


class PushConsumer:
    """Calls a listener for every message of the subscribed topics, and again for failed messages.

    A message fails when the listener raises, or returns `RECONSUME_LATER` or None. It then waits on the delay topic
    of its level, returns with `reconsume_times` one higher, and after `max_reconsume_times` goes to `%DLQ%group`.

    Args:
        group: the consumer group.
        bootstrap_servers: `host:port`, comma-separated.
        conf: librdkafka settings, passed through; `auto.offset.reset` holds for the subscribed topics, the retry
            topic always starts at its beginning.
        message_model: with BROADCASTING every member gets all messages, and failed ones are dropped (RocketMQ: BP-01).
        offset_store: the directory for the offsets of a broadcasting consumer, `~/.reconsume/offsets` by default, with
            a folder for each cluster, `client.id` and group (RocketMQ: BP-02).
        consume_from_where: where a partition without a committed offset starts; None uses `auto.offset.reset`, else
            the last offset. Partitions and topics that appear after the start are read from their beginning.
        consume_timestamp: for CONSUME_FROM_TIMESTAMP: `yyyyMMddHHmmss` in local time, or a datetime; by default half
            an hour ago.
        namespace: `ns` in `ns%group` and `ns%topic`; listeners see topics without it (RocketMQ: TN-10).
        max_reconsume_times: how often a message may be sent back; None uses the group's `retryMaxTimes` (16). 0
            makes the first failure a dead letter (RocketMQ: BR-12, T-02). For an orderly listener how often it may
            fail in its place; None is forever (RocketMQ: OR-03).
        dead_letter_on: exceptions that are not worth a retry, such as `(ValueError,)`: a message whose listener raises
            one of them, or an error that was raised `from` one, is a dead letter at once. Subclasses count. A level
            or a time that the listener sets in its context wins.
        consume_message_batch_max_size: messages in one call of the listener, 1 to 1,024.
        consume_thread_nums: listeners that run at once, 1 to 1,000 (RocketMQ: FC-01).
        consume_timeout: a listener that runs longer has its message sent back on level 3 (RocketMQ: EX-01).
        pull_threshold_for_queue: unfinished messages of a partition at which reading it waits (RocketMQ: FC-02).
        pull_threshold_size_for_queue: the same for their bodies, in MiB.
        consume_concurrently_max_span: offsets between the smallest unfinished message of a partition and the newest
            at which reading it waits: one stuck message stops its partition only there (RocketMQ: FC-03).
        exactly_once: one transaction sends a failed message back and commits its offset, so no crash and no rebalance
            sends it back twice.
        circuit_breaker: pause and probe while nearly every call of the listener fails; None never pauses.
        delay_levels: a level table for this process alone, such as `"1s 5s 10s"`, whose delay topics are created at
            the start; None uses the cluster's.
        await_termination_when_shutdown: the longest wait of `shutdown` for running listeners.
        topic_prefix: the prefix of the installation's topics.

    Raises:
        IllegalSetting: an invalid argument; the message names it and the allowed values.
    """

    def __init__(
        self,
        group: str,
        *,
        bootstrap_servers: str = "localhost:9092",
        conf: Mapping[str, Any] | None = None,
        message_model: MessageModel = MessageModel.CLUSTERING,
        offset_store: str | os.PathLike[str] | None = None,
        consume_from_where: ConsumeFromWhere | None = None,
        consume_timestamp: str | datetime | None = None,
        namespace: str = "",
        max_reconsume_times: int | None = None,
        dead_letter_on: Collection[type[BaseException]] = (),
        consume_message_batch_max_size: int = 1,
        consume_thread_nums: int = 20,
        consume_timeout: timedelta = timedelta(minutes=15),
        pull_threshold_for_queue: int = 1_000,
        pull_threshold_size_for_queue: int = 100,
        consume_concurrently_max_span: int = 2_000,
        exactly_once: bool = False,
        circuit_breaker: CircuitBreaker | None = None,
        delay_levels: str | None = None,
        await_termination_when_shutdown: timedelta = timedelta(seconds=10),
        topic_prefix: str = "reconsume.",
    ) -> None:
        self._settings = checked_settings(locals())
        self._subscriptions = Subscriptions(self._settings.names, self._settings.namespace)
        self._dropped = DropCounter()
        self._registration = Registration()
        self._stop = threading.Event()
        self._thread: LoopThread | None = None
        self._failure: BaseException | None = None
        self._process: int | None = None
        self._starting: int | None = None
        self._follower: GroupsFollower | None = None
        self._closing = ExitStack()
        self._changing = threading.RLock()

    def subscribe(self, topic: str, sub_expression: str | None = "*") -> Self:
        """Subscribe to a topic, all of it or only some tags such as `"TagA || TagB"` (RocketMQ: TF-03).

        Call this for each topic. A topic that begins with `^` is a pattern (Python's `re`) of whole names; topics
        that match it later are found within 10 s. It never matches a topic of reconsume.

        Raises:
            IllegalSetting: an invalid topic or expression, or the consumer has started.
        """
        self._must_not_run("subscribe")
        check_types(locals(), topic=str, sub_expression=(str, NoneType))
        names, in_namespace = self._settings.names, self._settings.namespace
        own_retry = names.retry(self._settings.group)
        if not topic.startswith("^") and in_namespace.kafka_topic(topic, names) == own_retry:
            raise IllegalSetting(f"topic {topic!r}: the consumer subscribes to its retry topic itself; leave it out")
        self._subscriptions.add(topic, sub_expression)
        return self

    @overload
    def register_message_listener(self, listener: Listener, *, orderly: Literal[False] = False) -> Self: ...

    @overload
    def register_message_listener(
        self, listener: OrderlyListener, *, orderly: Literal[True], per_key: bool = False
    ) -> Self: ...

    def register_message_listener(
        self, listener: Listener | OrderlyListener, *, orderly: bool = False, per_key: bool = False
    ) -> Self:
        """Set the function that gets the messages: `listener(messages, context)`, plain or `async def`.

        Args:
            listener: the function; called concurrently by default.
            orderly: call it for one batch of a partition after the other. A failed batch is repeated after a moment,
                and the partition waits (RocketMQ's MessageListenerOrderly).
            per_key: keep the order of each key only; other keys of the partition do not wait.

        Raises:
            IllegalSetting: not a function of two arguments, `per_key` without `orderly`, `orderly` with a circuit
                breaker, or the consumer has started.
        """
        self._must_not_run("register_message_listener")
        check_types(locals(), orderly=bool, per_key=bool)
        check_listener(listener)
        check_order(orderly=orderly, per_key=per_key, has_breaker=self._settings.circuit_breaker is not None)
        self._registration = Registration(listener, orderly, per_key, self._registration.hooks)
        return self

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> Self:
        """Add a hook for every call of the listener and every send-back; hooks run in order.

        Raises:
            IllegalSetting: not a hook, or the consumer has started.
        """
        self._must_not_run("register_consume_message_hook")
        self._registration.hooks.append(check_hook(hook))
        return self

    @overload
    def listener(self, function: L, /) -> L: ...

    @overload
    def listener(self, /, *, orderly: Literal[False] = False) -> Callable[[L], L]: ...

    @overload
    def listener(self, /, *, orderly: Literal[True], per_key: bool = False) -> Callable[[OL], OL]: ...

    def listener(self, function: Any = None, /, *, orderly: bool = False, per_key: bool = False) -> Any:
        """`register_message_listener` as a decorator: `@consumer.listener`, `@consumer.listener(orderly=True)`."""

        def register(one: Any) -> Any:
            self.register_message_listener(one, orderly=orderly, per_key=per_key)  # type: ignore[call-overload]
            return one

        return register if function is None else register(function)

    def start(self) -> None:
        """Start to consume in background threads. Waits for an unreachable broker, and logs that.

        Raises:
            IllegalSetting: the listener or the subscription is missing.
            SubscriptionGroupNotExist: the group must be registered first.
            KafkaRefused: rights are missing.
            TopicNotReady: the delay topics of `delay_levels` do not exist and this client may not create them.
            OffsetStoreUnusable: the offsets of a broadcasting consumer are in use, damaged or cannot be written.
        """
        with self._changing:  # a shutdown in another thread waits until a running start has seen it
            try:
                self._starting = threading.get_ident()
                self._start()
            finally:
                self._starting = None
        if self._stop.is_set():  # by a signal handler of this thread, which could not wait
            self.shutdown()

    def _start(self) -> None:
        self._must_not_run("start")
        settings, listener = self._settings, self._registration.listener
        if listener is None or not self._subscriptions:
            missing = "a listener: @consumer.listener" if listener is None else "a topic: subscribe(topic)"
            raise IllegalSetting(f"the consumer of group {settings.group!r} needs {missing}")
        if settings.own_table is not None:
            logger.warning("group %s uses its own level table: %s", settings.group, settings.own_table)
        self._process = os.getpid()
        self._follower = follower = settings.groups_follower()
        follower.start()
        self._closing.callback(follower.close)
        try:
            if not follower.wait_until_loaded(self._stop):
                return
            clustering = settings.message_model is MessageModel.CLUSTERING
            check_group_consumes(settings.group, follower.groups, broadcasting=not clustering)
            if clustering:
                make_delay_topics(settings, follower.groups, self._stop)
                make_retry_topic(settings, follower.groups, self._stop)
                start = with_known_partitions(settings.consume_from, settings, self._subscriptions, self._stop)
                settings = replace(settings, consume_from=start)
            parts = self._closing.enter_context(ExitStack())
            builder = LoopBuilder(
                settings, self._registration, self._subscriptions, follower, self._stop, parts, self._dropped
            )
            loop, driver = builder.build(), step_driver_of(settings.conf)
            self._thread = (
                self._in_a_thread(builder, loop) if driver is None else driver.adopt(loop, self._stop, self.shutdown)
            )
        except BaseException:
            self._closing.close()
            raise

    def shutdown(self) -> None:
        """Stop: running listeners may finish, finished messages are committed, the rest is read again.

        Any thread may call this, also again. In a listener, a hook or a callback, or in a signal handler during
        `start`, it returns at once, and the end waits for them: `running` is False when the consumer has ended. In a
        forked child it does nothing: threads and connections are the parent's.

        Raises:
            ReconsumeError: the error that had ended the consumer before.
        """
        if self._process not in (None, os.getpid()):
            return
        self._stop.set()
        if in_user_code() or self._starting == threading.get_ident():
            return
        with self._changing:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._close()
        with self._changing:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def run(self) -> None:
        """Start, and consume until SIGTERM or Ctrl-C; the former signal handlers are restored at the end."""
        with ExitStack() as ending:
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    before = signal.signal(number, lambda *_: self._stop.set())
                    ending.callback(signal.signal, number, before or signal.SIG_DFL)
            self.start()
            ending.callback(self.shutdown)
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.5)

    @property
    def running(self) -> bool:
        """Whether the consumer is running; False after a failure, which `shutdown` then raises."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def groups(self) -> Groups:
        """The groups and the level table as known now; the defaults before the start."""
        return Groups(own_table=self._settings.own_table) if self._follower is None else self._follower.groups

    @property
    def dropped(self) -> int:
        """The number of failed messages that were dropped; only a broadcasting consumer drops."""
        return self._dropped.count

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _in_a_thread(self, builder: LoopBuilder, loop: ConsumeLoop) -> LoopThread:
        thread = threading.Thread(target=self._run, args=(builder, loop), name="reconsume-consumer", daemon=True)
        thread.start()
        return thread

    def _run(self, builder: LoopBuilder, loop: ConsumeLoop) -> None:
        try:
            try:
                self._consume(builder, loop)
            finally:
                self._close()  # a shutdown in a listener cannot
        except BaseException as error:
            self._failure = error
            logger.exception("consumer of group %s ended", self._settings.group)

    def _consume(self, builder: LoopBuilder, loop: ConsumeLoop) -> None:
        """Run the loop, and restart it if it asks for that; the new loop reads unfinished messages again."""
        while True:
            try:
                return loop.run(self._stop)
            except MembershipLost as error:
                logger.error("reading stopped, restarting the consumer: %s", error)  # noqa: TRY400 - it is no surprise
            builder.closing.close()
            try:
                loop = builder.build()
            except KafkaNotReachable:
                if self._stop.is_set():
                    return None
                raise

    def _close(self) -> None:
        with self._changing:
            self._closing.close()

    def _must_not_run(self, doing: str) -> None:
        if self._thread is not None or self._stop.is_set():
            raise IllegalSetting(f"{doing}: this consumer was started before; make a new one")
