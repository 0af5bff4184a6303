"""Builds a PushConsumer from its parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import clients_of
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.librdkafka.membership import Membership
from reconsume.bridge.process.user_callbacks import with_guarded
from reconsume.bridge.reading.known_offsets import STEADY_MS, KnownOffsets
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, transactional_identity
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.assigned_partitions import AssignedPartitions
from reconsume.consumers.broadcasting.broadcasting import (
    BroadcastConsumer,
    BroadcastSender,
    DropCounter,
    PartitionFinder,
)
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets, offsets_directory
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.consume_settings import ConsumeSettings, MessageModel
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.listener_pool import make_pool
from reconsume.consumers.listeners.listener_service import ListenerService
from reconsume.consumers.listeners.orderly import OrderlyService
from reconsume.consumers.observing.hooks import ConsumeHooks, ConsumeMessageHook
from reconsume.consumers.sending.retry_topic import wait_for_kafka
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import PlainSender, Sender
from reconsume.consumers.sending.transactional_sender import TransactionalSender
from reconsume.consumers.step_driver import step_driver_of
from reconsume.consumers.subscriptions.pattern_consumer import MatchingTopics, PatternConsumer
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaNotReachable

T = TypeVar("T")


@dataclass(slots=True)
class Registration:
    """A listener and its options.

    Attributes:
        listener: None until one is registered.
        orderly: call it for one message after the other.
        per_key: keep the order within a key, not within a partition.
        hooks: called before and after the listener.
    """

    listener: Any = None
    orderly: bool = False
    per_key: bool = False
    hooks: list[ConsumeMessageHook] = field(default_factory=list)


@dataclass(slots=True)
class LoopBuilder:
    """Builds the loop of a consumer and its parts, anew for each restart of the loop.

    Attributes:
        closing: closes the parts after the loop has ended.
        dropped: counts over all restarts.
        known: offsets of the group as last seen, kept over all restarts: what restarts a loop, such as a coordinator
            that moves, may lose offsets too.
    """

    settings: ConsumeSettings
    registration: Registration
    subscriptions: Subscriptions
    follower: GroupsFollower
    stop: threading.Event
    closing: ExitStack
    dropped: DropCounter
    known: KnownOffsets = field(init=False)

    def __post_init__(self) -> None:
        admin = cache(partial(KafkaAdmin, self.settings.base, self.settings.client_id, stop=self.stop))
        self.known = KnownOffsets(
            lambda topics: {} if self._broadcasts else admin().topic_ids(topics),
            steady_ms=STEADY_MS if clients_of(self.settings.conf).can_lose_offsets else 0,
        )

    def build(self) -> ConsumeLoop:
        """Make a loop.

        Raises:
            IllegalSetting: librdkafka refuses a setting.
            KafkaRefused: rights are missing.
            OffsetStoreUnusable: the offsets of a broadcasting consumer cannot be used.
        """
        settings, conf = self.settings, self._conf()
        # A broadcasting consumer keeps its offsets itself, so the coordinator is not asked.
        connections = Connections(conf) if self._broadcasts else Membership(conf)
        consumer: GroupConsumer
        sender: Sender
        if self._broadcasts:
            consumer, sender = self._broadcasting(connections.settings)
        else:
            consumer = self._clustering(connections.settings)
            sender = self._sender(consumer)
        if step_driver_of(settings.conf) is None:
            sender.start()
        self.closing.callback(sender.close)
        partitions = AssignedPartitions(
            settings=settings, consumer=consumer, service=self._service(sender), sender=sender, known=self.known
        )
        return ConsumeLoop(partitions, self.subscriptions, connections)

    @property
    def _broadcasts(self) -> bool:
        return self.settings.message_model is MessageModel.BROADCASTING

    def _conf(self) -> dict[str, Any]:
        of_user = with_guarded(self.settings.conf, ("error_cb", "stats_cb", "throttle_cb"))
        conf = consumer_settings(of_user, self.settings.client_id) | {
            "group.id": self.settings.group,
            "enable.auto.commit": False,
            "enable.partition.eof": False,  # each end would be logged as an error
            "auto.offset.reset": "error",
        }
        if conf.get("group.protocol") != "consumer":
            conf.setdefault("partition.assignment.strategy", "cooperative-sticky")
        return conf

    def _started(self, found: RepeatedLook[T]) -> RepeatedLook[T]:
        self.closing.callback(found.close)
        found.start(self.stop)
        return found

    def _clustering(self, conf: Mapping[str, Any]) -> GroupConsumer:
        if not self.subscriptions.has_patterns:
            return GroupConsumer(conf)
        admin = KafkaAdmin(self.settings.base, self.settings.client_id)
        matching = MatchingTopics(lambda: self.subscriptions.existing(admin))
        look = RepeatedLook(matching, "topics that match a pattern", admin.stop)
        return PatternConsumer(conf, self._started(look))

    def _broadcasting(self, conf: Mapping[str, Any]) -> tuple[BroadcastConsumer, BroadcastSender]:
        settings = self.settings
        admin = KafkaAdmin(settings.base, settings.client_id)
        cluster = wait_for_kafka(admin.cluster_id, self.stop)
        if cluster is None:
            raise KafkaNotReachable(f"group {settings.group}: the consumer was stopped before Kafka answered")
        offsets = LocalOffsets.open(
            offsets_directory(settings.offset_store, cluster, settings.client_id, settings.group)
        )
        self.closing.callback(offsets.close)
        finder = PartitionFinder(admin, self.subscriptions, offsets, settings.consume_from)
        found = self._started(RepeatedLook(finder, "partitions to broadcast", admin.stop))
        sender = BroadcastSender(
            log=SendBackLog(settings.group), hooks=self._hooks(), offsets=offsets, dropped=self.dropped
        )
        return BroadcastConsumer(conf, found, offsets), sender

    def _groups(self) -> Groups:
        return self.follower.groups

    def _hooks(self) -> ConsumeHooks | None:
        settings, hooks = self.settings, self.registration.hooks
        return ConsumeHooks(settings.group, hooks, settings.limits.timeout_ms) if hooks else None

    def _sender(self, consumer: GroupConsumer) -> Sender:
        settings, base, names = self.settings, self.settings.base, self.settings.names
        log, hooks = SendBackLog(settings.group), self._hooks()
        sender: Sender
        if settings.exactly_once:
            identity = transactional_identity(settings.conf, names, settings.group, settings.client_id)
            self.closing.callback(identity.release)
            writer = ExactlyOnceWriter(base, names, self._groups, settings.group, identity.name, self.known)
            self.closing.callback(writer.close)
            writer.register(self.stop)
            sender = TransactionalSender(
                log=log,
                groups=self._groups,
                hooks=hooks,
                writer=writer,
                group_metadata=consumer.group_metadata,
                known=self.known,
            )
        else:
            ordinary = SendBackWriter(base, names, self._groups, settings.client_id)
            self.closing.callback(ordinary.close)
            sender = PlainSender(log=log, groups=self._groups, hooks=hooks, writer=ordinary, consumer=consumer)
        return sender

    def _service(self, sender: Sender) -> ListenerService[Any]:
        settings, registration, driver = self.settings, self.registration, step_driver_of(self.settings.conf)
        listener = registration.listener if driver is None else driver.recorded(settings.group, registration.listener)
        make: Callable[..., ListenerService[Any]] = (
            partial(OrderlyService, per_key=registration.per_key)
            if registration.orderly
            else partial(ConcurrentlyService, circuit_breaker=settings.circuit_breaker)
        )
        service = make(
            listener=listener,
            sender=sender,
            max_reconsume_times=settings.max_reconsume_times,
            batch_size=settings.batch_size,
            dead_letter_on=settings.dead_letter_on,
            clock=clients_of(settings.conf).steady_clock,
        )
        service.pool = (
            make_pool(listener, settings.threads, service.consume_all, service.consume_async)
            if driver is None
            else driver.pool(listener, service.consume, service.consume_async)
        )
        return service
