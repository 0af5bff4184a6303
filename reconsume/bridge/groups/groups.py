"""Subscription groups and the level table: kept in the compacted GROUPS topic, read by every process.

The key is the group, the value JSON of its SubscriptionGroupConfig, with RocketMQ's field names. The key `%SYS%` holds
settings for all groups, `%SYS%.allowedRealTopics` that setting of the schedulers. Every process reads the topic at its
start and follows it, so all decide alike.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import TopicSettings
from reconsume.delay_levels.errors import IllegalSetting, SubscriptionGroupNotExist
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import RetryPolicy, parse_retry_policy, spell_waits
from reconsume.delay_levels.rules.send_back import DEFAULT_MAX_RECONSUME_TIMES
from reconsume.delay_levels.wire.allowed_topics import decode_allowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY, check_group
from reconsume.delay_levels.wire.properties import LARGEST

logger = SafeLogger(__name__)


class _Stored(BaseModel):
    """A record of the topic. A newer version may have written it, so unknown keys are kept, not refused."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the fields that this version knows, by RocketMQ's names."""
        return tuple(one.alias or name for name, one in cls.model_fields.items())


class SubscriptionGroupConfig(_Stored):
    """RocketMQ's SubscriptionGroupConfig: the fields that control retries (RocketMQ: GP-01)."""

    group_name: Annotated[str, Field(alias="groupName")]
    consume_enable: Annotated[bool, Field(alias="consumeEnable")] = True
    consume_broadcast_enable: Annotated[bool, Field(alias="consumeBroadcastEnable")] = True
    retry_queue_nums: Annotated[int, Field(alias="retryQueueNums", le=1_000)] = 1
    retry_max_times: Annotated[int, Field(alias="retryMaxTimes", ge=0, le=LARGEST)] = DEFAULT_MAX_RECONSUME_TIMES
    group_retry_policy: Annotated[dict[str, Any] | None, Field(alias="groupRetryPolicy")] = None
    retry_paused: Annotated[bool | None, Field(alias="retryPaused")] = None
    """Not in RocketMQ: whether due records of the group wait in its parked topic; None means no."""
    max_waiting: Annotated[int | None, Field(alias="maxWaiting", ge=0, le=LARGEST)] = None
    """Not in RocketMQ: with this many waiting messages, first failures are not sent back; None and 0: no limit."""

    @field_validator("group_name")
    @classmethod
    def _name_is_legal(cls, value: str) -> str:
        return check_group(value)

    @field_validator("group_retry_policy")
    @classmethod
    def _policy_is_legal(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            parse_retry_policy(value)
        return value

    @cached_property
    def _own_policy(self) -> RetryPolicy | None:
        """Cached, because every send-back needs it."""
        return None if self.group_retry_policy is None else parse_retry_policy(self.group_retry_policy)

    def policy(self, table: DelayLevels) -> RetryPolicy:
        """Return the group's own retry policy, or the common level table."""
        return self._own_policy or table

    def waits(self, table: DelayLevels) -> str:
        """Return the wait before each retry, for people; consumers may request other levels, or set another maximum."""
        if self.retry_queue_nums <= 0:
            return "none: failed messages are dropped"
        return spell_waits(self.policy(table), self.retry_max_times) or "none: a failed message is a dead letter"

    def fields(self) -> dict[str, Any]:
        """Return the fields by RocketMQ's names, without those that are None."""
        return self.model_dump(by_alias=True, exclude_none=True)

    def to_json(self) -> str:
        """Return the value of the group's record."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class PublishedTopicSettings(TopicSettings):
    """The topic settings of the installation, for every process that creates a topic.

    Only explicit settings are stored; the others have the defaults of the version that reads them.

    Guarantees: published settings override the own settings of every process that creates topics, because the delay
    topic, the retry topic and the dead-letter topic of a record must accept the same sizes.
    Test: tests/integration/topics/test_published_settings.py.
    """

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    @model_serializer(mode="wrap")
    def _only_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given = self.model_fields_set | {to_camel(name) for name in self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name in given}


class SystemConfig(_Stored):
    """Settings for all groups; RocketMQ has them in the broker's configuration.

    When an earlier version changes a field, it keeps fields that it does not know.
    """

    message_delay_level: Annotated[str, Field(alias="messageDelayLevel")] = DEFAULT_LEVEL_TABLE
    auto_create_subscription_group: Annotated[bool, Field(alias="autoCreateSubscriptionGroup")] = True
    topic_settings: Annotated[PublishedTopicSettings | None, Field(alias="topicSettings")] = None

    @field_validator("message_delay_level")
    @classmethod
    def _table_is_legal(cls, value: str) -> str:
        DelayLevels.parse(value)
        return value

    @model_serializer(mode="wrap")
    def _without_unpublished_settings(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        absent = ("topicSettings", "topic_settings") if self.topic_settings is None else ()
        return {name: value for name, value in handler(self).items() if name not in absent}

    def publishing(self, own: TopicSettings) -> SystemConfig:
        """Return the configuration with the explicit topic settings of a process; other settings stay."""
        given = own.model_dump(exclude_unset=True)
        if not given:
            return self
        published = {} if self.topic_settings is None else self.topic_settings.model_dump()
        return self.model_copy(update={"topic_settings": PublishedTopicSettings(**(published | given))})

    def to_json(self) -> str:
        """Return the value of the `%SYS%` record."""
        return self.model_dump_json(by_alias=True)


_DEFAULT_TOPICS: Final = TopicSettings()

T = TypeVar("T", bound=_Stored)


def check_names(what: str, given: Iterable[object], known: Collection[str]) -> None:
    """Raise `IllegalSetting` for names of a person's file or call that this version does not know."""
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        raise IllegalSetting(f"{what}: unknown {', '.join(unknown)}; known here: {', '.join(known)}")


def parse_group_config(group: str, value: str | bytes | Mapping[str, Any]) -> SubscriptionGroupConfig:
    """Read one group from JSON, or from parsed JSON or YAML.

    Raises:
        IllegalSetting: not JSON, an invalid field, which the message names, or the name of another group.
    """
    what = f"group {group!r}"
    found = _check(SubscriptionGroupConfig, what, {"groupName": group} | _object(what, value))
    if found.group_name != group:
        # A change of this group would be written under the other key.
        raise IllegalSetting(f"{what}: groupName is {found.group_name!r}; it must be the key of the record")
    return found


def parse_system_config(value: str | bytes | Mapping[str, Any]) -> SystemConfig:
    """Read the value of the `%SYS%` key from JSON, or from parsed JSON or YAML.

    Raises:
        IllegalSetting: not JSON, or an invalid field.
    """
    what = f"key {SYSTEM_KEY}"
    return _check(SystemConfig, what, _object(what, value))


def _object(what: str, value: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    try:
        found = json.loads(value)
        # Unknown keys are kept, but deep nesting and half a surrogate pair cannot be written again.
        to_json(found)
    except (ValueError, RecursionError) as error:
        raise IllegalSetting(f"{what}: the value is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise IllegalSetting(f"{what}: the value must be a JSON object, not {value[:80]!r}")
    return found


def _check(model: type[T], what: str, value: dict[str, Any]) -> T:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}" for one in error.errors()
        )
        raise IllegalSetting(f"{what}: {problems}") from None


@lru_cache(maxsize=1_024)
def _with_defaults(group: str) -> SubscriptionGroupConfig:
    """Return the defaults for an unregistered group; cached, because every send-back needs them."""
    return SubscriptionGroupConfig(group_name=check_group(group))


@lru_cache(maxsize=16)
def _parsed(table: str) -> DelayLevels:
    """Parse a table; cached, because every send-back needs it and it rarely changes."""
    return DelayLevels.parse(table)


@dataclass(frozen=True, slots=True)
class Groups:
    """The contents of the GROUPS topic at one moment.

    Attributes:
        system: level table and switches for all groups.
        by_name: the registered groups.
        own_table: an explicit level table of this process, which overrides the common one.
        own_auto_create: the same for `auto_create_subscription_group`.
        allowed_real_topics: the setting of the scheduler that started last; None if none has published it.
        unreadable: keys of unreadable records, and the reasons.
    """

    system: SystemConfig = field(default_factory=SystemConfig)
    by_name: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)
    own_table: DelayLevels | None = None
    own_auto_create: bool | None = None
    allowed_real_topics: tuple[str, ...] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> DelayLevels:
        """The level table in force."""
        return self.own_table or _parsed(self.system.message_delay_level)

    @property
    def normal_partitions(self) -> int:
        """Number of partitions of a delay topic for ordinary records; the partitions behind them are for floods."""
        return (self.system.topic_settings or _DEFAULT_TOPICS).delay_partitions

    def find(self, group: str) -> SubscriptionGroupConfig:
        """Return the group's configuration; unknown groups get the defaults if allowed (RocketMQ: BR-02).

        Raises:
            SubscriptionGroupNotExist: unknown, and `auto_create_subscription_group` is off (RocketMQ: BR-01).
        """
        known = self.by_name.get(group)
        if known is not None:
            return known
        allowed = self.own_auto_create
        if allowed is None:
            allowed = self.system.auto_create_subscription_group
        if not allowed:
            raise SubscriptionGroupNotExist(
                f"SUBSCRIPTION_GROUP_NOT_EXIST: consumer group {group!r} is not registered and "
                f"auto_create_subscription_group is off; register it: reconsume groups set {shlex.quote(group)}"
            )
        return _with_defaults(group)

    def is_paused(self, group: str) -> bool:
        """Return whether due records of the group wait for the end of its pause."""
        known = self.by_name.get(group)
        return known is not None and bool(known.retry_paused)

    def with_record(self, key: bytes | None, value: bytes | None) -> Groups:
        """Return the groups after one more record of the topic; an unreadable record is logged and ignored."""
        name = (key or b"").decode(errors="replace")
        others = {one: why for one, why in self.unreadable.items() if one != name}
        try:
            if name == SYSTEM_KEY:
                system = SystemConfig() if value is None else parse_system_config(value)
                return replace(self, system=system, unreadable=others)
            if name == ALLOWED_TOPICS_KEY:
                allowed = None if value is None else decode_allowed(value)
                return replace(self, allowed_real_topics=allowed, unreadable=others)
            if value is None:
                rest = {group: config for group, config in self.by_name.items() if group != name}
                return replace(self, by_name=rest, unreadable=others)
            changed = dict(self.by_name) | {name: parse_group_config(name, value)}
        except IllegalSetting as error:
            logger.warning("GROUPS record ignored: %s; fix it with: reconsume groups set", error)
            return replace(self, unreadable=others | {name: str(error)})
        return replace(self, by_name=changed, unreadable=others)
