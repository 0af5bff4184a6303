"""Changes of groups, of one or from a file. Groups that the file does not name stay unless requested otherwise.

Guarantees: of two processes that change groups at the same time, the second reads what the first has written. All use
one transactional id, and a registration fences the process before, which then decides again.
Test: tests/integration/groups/test_groups_commands.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reconsume.bridge.groups.groups import (
    Groups,
    SubscriptionGroupConfig,
    SystemConfig,
    check_names,
    parse_group_config,
    parse_system_config,
)
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.single_records import write_records
from reconsume.bridge.process.settings import TopicSettings
from reconsume.bridge.topics.topics import make_parked_topics
from reconsume.bridge.writing.exclusive_writer import write_exclusively
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.names import SYSTEM_KEY

_TOP: Final = ("system", "defaults", "groups")
Values = Mapping[str, str | None]
"""New values by the keys of GROUPS; None removes a key."""


@dataclass(frozen=True, slots=True)
class GroupsFile:
    """The contents of a file: the target groups, and the settings for all groups."""

    groups: Mapping[str, SubscriptionGroupConfig]
    system: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One field of a group, or of `%SYS%`; None before its first value."""

    name: str
    is_now: Any
    will_be: Any


@dataclass(frozen=True, slots=True)
class GroupsPlan:
    """The records that `groups apply` would write.

    Attributes:
        added: groups to register.
        changed: by group, the changes.
        unlisted: registered groups that the file does not name; they stay unless their removal is requested.
        system: the changes for all groups.
        wanted: the groups and the table afterwards.
    """

    added: list[SubscriptionGroupConfig] = field(default_factory=list)
    changed: dict[str, list[Change]] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    system: list[Change] = field(default_factory=list)
    wanted: Groups = field(default_factory=Groups)

    def is_empty(self, *, delete: bool) -> bool:
        """Return whether there is nothing to write."""
        return not (self.added or self.changed or self.system or (delete and self.unlisted))


def parse_groups_file(value: Any) -> GroupsFile:
    """Read a YAML file: `system`, `defaults` for all groups of the file, and `groups` by name.

    Raises:
        IllegalSetting: an unknown key, or an invalid value; the message names it.
    """
    top = _mapping("the file", value, _TOP)
    switches = tuple(name for name in SystemConfig.names() if name != "topicSettings")  # these are [topics] settings
    system = _mapping("system", top.get("system"), switches)
    parse_system_config(system)
    known = tuple(name for name in SubscriptionGroupConfig.names() if name != "groupName")
    defaults = _mapping("defaults", top.get("defaults"), known)
    groups = {}
    for group, own in _mapping("groups", top.get("groups"), None).items():
        groups[group] = parse_group_config(group, defaults | _mapping(f"group {group!r}", own, known))
    return GroupsFile(groups, system)


def _mapping(what: str, value: Any, known: tuple[str, ...] | None) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise IllegalSetting(f"{what} must hold names and values, not {value!r}")
    if known is not None:
        check_names(what, value, known)
    return value


def plan_groups(
    file: GroupsFile, current: Groups, topics: TopicSettings | None = None, *, delete: bool = False
) -> GroupsPlan:
    """Compare the file with the cluster; unknown fields of newer versions are kept.

    A pause is kept too, unless the file mentions it: pauses are set by hand and temporary.

    Args:
        file: the target state.
        current: the current state.
        topics: the settings of this process; explicit ones are published.
        delete: whether to remove groups that the file does not name.
    """
    plan = GroupsPlan()
    wanted = dict(current.by_name)
    for name, config in file.groups.items():
        known = current.by_name.get(name)
        if known is None:
            plan.added.append(config)
            wanted[name] = config
            continue
        kept = {"retryPaused": known.retry_paused} | (known.model_extra or {})
        merged = parse_group_config(name, kept | config.fields())
        if changed := changes(known.fields() if name not in current.unreadable else {}, merged.fields()):
            plan.changed[name] = changed
            wanted[name] = merged
    plan.unlisted.extend(sorted(current.by_name.keys() - file.groups.keys()))
    for name in plan.unlisted if delete else ():
        del wanted[name]
    merged_system = current.system.model_dump(by_alias=True) | dict(file.system)
    system = parse_system_config(merged_system).publishing(topics or TopicSettings())
    plan.system.extend(system_changes(current, system))
    return GroupsPlan(plan.added, plan.changed, plan.unlisted, plan.system, Groups(system, wanted))


