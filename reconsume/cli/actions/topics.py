"""`reconsume topics`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import read_groups, write_system
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.topics.topics import TopicMaker, TopicPlan, plan_topics, wanted_topics
from reconsume.cli.output import counted, print_json, print_line, print_table
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.operations.groups_file import Change, changes

__all__ = ["InstallationPlan", "apply_plan", "make_plan", "show_plan"]


@dataclass(frozen=True, slots=True)
class InstallationPlan:
    """The topics to make, and the topic settings to publish.

    Attributes:
        maker: makes them.
        topics: what is missing and what differs.
        system: the `%SYS%` record as it should be.
        publishes: what changes in it.
    """

    maker: TopicMaker
    topics: TopicPlan
    system: SystemConfig
    publishes: list[Change]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.topics.missing or self.publishes)


def make_plan(settings: Settings) -> InstallationPlan:
    """Compare the topics and topic settings that should be with those of the cluster."""
    admin = KafkaAdmin(settings.client_settings())
    existing = admin.topics()
    groups = read_groups(settings) if settings.names.groups in existing else Groups()
    system = groups.system.publishing(settings.topics)
    publishes = changes(_published(groups.system), _published(system))
    table = None if settings.message_delay_level is None else DelayLevels.parse(settings.message_delay_level)
    groups = Groups(system, groups.by_name, own_table=table)
    maker = TopicMaker(admin, settings.names, settings.topics, lambda: groups)
    wanted = wanted_topics(maker, groups)
    topics = plan_topics(wanted, existing, admin.settings(one.name for one in wanted if one.name in existing))
    return InstallationPlan(maker, topics, system, publishes)


def _published(system: SystemConfig) -> dict[str, Any]:
    settings = {} if system.topic_settings is None else system.topic_settings.model_dump()
    return {f"topics.{name}": value for name, value in settings.items()}


def show_plan(planned: InstallationPlan, *, as_json: bool) -> None:
    """Print what is missing, what differs and what is published."""
    plan = planned.topics
    if as_json:
        print_json(
            {
                "missing": [asdict(one) for one in plan.missing],
                "present": plan.present,
                "differences": [asdict(one) | {"remedy": one.remedy} for one in plan.differences],
                "publishes": [asdict(one) for one in planned.publishes],
            }
        )
        return
    if plan.missing:
        rows = [
            (one.name, one.partitions, "default" if one.replication_factor == -1 else one.replication_factor)
            for one in plan.missing
        ]
        print_table("missing topics", ("topic", "partitions", "replicas"), rows)
    for one in plan.differences:
        weight = "BREAKS A GUARANTEE" if one.breaks else "differs"
        print_line(f"{weight}: {one.topic}: {one.setting} is {one.is_now}, should be {one.should_be}\n  {one.remedy}")
    for change in planned.publishes:
        is_now = "not published" if change.is_now is None else change.is_now
        print_line(f"to publish for all processes: {change.name} {change.will_be} (now: {is_now})")
    if not plan.missing:
        print_line(f"{len(plan.present)} topics are there, none is missing")


def apply_plan(settings: Settings, planned: InstallationPlan, *, as_json: bool) -> None:
    """Make the missing topics, then publish the topic settings."""
    made = [topic.name for topic in planned.topics.missing if planned.maker.make(topic)]
    if planned.publishes:
        write_system(settings, planned.system)
    if as_json:
        print_json({"made": made, "published": [asdict(one) for one in planned.publishes]})
    else:
        print_line(f"made {counted(len(made), 'topic')}")
        if planned.publishes:
            print_line(f"published {', '.join(one.name for one in planned.publishes)}")
