"""`reconsume topics`: plan and create topics, and print the rights of a role."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.topics.topic_plan import TopicPlan, plan_topics
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.cli.common import Here, Yes, confirm, on_kafka
from reconsume.cli.output import print_json, print_line, print_table, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import counted
from reconsume.operations.groups_file import Change, change_system, changes
from reconsume.operations.rights import Role, acl_commands, rights_of, role_named, unsayable

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class InstallationPlan:
    """The topics to create, and the topic settings to publish.

    Attributes:
        maker: creates the topics.
        topics: missing and differing topics.
        publishes: the changes of the `%SYS%` record.
    """

    maker: TopicMaker
    topics: TopicPlan
    publishes: list[Change]

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not (self.topics.missing or self.topics.growing or self.publishes)

    @property
    def doing(self) -> str:
        """Return the actions of `apply_plan`, for a question."""
        topics = self.topics
        steps = [
            f"make {counted(len(topics.missing), 'topic')}" if topics.missing else "",
            f"add partitions to {counted(len(topics.growing), 'topic')}" if topics.growing else "",
            "publish the topic settings" if self.publishes else "",
        ]
        text = " and ".join(filter(None, steps))
        return text[:1].upper() + text[1:]


def make_plan(cluster: Cluster) -> InstallationPlan:
    """Compare the target topics and topic settings with those of the cluster."""
    admin, settings, groups = cluster.admin, cluster.settings, read_groups(cluster)
    existing = admin.topics()
    system = groups.system.publishing(settings.topics)
    publishes = changes(_published(groups.system), _published(system))
    groups = Groups(system, groups.by_name, own_table=settings.own_table)
    maker = TopicMaker(admin, settings.names, settings.topics, lambda: groups)
    wanted = wanted_topics(maker, groups)
    found = admin.settings(one.name for one in wanted if one.name in existing)
    replicas = {name: min(map(len, partitions)) for name, partitions in admin.replicas().items() if partitions}
    topics = plan_topics(wanted, existing, found, replicas)
    return InstallationPlan(maker, topics, publishes)


def _published(system: SystemConfig) -> dict[str, Any]:
    settings = {} if system.topic_settings is None else system.topic_settings.model_dump()
    return {f"topics.{name}": value for name, value in settings.items()}


@on_kafka(app, "plan")
def show_plan(here: Here) -> None:
    """Show missing topics, wrong settings, and the settings that `apply` publishes."""
    _show(here, make_plan(here.cluster))


@on_kafka(app, "apply")
def make_topics(here: Here, yes: Yes = False) -> None:
    """Create missing topics, add missing partitions to delay topics, and publish the settings of topics.

    Settings of existing topics stay; the command that changes them is shown.
    """
    plan = make_plan(here.cluster)
    if plan.is_empty or not here.as_json:
        _show(here, plan)
    if not plan.is_empty:
        confirm(f"{plan.doing}?", yes=yes)
        apply_plan(here.cluster, plan, as_json=here.as_json)


def _show(here: Here, planned: InstallationPlan) -> None:
    """Print missing and differing topics, and settings to publish."""
    plan, servers = planned.topics, here.cluster.settings.bootstrap_servers
    if here.as_json:
        print_json(
            {
                "missing": [asdict(one) for one in plan.missing],
                "growing": [asdict(one) | {"partitions_now": now} for one, now in plan.growing],
                "present": plan.present,
                "differences": [asdict(one) | {"remedy": one.remedy(servers)} for one in plan.differences],
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
    if plan.growing:
        sizes = [(one.name, now, one.partitions) for one, now in plan.growing]
        print_table("topics to get more partitions", ("topic", "has", "will have"), sizes)
    for one in plan.differences:
        weight = "BREAKS A GUARANTEE" if one.breaks else "differs"
        print_line(f"{weight}: {one.topic}: {one.setting} is {one.is_now}, should be {one.should_be}")
        print_line(f"  {one.remedy(servers)}")
    for change in planned.publishes:
        is_now = "not published" if change.is_now is None else change.is_now
        print_line(f"to publish for all processes: {change.name} {change.will_be} (now: {is_now})")
    if not plan.missing:
        print_line(f"{len(plan.present)} topics exist, none is missing")


def apply_plan(cluster: Cluster, planned: InstallationPlan, *, as_json: bool) -> None:
    """Create missing topics, add partitions, then publish the topic settings."""
    made = [topic.name for topic in planned.topics.missing if planned.maker.make(topic)]
    for topic, _ in planned.topics.growing:
        planned.maker.grow(topic)
    grown = [topic.name for topic, _ in planned.topics.growing]
    if planned.publishes:
        change_system(cluster, lambda system: system.publishing(cluster.settings.topics))
    if as_json:
        print_json({"made": made, "grown": grown, "published": [asdict(one) for one in planned.publishes]})
    else:
        if planned.topics.missing:
            print_line(f"created {counted(len(made), 'topic')}")
        if grown:
            print_line(f"added partitions to {counted(len(grown), 'topic')}")
        if planned.publishes:
            print_line(f"published {', '.join(one.name for one in planned.publishes)}")


@on_kafka(app, "acls")
def show_acls(
    here: Here,
    role: Annotated[str, typer.Option(help=f"one of {', '.join(role.value for role in Role)}")] = "scheduler",
    group: Annotated[str | None, typer.Option(help="the consumer group of a consumer or sidecar")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="an origin topic; may be given several times")] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="for clients that send back in transactions (exactly_once)")
    ] = False,
    max_waiting: Annotated[
        bool, typer.Option("--max-waiting", help="for a group with a limit on what waits: count parked records too")
    ] = False,
    principal: Annotated[str | None, typer.Option(help="principal; default: User:<role>")] = None,
) -> None:
    """Print exactly the rights that a role needs, as kafka-acls.sh commands. Contacts no broker."""
    settings, wanted = here.settings, role_named(role)
    if wanted in (Role.CONSUMER, Role.SIDECAR) and not (group and topic):
        raise IllegalSetting(f"--role {role} needs --group and, for each topic that it reads, --topic")
    rights = rights_of(
        wanted,
        settings.names,
        group=group or "",
        topics=topic or (),
        exactly_once=exactly_once,
        max_waiting=max_waiting,
        allowed_real_topics=settings.allowed_real_topics,
    )
    principal = principal or f"User:{role}"
    commands = acl_commands(rights, principal, settings.bootstrap_servers)
    if here.as_json:
        listed = [
            asdict(right) | {"operations": list(right.operations), "command": command}
            for right, command in zip(rights, commands, strict=True)
        ]
        print_json({"role": role, "principal": principal, "rights": listed})
    else:
        print_line(f"# {role}: {wanted.who}")
        for right, command in zip(rights, commands, strict=True):
            print_line(f"# {right.why}\n{command}")
    for pattern in unsayable(settings.allowed_real_topics) if wanted is Role.SCHEDULER else ():
        tell(f"ACLs cannot express allowed_real_topics {pattern!r}: grant Write on those topics too")
