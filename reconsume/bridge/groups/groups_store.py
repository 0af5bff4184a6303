"""Write and list subscription groups."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.compacted_topics import write_records
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.wire.allowed_topics import encode_allowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY

__all__ = ["read_groups", "remove_group", "write_allowed_topics", "write_group", "write_system"]

_SECONDS: Final = 15.0


def read_groups(settings: Settings) -> Groups:
    """The groups as the topic holds them now.

    Raises:
        KafkaNotReachable: nothing came within 15 s.
        KafkaRefused: rights are missing.
    """
    base, topic = settings.client_settings(), settings.names.groups
    admin = KafkaAdmin(base)
    ends = admin.end_offsets([(topic, one) for one in range(admin.partitions([topic]).get(topic, 0))])
    groups = Groups()
    with RangeReader(base, topic, seconds=_SECONDS) as reader:
        for message in reader.read({where: (0, end) for where, end in ends.items()}):
            groups = groups.with_record(message.key(), message.value())
    return groups


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