def change_groups(cluster: Cluster, decide: Callable[[Groups], Values]) -> None:
    """Write to GROUPS what depends on its contents.

    Where schedulers have no transactions, this has none: of two changes at the same time the later one counts.

    Args:
        cluster: the installation.
        decide: returns what to write; called again if another process changed the groups meanwhile.

    Raises:
        TopicNotReady: the topic is missing.
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    if cluster.settings.scheduler.delivery == "at_least_once":
        write_records(cluster, cluster.names.groups, decide(read_groups(cluster)).items())
        return
    topic = cluster.require(cluster.names.groups)

    def records() -> Iterator[NewRecord]:
        for key, value in decide(read_groups(cluster, to_the_last=True)).items():
            yield NewRecord(topic, None if value is None else value.encode(), key.encode(), 0)

    write_exclusively(cluster, f"{cluster.names.prefix}groups", "changing groups", records)


def change_system(cluster: Cluster, change: Callable[[SystemConfig], SystemConfig]) -> SystemConfig:
    """Change the settings for all groups and return them; errors as those of `change_groups`."""
    done: list[SystemConfig] = []

    def decide(groups: Groups) -> Values:
        done.append(change(groups.system))
        return {SYSTEM_KEY: done[-1].to_json()}

    change_groups(cluster, decide)
    return done[-1]


def remove_group(cluster: Cluster, group: str, shown: Groups) -> None:
    """Unregister a group; its topics stay.

    Raises:
        IllegalSetting: the group is not as it was shown.
    """

    def decide(groups: Groups) -> Values:
        if groups.by_name.get(group) != shown.by_name.get(group):
            raise IllegalSetting(f"group {group!r} was changed meanwhile; nothing was deleted, run the command again")
        return {group: None}

    change_groups(cluster, decide)


def apply_groups_plan(cluster: Cluster, file: GroupsFile, shown: GroupsPlan, *, delete: bool) -> None:
    """Write the plan of a file.

    Raises:
        IllegalSetting: the file would change something else now.
    """

    def decide(groups: Groups) -> Values:
        plan = plan_groups(file, groups, cluster.settings.topics, delete=delete)
        removed = plan.unlisted if delete else []
        if (plan.added, plan.changed, plan.system) != (shown.added, shown.changed, shown.system) or (
            delete and removed != shown.unlisted
        ):
            raise IllegalSetting("groups were changed meanwhile; no group was changed by this, run the command again")
        wanted = plan.wanted.by_name
        values = {name: wanted[name].to_json() for name in (*(one.group_name for one in plan.added), *plan.changed)}
        system = {SYSTEM_KEY: plan.wanted.system.to_json()} if plan.system else {}
        return system | values | dict.fromkeys(removed)

    change_groups(cluster, decide)


def change_group(
    cluster: Cluster, group: str, given: Mapping[str, Any]
) -> tuple[Groups, SubscriptionGroupConfig, list[Change]]:
    """Register or change a group; its parked topic is created before a pause.

    Args:
        cluster: the installation.
        group: the group, registered or not.
        given: new values by their names in GROUPS, such as `retryPaused`; other fields stay.

    Returns:
        The groups before, the group now, and the changes.

    Raises:
        IllegalName: the group's name cannot be part of a topic name, so `topics apply` would fail for all groups.
        IllegalSetting: a value is illegal.
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    cluster.names.retry(group)
    done: list[tuple[Groups, SubscriptionGroupConfig, list[Change]]] = []

    def decide(groups: Groups) -> Values:
        known = groups.by_name.get(group)
        before = {} if known is None else known.fields()
        config = parse_group_config(group, {**before, **given})
        make_parked_topics(cluster, replace(groups, by_name={group: config}))
        done.append((groups, config, changes(before, config.fields())))
        return {group: config.to_json()}

    change_groups(cluster, decide)
    return done[-1]


def system_changes(groups: Groups, after: SystemConfig) -> list[Change]:
    """Return the fields for all groups that differ; all of them if the newest record is unreadable."""
    before = {} if SYSTEM_KEY in groups.unreadable else groups.system.model_dump(by_alias=True)
    return changes(before, after.model_dump(by_alias=True))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the fields that differ."""
    names = [*before, *(name for name in after if name not in before)]
    return [Change(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]
