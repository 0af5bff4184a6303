"""Put a PushConsumer together from its parts."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import clients_of, clock_of, make_consumer
from reconsume.bridge.librdkafka.membership import Membership
from reconsume.bridge.process.user_callbacks import with_guarded
from reconsume.bridge.reading.known_offsets import STEADY_MS, KnownOffsets
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, transactional_identity
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.broadcasting.broadcasting import (
    BroadcastConsumer,
    BroadcastSender,
    DropCounter,
    PartitionFinder,
)
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets, offsets_directory
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.consume_settings import ConsumeSettings
from reconsume.consumers.listener import Listener, OrderlyListener
from reconsume.consumers.listeners.circuit_gate import CircuitGate
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.listener_pool import ListenerPool, make_pool
from reconsume.consumers.listeners.orderly import OrderlyService
from reconsume.consumers.message_model import MessageModel
from reconsume.consumers.observing.hooks import ConsumeHooks, ConsumeMessageHook
from reconsume.consumers.partitions.services import ListenerService
from reconsume.consumers.sending.hooked_sender import HookedSender, dropped_way, way_of
from reconsume.consumers.sending.retry_topic import wait_for_kafka
from reconsume.consumers.sending.send_back_log import LoggedSender, SendBackLog
from reconsume.consumers.sending.senders import PlainSender, Sender, SendsBack
from reconsume.consumers.sending.transactional_sender import TransactionalSender
from reconsume.consumers.step_driver import step_driver_of
from reconsume.consumers.subscriptions.pattern_consumer import PatternConsumer, matching_topics
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import IllegalSetting, KafkaNotReachable

__all__ = ["Registration", "build_loop"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registration:
    """A listener and the way it wants its messages.

    Attributes:
        orderly: one after the other.
        per_key: of a key, not of a partition.
        hooks: what is told of its calls.
    """

    listener: Listener | OrderlyListener
    orderly: bool = False
    per_key: bool = False
    hooks: tuple[ConsumeMessageHook, ...] = ()


def build_loop(
    settings: ConsumeSettings,
    registration: Registration,
    subscriptions: Subscriptions,
    base: Mapping[str, Any],
    follower: GroupsFollower,
    *,
    stop: threading.Event,
    closing: list[Callable[[], None]],
    dropped: DropCounter,
) -> ConsumeLoop:
    """The loop with all its parts; what has to be closed after it is put in front of `closing`.

    Raises:
        IllegalSetting: librdkafka does not take its settings.
        KafkaRefused: rights are missing.
        OffsetStoreUnusable: of a broadcasting consumer.
    """

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        loop.committed(error, partitions)

    consumer: Consumer
    sender: Sender
    conf = _of_the_consumer(settings)
    # A broadcasting consumer keeps its offsets itself, so nothing has to be asked for it.
    broadcasts = settings.message_model is MessageModel.BROADCASTING
    membership = None if broadcasts else Membership(conf)
    known = KnownOffsets(
        lambda topics: {} if broadcasts else KafkaAdmin(base, settings.client_id).topic_ids(topics),
        steady_ms=STEADY_MS if clients_of(base).can_lose_offsets else 0,
    )
    try:
        if membership is None:
            consumer, sender = _broadcasting(settings, conf, subscriptions, base, dropped, stop, closing)
        else:
            conf = membership.settings | {"on_commit": on_commit}
            consumer = _clustering(settings, conf, subscriptions, base, stop, closing)
            sender = _sender(settings, consumer, base, follower, known, stop, closing)
    except KafkaException as error:
        raise IllegalSetting(f"conf of group {settings.group!r}: {error.args[0].str()}") from error
    driver = step_driver_of(settings.conf)
    if driver is not None:
        registration = replace(registration, listener=driver.recorded(settings.group, registration.listener))
    loop: ConsumeLoop = ConsumeLoop(
        consumer,
        _service(settings, registration, sender, follower),
        sender,
        retry_topic=settings.names.retry(settings.group),
        subscriptions=subscriptions,
        consume_from=settings.consume_from,
        limits=settings.limits,
        known=known,
        membership=membership,
        namespace_prefix=settings.namespace.topic_prefix,
        clock=clock_of(settings.conf),
    )
    return loop


def _of_the_consumer(settings: ConsumeSettings) -> dict[str, Any]:
    of_user = with_guarded(settings.conf, ("error_cb", "stats_cb", "throttle_cb"))
    conf = consumer_settings(of_user, settings.client_id) | {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    if conf.get("group.protocol") != "consumer":
        conf.setdefault("partition.assignment.strategy", "cooperative-sticky")
    return conf


def _clustering(
    settings: ConsumeSettings,
    conf: Mapping[str, Any],
    subscriptions: Subscriptions,
    base: Mapping[str, Any],
    stop: threading.Event,
    closing: list[Callable[[], None]],
) -> Consumer:
    if not subscriptions.has_patterns:
        return make_consumer(conf)
    found = matching_topics(KafkaAdmin(base, settings.client_id), subscriptions)
    closing.insert(0, found.close)
    found.start(stop)
    return PatternConsumer(conf, found)


def _broadcasting(
    settings: ConsumeSettings,
    conf: Mapping[str, Any],
    subscriptions: Subscriptions,
    base: Mapping[str, Any],
    dropped: DropCounter,
    stop: threading.Event,
    closing: list[Callable[[], None]],
) -> tuple[BroadcastConsumer, BroadcastSender]:
    admin = KafkaAdmin(base, settings.client_id)
    cluster = wait_for_kafka(admin.cluster_id, stop)
    if cluster is None:
        raise KafkaNotReachable(f"group {settings.group}: the consumer was stopped before Kafka answered")
    directory = offsets_directory(settings.offset_store, cluster, settings.client_id, settings.group)
    offsets = LocalOffsets.open(directory)
    closing.insert(0, offsets.close)
    found = RepeatedLook(
        PartitionFinder(admin, subscriptions, offsets, settings.consume_from), "partitions to broadcast"
    )
    closing.insert(0, found.close)
    found.start(stop)
    return BroadcastConsumer(conf, found, offsets), BroadcastSender(offsets, dropped)


def _sender(
    settings: ConsumeSettings,
    consumer: Consumer,
    base: Mapping[str, Any],
    follower: GroupsFollower,
    known: KnownOffsets,
    stop: threading.Event,
    closing: list[Callable[[], None]],
) -> Sender:
    if settings.exactly_once:
        identity = transactional_identity(settings.conf, settings.names, settings.group, settings.client_id)
        closing.insert(0, identity.release)
        writer = ExactlyOnceWriter(base, settings.names, lambda: follower.groups, settings.group, identity.name, known)
        closing.insert(0, writer.close)
        writer.register(stop)
        transactional = TransactionalSender(
            writer.send_back, writer.was_committed, consumer.consumer_group_metadata, known.note
        )
        closing.insert(0, transactional.close)
        return transactional
    ordinary = SendBackWriter(base, settings.names, lambda: follower.groups, settings.client_id)
    closing.insert(0, ordinary.close)
    return PlainSender(ordinary.send_back, ordinary.flush, consumer)


def _service(
    settings: ConsumeSettings, registration: Registration, sender: SendsBack, follower: GroupsFollower
) -> ListenerService:
    hooks = None
    if registration.hooks:
        hooks = ConsumeHooks(settings.group, registration.hooks, settings.limits.timeout_ms)
        broadcasts = settings.message_model is MessageModel.BROADCASTING
        sender = HookedSender(sender, hooks, dropped_way if broadcasts else lambda one: way_of(one, follower.groups))
    log = SendBackLog(settings.group)
    if settings.message_model is MessageModel.CLUSTERING:
        sender = LoggedSender(sender, log, lambda: follower.groups)
    service: OrderlyService | ConcurrentlyService
    if registration.orderly:
        service = orderly = OrderlyService(
            settings.group,
            cast("OrderlyListener", registration.listener),
            sender=sender,
            log=log,
            hooks=hooks,
            names=settings.names,
            max_reconsume_times=settings.max_reconsume_times,
            batch_size=settings.batch_size,
            dead_letter_on=settings.dead_letter_on,
            per_key=registration.per_key,
            clock=clock_of(settings.conf),
        )
        orderly.attach(_pool(settings, registration, orderly.consume, orderly.consume_async))
    else:
        breaker, clock = settings.circuit_breaker, clock_of(settings.conf)
        service = concurrently = ConcurrentlyService(
            settings.group,
            cast("Listener", registration.listener),
            sender=sender,
            hooks=hooks,
            names=settings.names,
            max_reconsume_times=settings.max_reconsume_times,
            batch_size=settings.batch_size,
            dead_letter_on=settings.dead_letter_on,
            clock=clock,
            gate=None if breaker is None else CircuitGate(settings.group, breaker, clock),
        )
        concurrently.attach(_pool(settings, registration, concurrently.consume, concurrently.consume_async))
    return service


def _pool(
    settings: ConsumeSettings,
    registration: Registration,
    consume: Callable[[T], None],
    consume_async: Callable[[T], Awaitable[None]],
) -> ListenerPool[T]:
    driver = step_driver_of(settings.conf)
    if driver is not None:
        return driver.pool(registration.listener, consume, consume_async)
    return make_pool(registration.listener, settings.threads, consume, consume_async)
