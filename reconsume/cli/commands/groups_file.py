"""`reconsume groups plan` and `apply`: groups as a file for version control."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.yaml_text import parse_yaml
from reconsume.bridge.topics.topic_plan import TopicPlan, plan_topics
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.cli.common import Here, Yes, confirm
from reconsume.cli.output import print_json, print_line, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.operations.groups_file import (
    Change,
    GroupsFile,
    GroupsPlan,
    apply_groups_plan,
    parse_groups_file,
    plan_groups,
)

_File = Annotated[Path, typer.Option("--file", "-f", help="YAML: system, defaults, groups")]
_Delete = Annotated[bool, typer.Option("--delete", help="unregister groups that the file does not name; topics stay")]


def show_groups_plan(here: Here, file: _File, delete: _Delete = False) -> None:
    """Show the changes of a file of groups, topics included; exit code 1 if there are any."""
    _, _, plan, topics = _plan(here.cluster, file, delete=delete)
    _show(plan, topics, delete=delete, as_json=here.as_json)
    if not _changes_nothing(plan, topics, delete=delete):
        raise typer.Exit(1)


def apply_groups(here: Here, file: _File, delete: _Delete = False, yes: Yes = False) -> None:
    """Apply a file of groups: topics first, then groups. Groups that it does not name stay without --delete."""
    cluster, as_json = here
    wanted, maker, plan, topics = _plan(cluster, file, delete=delete)
    changes_nothing = _changes_nothing(plan, topics, delete=delete)
    if changes_nothing or not as_json:
        _show(plan, topics, delete=delete, as_json=as_json)
    elif not yes:
        for line in _lines(plan, topics, delete=delete):
            tell(line)  # for the person who is asked; standard output has the JSON alone
    if changes_nothing:
        return
    confirm("Apply this?", yes=yes)
    # First, so that no level is used before its topic exists, and no partition that writers count on is missing.
    for topic in topics.missing:
        maker.make(topic)
    for topic, _ in topics.growing:
        maker.grow(topic)
    if not plan.is_empty(delete=delete):
        apply_groups_plan(cluster, wanted, plan, delete=delete)
    if as_json:
        print_json(_as_json(plan, topics, delete=delete))
    else:
        print_line("applied")


def _plan(cluster: Cluster, file: Path, *, delete: bool) -> tuple[GroupsFile, TopicMaker, GroupsPlan, TopicPlan]:
    try:
        value = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise IllegalSetting(f"-f {file}: cannot be read: {error}") from None
    except ValueError as error:
        raise IllegalSetting(f"-f {file}: not YAML: {error}") from None
    try:
        wanted = parse_groups_file(value)
    except IllegalSetting as error:
        raise IllegalSetting(f"-f {file}: {error}") from None
    plan = plan_groups(wanted, read_groups(cluster), cluster.settings.topics, delete=delete)
    maker = TopicMaker(cluster.admin, cluster.names, cluster.settings.topics, lambda: plan.wanted)
    return wanted, maker, plan, plan_topics(wanted_topics(maker, plan.wanted), cluster.admin.topics(), {}, {})


def _changes_nothing(plan: GroupsPlan, topics: TopicPlan, *, delete: bool) -> bool:
    return plan.is_empty(delete=delete) and not (topics.missing or topics.growing)


def _show(plan: GroupsPlan, topics: TopicPlan, *, delete: bool, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(plan, topics, delete=delete))
        return
    for line in _lines(plan, topics, delete=delete):
        print_line(line)


def _lines(plan: GroupsPlan, topics: TopicPlan, *, delete: bool) -> list[str]:
    lines = [f"+ topic {one.name}, {one.partitions} partitions" for one in topics.missing]
    lines += [f"~ topic {one.name}: partitions {now} -> {one.partitions}" for one, now in topics.growing]
    lines += [changed_line("for all", plan.system)] if plan.system else []
    lines += going_down(plan.wanted.system) if plan.system else []
    lines += [f"+ group {one.group_name}: {one.to_json()}" for one in plan.added]
    lines += [changed_line(f"group {name}", changes) for name, changes in plan.changed.items()]
    unlisted = "" if delete else " is not in the file and stays; --delete removes it"
    lines += [f"{'-' if delete else ' '} group {name}{unlisted}" for name in plan.unlisted]
    if _changes_nothing(plan, topics, delete=delete):
        lines.append("nothing changes")
    return lines


def changed_line(what: str, changes: Iterable[Change]) -> str:
    """Return the changes of a group, or for all groups, field by field."""
    return f"~ {what}: " + ", ".join(f"{one.name} {one.is_now!r} -> {one.will_be!r}" for one in changes)


def going_down(system: SystemConfig) -> list[str]:
    """Return a warning if a level of the table is shorter than the one before it."""
    table = DelayLevels.parse(system.message_delay_level)
    level = table.goes_down_at
    if level is None:
        return []
    shorter, longer = (format_duration(table.delay_ms(one)) for one in (level, level - 1))
    return [
        f"warning: level {level} ({shorter}) is shorter than level {level - 1} ({longer}): later retries come sooner"
    ]


def _as_json(plan: GroupsPlan, topics: TopicPlan, *, delete: bool) -> dict[str, Any]:
    return {
        "topics": [one.name for one in topics.missing],
        "growing": [
            {"name": one.name, "partitions_now": now, "partitions": one.partitions} for one, now in topics.growing
        ],
        "system": [asdict(one) for one in plan.system],
        "added": [one.model_dump(by_alias=True, exclude_none=True) for one in plan.added],
        "changed": {name: [asdict(one) for one in changes] for name, changes in plan.changed.items()},
        "removed": plan.unlisted if delete else [],
        "unlisted": [] if delete else plan.unlisted,
    }
