"""Put a PushConsumer together from its parts."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from reconsume.bridge.exactly_once import ExactlyOnceWriter
from reconsume.bridge.groups_follower import GroupsFollower
from reconsume.bridge.kafka import consumer_settings
from reconsume.bridge.send_back import SendBackWriter
from reconsume.consumers.concurrently import ConcurrentlyService
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.consume_settings import ConsumeSettings
from reconsume.consumers.hooked_sender import HookedSender, way_of
from reconsume.consumers.hooks import ConsumeHooks, ConsumeMessageHook
from reconsume.consumers.listener import Listener, OrderlyListener
from reconsume.consumers.listener_pool import make_pool
from reconsume.consumers.orderly import OrderlyService
from reconsume.consumers.senders import PlainSender, Sender, SendsBack
from reconsume.consumers.services import ListenerService
from reconsume.consumers.subscription import TagExpression
from reconsume.consumers.transactional_sender import TransactionalSender

__all__ = ["Registration", "build_loop"]


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
    subscriptions: Mapping[str, TagExpression],
    base: Mapping[str, Any],
    follower: GroupsFollower,
    *,
    stop: threading.Event,
    closing: list[Callable[[], None]],
) -> ConsumeLoop:
    """The loop with all its parts; what has to be closed after it is put in front of `closing`.

    Raises:
        KafkaRefused: rights are missing.
    """

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        loop.committed(error, partitions)

    consumer = Consumer(_of_the_consumer(settings) | {"on_commit": on_commit})
    sender = _sender(settings, consumer, base, follower, stop, closing)
    loop: ConsumeLoop = ConsumeLoop(
        consumer,
        _service(settings, registration, sender, follower),
        sender,
        retry_topic=settings.names.retry(settings.group),
        subscriptions=subscriptions,
        from_beginning=settings.from_beginning,
        limits=settings.limits,
    )
    return loop


def _of_the_consumer(settings: ConsumeSettings) -> dict[str, Any]:
    conf = consumer_settings(settings.conf, settings.client_id) | {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    if conf.get("group.protocol") != "consumer":
        conf.setdefault("partition.assignment.strategy", "cooperative-sticky")
    return conf


def _sender(
    settings: ConsumeSettings,
    consumer: Consumer,
    base: Mapping[str, Any],
    follower: GroupsFollower,
    stop: threading.Event,
    closing: list[Callable[[], None]],
) -> Sender:
    if settings.exactly_once:
        writer = ExactlyOnceWriter(
            base, settings.names, lambda: follower.groups, settings.group, f"{settings.client_id}-{uuid.uuid4()}"
        )
        closing.insert(0, writer.close)
        writer.register(stop)
        transactional = TransactionalSender(writer.send_back, consumer.consumer_group_metadata)
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
        sender = HookedSender(sender, hooks, lambda request: way_of(request, follower.groups))
    service: OrderlyService | ConcurrentlyService
    if registration.orderly:
        service = orderly = OrderlyService(
            settings.group,
            cast("OrderlyListener", registration.listener),
            sender=sender,
            hooks=hooks,
            names=settings.names,
            max_reconsume_times=settings.max_reconsume_times,
            batch_size=settings.batch_size,
            per_key=registration.per_key,
        )
        orderly.attach(make_pool(registration.listener, settings.threads, orderly.consume, orderly.consume_async))
    else:
        service = concurrently = ConcurrentlyService(
            settings.group,
            cast("Listener", registration.listener),
            sender=sender,
            hooks=hooks,
            names=settings.names,
            max_reconsume_times=settings.max_reconsume_times,
            batch_size=settings.batch_size,
        )
        concurrently.attach(
            make_pool(registration.listener, settings.threads, concurrently.consume, concurrently.consume_async)
        )
    return service
