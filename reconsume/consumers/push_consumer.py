"""PushConsumer: RocketMQ's push consumer on Kafka."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from reconsume.bridge.groups import Groups
from reconsume.bridge.groups_follower import GroupsFollower
from reconsume.bridge.kafka import consumer_settings
from reconsume.bridge.send_back import SendBackWriter
from reconsume.consumers.concurrently import ConcurrentlyService
from reconsume.consumers.consume_loop import ConsumeLoop, Limits
from reconsume.consumers.listener import Listener
from reconsume.consumers.listener_pool import AsyncListenerPool, ListenerPool, ThreadListenerPool, is_async
from reconsume.consumers.retry_topic import check_group_consumes, make_retry_topic, settings_for_other_clients
from reconsume.consumers.subscription import TagExpression
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.levels import DelayLevels
from reconsume.delay_levels.names import TopicNames, check_group

__all__ = ["PushConsumer"]

logger = logging.getLogger(__name__)
L = TypeVar("L", bound=Listener)

_MAX_BATCH: Final = 1_024
_MAX_THREADS: Final = 1_000


class PushConsumer:
    """Calls a listener for every message of the subscribed topics, and again for those that failed.

    A message fails when the listener raises, or returns `RECONSUME_LATER` or None. It then waits on the delay topic
    of its level, comes back with `reconsume_times` one higher, and after `max_reconsume_times` rests in `%DLQ%group`.

    Args:
        group: the consumer group.
        bootstrap_servers: `host:port`, more of them parted by commas.
        conf: librdkafka settings, passed through; `auto.offset.reset` holds for the subscribed topics, the retry
            topic always starts at its beginning.
        max_reconsume_times: how often a message may be sent back; None takes the group's `retryMaxTimes` (16). 0
            makes the first failure a dead letter (RocketMQ: BR-12, T-02).
        consume_message_batch_max_size: messages in one call of the listener, 1 to 1,024.
        consume_thread_nums: listeners that run at once, 1 to 1,000 (RocketMQ: FC-01).
        consume_timeout: a listener that runs longer has its message sent back on level 3 (RocketMQ: EX-01).
        pull_threshold_for_queue: unfinished messages of a partition at which reading it waits (RocketMQ: FC-02).
        pull_threshold_size_for_queue: the same for their bodies, in MiB.
        consume_concurrently_max_span: offsets between the smallest unfinished message of a partition and the newest
            at which reading it waits: one stuck message stops its partition only there (RocketMQ: FC-03).
        delay_levels: a level table for this process alone, such as `"1s 5s 10s"`; None takes the cluster's.
        await_termination_when_shutdown: how long `shutdown` waits for running listeners.
        topic_prefix: of the installation's topics.

    Raises:
        IllegalSetting: an argument that cannot be; the message says which and what is allowed.
    """

    def __init__(
        self,
        group: str,
        *,
        bootstrap_servers: str = "localhost:9092",
        conf: Mapping[str, Any] | None = None,
        max_reconsume_times: int | None = None,
        consume_message_batch_max_size: int = 1,
        consume_thread_nums: int = 20,
        consume_timeout: timedelta = timedelta(minutes=15),
        pull_threshold_for_queue: int = 1_000,
        pull_threshold_size_for_queue: int = 100,
        consume_concurrently_max_span: int = 2_000,
        delay_levels: str | None = None,
        await_termination_when_shutdown: timedelta = timedelta(seconds=10),
        topic_prefix: str = "reconsume.",
    ) -> None:
        self._group = check_group(group)
        self._names = TopicNames(topic_prefix)
        self._names.retry(group)
        self._conf = dict(conf or {}) | {"bootstrap.servers": bootstrap_servers}
        self._auto_offset_reset = str(self._conf.pop("auto.offset.reset", "latest"))
        _check_conf(self._conf, self._auto_offset_reset)
        _check_range("consume_message_batch_max_size", consume_message_batch_max_size, 1, _MAX_BATCH)
        _check_range("consume_thread_nums", consume_thread_nums, 1, _MAX_THREADS)
        _check_range("pull_threshold_for_queue", pull_threshold_for_queue, 1, 65_535)
        _check_range("pull_threshold_size_for_queue", pull_threshold_size_for_queue, 1, 1_024)
        _check_range("consume_concurrently_max_span", consume_concurrently_max_span, 1, 65_535)
        if max_reconsume_times is not None:
            _check_range("max_reconsume_times", max_reconsume_times, 0, 2**31 - 1)
        if consume_timeout <= timedelta(0):
            raise IllegalSetting(f"consume_timeout must be longer than 0, not {consume_timeout}")
        self._max_reconsume_times = max_reconsume_times
        self._threads = consume_thread_nums
        self._limits = Limits(
            batch_size=consume_message_batch_max_size,
            queue_records=pull_threshold_for_queue,
            queue_bytes=pull_threshold_size_for_queue * 1024 * 1024,
            max_span=consume_concurrently_max_span,
            timeout_ms=consume_timeout.total_seconds() * 1000,
            await_termination_seconds=await_termination_when_shutdown.total_seconds(),
        )
        self._own_table = None if delay_levels is None else DelayLevels.parse(delay_levels)
        self._subscriptions: dict[str, TagExpression] = {}
        self._listener: Listener | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._close: list[Callable[[], None]] = []

    def subscribe(self, topic: str, sub_expression: str | None = "*") -> Self:
        """Consume a topic, all of it or only some tags such as `"TagA || TagB"` (RocketMQ: TF-03).

        Raises:
            IllegalSetting: the topic or the expression cannot be, or the consumer has started.
        """
        self._must_not_run("subscribe")
        kafka_topic = self._names.kafka_topic(topic)
        if kafka_topic == self._names.retry(self._group):
            raise IllegalSetting(f"topic {topic!r}: the retry topic of the group is subscribed to by itself")
        if kafka_topic != topic:
            raise IllegalSetting(f"topic {topic!r}: subscribe to it by its name in Kafka, {kafka_topic}")
        self._subscriptions[topic] = TagExpression.parse(sub_expression)
        return self

    def register_message_listener(self, listener: Listener) -> Self:
        """The function that gets the messages: `listener(messages, context)`, plain or `async def`."""
        self._must_not_run("register_message_listener")
        if not callable(listener):
            raise IllegalSetting(f"the listener must be a function, not {listener!r}")
        self._listener = listener
        return self

    def listener(self, function: L) -> L:
        """`register_message_listener` as a decorator."""
        self.register_message_listener(function)
        return function

    def start(self) -> None:
        """Begin to consume, in threads of its own. Waits for a broker that is away, and says so in the log.

        Raises:
            IllegalSetting: no listener or no subscription.
            SubscriptionGroupNotExist: the group must be registered first.
            KafkaRefused: rights are missing.
        """
        self._must_not_run("start")
        if self._listener is None or not self._subscriptions:
            missing = "a listener: @consumer.listener" if self._listener is None else "a topic: subscribe(topic)"
            raise IllegalSetting(f"the consumer of group {self._group!r} needs {missing}")
        base = settings_for_other_clients(self._conf)
        if self._own_table is not None:
            logger.warning("group %s uses its own level table: %s", self._group, self._own_table)
        follower = GroupsFollower(base, self._names.groups, Groups(own_table=self._own_table))
        follower.start()
        self._close = [follower.close]
        try:
            if not follower.wait_until_loaded(self._stop):
                return
            check_group_consumes(self._group, follower.groups)
            make_retry_topic(base, self._names, self._group, follower.groups, self._stop)
            loop = self._build(base, follower)
        except BaseException:
            self._close_all()
            raise
        self._thread = threading.Thread(target=self._run, args=(loop,), name="reconsume-consumer", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Stop: running listeners may finish, what is finished is committed, the rest comes again.

        Raises:
            ReconsumeError: what had ended the consumer before.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._close_all()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def run(self) -> None:
        """Start, and consume until SIGTERM or Ctrl-C; for programs that do nothing else."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stop.set())
        self.start()
        try:
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.5)
        finally:
            self.shutdown()

    @property
    def running(self) -> bool:
        """Whether it consumes; False after a failure, which `shutdown` then raises."""
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _run(self, loop: ConsumeLoop) -> None:
        try:
            loop.run(self._stop)
        except BaseException as error:
            logger.exception("the consumer of group %s has ended", self._group)
            self._failure = error

    def _build(self, base: Mapping[str, Any], follower: GroupsFollower) -> ConsumeLoop:
        assert self._listener is not None
        client_id = str(self._conf.get("client.id", f"reconsume-{self._group}"))
        writer = SendBackWriter(base, self._names, lambda: follower.groups, client_id)
        self._close.insert(0, writer.close)
        service = ConcurrentlyService(
            self._group,
            self._listener,
            writer=writer,
            names=self._names,
            max_reconsume_times=self._max_reconsume_times,
        )
        pool: ListenerPool = (
            AsyncListenerPool(self._threads, service.consume_async)
            if is_async(self._listener)
            else ThreadListenerPool(self._threads, service.consume)
        )

        def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
            loop.committed(error, partitions)

        settings = consumer_settings(self._conf, client_id) | {
            "group.id": self._group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "on_commit": on_commit,
        }
        if settings.get("group.protocol") != "consumer":
            settings.setdefault("partition.assignment.strategy", "cooperative-sticky")
        loop: ConsumeLoop = ConsumeLoop(
            Consumer(settings),
            service,
            pool,
            retry_topic=self._names.retry(self._group),
            subscriptions=self._subscriptions,
            from_beginning=self._auto_offset_reset in _BEGINNING,
            limits=self._limits,
            flush_send_backs=writer.flush,
        )
        return loop

    def _must_not_run(self, doing: str) -> None:
        if self._thread is not None or self._stop.is_set():
            raise IllegalSetting(f"{doing}: this consumer was started before; make a new one")

    def _close_all(self) -> None:
        while self._close:
            self._close.pop(0)()


_BEGINNING: Final = ("earliest", "beginning", "smallest")
_END: Final = ("latest", "end", "largest")


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise IllegalSetting(f"{name} must be from {low} to {high}, not {value}")


def _check_conf(conf: Mapping[str, Any], auto_offset_reset: str) -> None:
    if auto_offset_reset not in _BEGINNING + _END:
        raise IllegalSetting(f"auto.offset.reset {auto_offset_reset!r}: use earliest or latest")
    if conf.get("isolation.level", "read_committed") != "read_committed":
        raise IllegalSetting("isolation.level must be read_committed: retries are delivered in transactions")
    strategy = conf.get("partition.assignment.strategy", "cooperative-sticky")
    if strategy != "cooperative-sticky":
        raise IllegalSetting(f"partition.assignment.strategy {strategy!r}: only cooperative-sticky, or group.protocol")
    for forbidden in ("group.id", "enable.auto.commit"):
        if forbidden in conf:
            raise IllegalSetting(f"{forbidden} is decided by the consumer itself; leave it out of conf")
