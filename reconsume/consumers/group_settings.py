"""The settings that all kinds of consumers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.process.settings import SERVERS, check_servers
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import of_type, shown, type_name
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames

_OF_CONSUMERS_ONLY: Final = (
    *("group.", "fetch.", "queued.", "enable.auto.", "enable.partition.eof", "auto.", "session.timeout.ms"),
    *("heartbeat.interval.ms", "max.poll.interval.ms", "max.partition.fetch.bytes", "partition.assignment.strategy"),
    *("isolation.level", "check.crcs", "coordinator.query.interval.ms", "consume.", "default.topic.config"),
    *("on_commit", "stats_cb", "statistics.interval.ms", "throttle_cb", "error_cb", "logger"),
)


def checked_conf(conf: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of a program's librdkafka settings.

    Raises:
        IllegalSetting: a name is not a str, a callback is not a function, reconsume sets this one itself, or it would
            break a guarantee.
    """
    checked = dict(conf or {})
    for name, value in checked.items():
        if not isinstance(name, str):
            raise IllegalSetting(f"conf must have names of settings such as 'client.id', got {shown(name)}")
        if name.endswith("_cb") and value is not None and not callable(value):
            raise IllegalSetting(f"conf: {name} must be a function, got {type_name(type(value))}")
    if "transactional.id" in checked:
        raise IllegalSetting("transactional.id is set by reconsume itself; leave it out of conf")
    if is_off(checked.get("enable.idempotence", True)):
        raise IllegalSetting(
            "enable.idempotence must be on: a record that is written again after a lost connection would be stored "
            "twice; leave it out of conf"
        )
    return checked


def is_off(value: Any) -> bool:
    """Return whether librdkafka takes this value of a switch as off."""
    return str(value).lower() in ("false", "0", "f")


def is_cooperative(conf: Mapping[str, Any]) -> bool:
    """Return whether the members of a group change their assignments incrementally."""
    protocol = str(conf.get("group.protocol", "classic")).lower()
    return protocol == "consumer" or "cooperative" in str(conf.get("partition.assignment.strategy", ""))


def client_conf(conf: Mapping[str, Any] | None, bootstrap_servers: str) -> dict[str, Any]:
    """Return a copy of a program's librdkafka settings, with the address of Kafka.

    confluent-kafka (2.16) lets `default.topic.config` win over all other settings, so it is merged before they are
    checked.

    Raises:
        IllegalSetting: as `checked_conf`, or the address is illegal or differs from one in `conf`.
    """
    checked = checked_conf(conf)
    of_topics = of_type(checked.pop("default.topic.config", None), "default.topic.config", Mapping, type(None))
    checked = checked_conf(checked | dict(of_topics or {}))
    for name in SERVERS & checked.keys():
        if checked.pop(name) != bootstrap_servers:
            raise IllegalSetting(f"conf has {name}, which has no effect there; use the argument bootstrap_servers")
    try:
        check_servers(bootstrap_servers)
    except IllegalSetting as error:
        raise IllegalSetting(f"bootstrap_servers {bootstrap_servers!r}: {error}") from None
    return checked | {"bootstrap.servers": bootstrap_servers}


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The settings that PushConsumer and the drop-in share.

    Attributes:
        group: the consumer group.
        names: the installation's topics.
        conf: the consumer's settings for librdkafka.
        max_reconsume_times: the consumer's own maximum; None uses the group's.
        own_table: a level table for this process alone.
        exactly_once: send-backs and offsets are written in transactions.
    """

    group: str
    names: TopicNames
    conf: Mapping[str, Any]
    max_reconsume_times: int | None
    own_table: DelayLevels | None
    exactly_once: bool

    @property
    def retry_topic(self) -> str:
        """Return the Kafka topic of `%RETRY%<group>`."""
        return self.names.retry(self.group)

    @property
    def client_id(self) -> str:
        """Return the client id that brokers log."""
        return str(self.conf.get("client.id", f"reconsume-{self.group}"))

    def groups_follower(self) -> GroupsFollower:
        """Return a follower of the group's settings; not started."""
        return GroupsFollower(self.base, self.names.groups, Groups(own_table=self.own_table))

    @property
    def base(self) -> dict[str, Any]:
        """Return the settings without those that only a consumer, or only the user's consumer, may have."""
        return {key: value for key, value in self.conf.items() if not key.startswith(_OF_CONSUMERS_ONLY)}
