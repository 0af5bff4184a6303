"""Write and list subscription groups."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaError, KafkaException, Message

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.clients import make_producer
from reconsume.bridge.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.groups_follower import GroupsFollower
from reconsume.bridge.kafka import producer_settings, translate
from reconsume.bridge.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable, TopicNotReady
from reconsume.delay_levels.names import SYSTEM_KEY

__all__ = ["read_groups", "remove_group", "write_group", "write_system"]

_SECONDS = 15.0


def read_groups(settings: Settings) -> Groups:
    """The groups as the topic holds them now.

    Raises:
        KafkaNotReachable: it could not be read within 15 s.
    """
    follower = GroupsFollower(settings.client_settings(), settings.names.groups, Groups())
    stop = threading.Event()
    timer = threading.Timer(_SECONDS, stop.set)
    timer.start()
    follower.start()
    try:
        if not follower.wait_until_loaded(stop):
            raise KafkaNotReachable(
                f"topic {settings.names.groups} could not be read within {_SECONDS:.0f} s from "
                f"{settings.bootstrap_servers}; is --bootstrap-servers right?"
            )
        return follower.groups
    finally:
        timer.cancel()
        follower.close()


def write_group(settings: Settings, config: SubscriptionGroupConfig) -> None:
    """Register or change a group; all processes follow within a second."""
    _write(settings, config.group_name, config.to_json())


def remove_group(settings: Settings, group: str) -> None:
    """Unregister a group; its topics stay."""
    _write(settings, group, None)


def write_system(settings: Settings, config: SystemConfig) -> None:
    """Set the level table and the switches for all groups."""
    _write(settings, SYSTEM_KEY, config.to_json())


def _write(settings: Settings, key: str, value: str | None) -> None:
    topic = settings.names.groups
    if topic not in KafkaAdmin(settings.client_settings()).partitions([topic]):
        raise TopicNotReady(f"topic {topic} does not exist; make it: reconsume topics apply")
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    # Not idempotent: a second copy says the same, and a right that lacks is told as what it is.
    limit = {"message.timeout.ms": int(_SECONDS * 1000), "enable.idempotence": False}
    producer = make_producer(producer_settings(settings.client_settings(), "reconsume-groups") | limit)
    try:
        producer.produce(topic, key=key, value=value, on_delivery=on_delivery)
        producer.flush()
    except KafkaException as error:
        raise translate(error, f"writing to {topic}") from error
    finally:
        producer.close()
    if failed:
        raise translate(failed[0], f"writing to {topic}")
