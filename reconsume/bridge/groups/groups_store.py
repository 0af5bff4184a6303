"""Write and list subscription groups."""

from __future__ import annotations

import threading

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.compacted_topics import write_records
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.allowed_topics import encode_allowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY

__all__ = ["read_groups", "remove_group", "write_allowed_topics", "write_group", "write_system"]

_SECONDS = 15.0


def read_groups(settings: Settings) -> Groups:
    """The groups as the topic holds them now.

    Raises:
        KafkaNotReachable: it could not be read within 15 s.
    """
    # A follower waits for Kafka, and says why only in its log.
    KafkaAdmin(settings.client_settings()).partitions([settings.names.groups])
    follower = GroupsFollower(settings.client_settings(), settings.names.groups, Groups())
    stop = threading.Event()
    timer = threading.Timer(_SECONDS, stop.set)
    timer.start()
    follower.start()
    try:
        if not follower.wait_until_loaded(stop):
            raise KafkaNotReachable(
                f"topic {settings.names.groups} could not be read within {_SECONDS:.0f} s from "
                f"{settings.bootstrap_servers}; `reconsume doctor` examines the connection"
            )
        return follower.groups
    finally:
        timer.cancel()
        follower.close()


def write_group(settings: Settings, config: SubscriptionGroupConfig) -> None:
    """Register or change a group; all processes follow within a second."""
    write_records(settings, settings.names.groups, [(config.group_name, config.to_json())])


def remove_group(settings: Settings, group: str) -> None:
    """Unregister a group; its topics stay."""
    write_records(settings, settings.names.groups, [(group, None)])


def write_system(settings: Settings, config: SystemConfig) -> None:
    """Set the level table and the switches for all groups."""
    write_records(settings, settings.names.groups, [(SYSTEM_KEY, config.to_json())])


def write_allowed_topics(settings: Settings) -> None:
    """Publish the setting `allowed_real_topics` of a scheduler, for those who send delayed messages."""
    value = encode_allowed(settings.allowed_real_topics)
    write_records(settings, settings.names.groups, [(ALLOWED_TOPICS_KEY, value)])
