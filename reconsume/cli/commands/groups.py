"""`reconsume groups`: subscription groups and the level table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig, parse_system_config
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.cli.commands.groups_file import apply_groups, changed_line, going_down, show_groups_plan
from reconsume.cli.common import Here, Yes, confirm, on_kafka
from reconsume.cli.output import print_facts, print_json, print_line, print_table, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.groups_file import change_group, change_system, remove_group, system_changes

app = typer.Typer()

_TOPICS_TOO: Final = "run `reconsume topics plan` to see whether it needs more topics"


@on_kafka(app, "list")
def list_groups(here: Here) -> None:
    """List the level table and the registered groups."""
    groups = read_groups(here.cluster)
    if here.as_json:
        registered = [_values(one) | {"waits": one.waits(groups.table)} for one in groups.by_name.values()]
        print_json({"system": groups.system.model_dump(by_alias=True), "groups": registered})
        return
    print_line(f"level table: {groups.table}\nunknown groups: {_unknown_groups(groups)}")
    rows = [
        (
            *(one.group_name, one.retry_max_times, one.retry_queue_nums),
            *("yes" if one.retry_paused else "", one.max_waiting or "", one.waits(groups.table)),
        )
        for one in groups.by_name.values()
    ]
    print_table(
        "registered groups", ("group", "retryMaxTimes", "retryQueueNums", "paused", "maxWaiting", "waits"), rows
    )


def _unknown_groups(groups: Groups) -> str:
    return "served with defaults" if groups.system.auto_create_subscription_group else "refused"


def _values(config: SubscriptionGroupConfig) -> dict[str, Any]:
    return config.model_dump(by_alias=True, exclude_none=True)


@on_kafka(app, "get", output="json")
def show_group(here: Here, group: str) -> None:
    """Print a group's SubscriptionGroupConfig, as JSON by default; the defaults if it is not registered."""
    groups = read_groups(here.cluster)
    config = groups.find(group)
    if here.as_json:
        print_json(_values(config))
    else:
        registered = {"registered": group in groups.by_name}
        print_facts(_values(config) | {"waits": config.waits(groups.table)} | registered)


@on_kafka(app, "set")
def set_groups(
    here: Here,
    group: Annotated[
        str | None, typer.Argument(help="the group; without it, change the settings of all groups")
    ] = None,
    retry_max_times: Annotated[int | None, typer.Option(help="retries before a message becomes a dead letter")] = None,
    retry_queue_nums: Annotated[int | None, typer.Option(help="partitions of the retry topic")] = None,
    retry_policy: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="groupRetryPolicy as JSON, in RocketMQ's form; null: the level table"),
    ] = None,
    consume_enable: Annotated[bool | None, typer.Option(help="whether the group may consume")] = None,
    consume_broadcast_enable: Annotated[bool | None, typer.Option(help="whether the group may broadcast")] = None,
    retry_paused: Annotated[
        bool | None, typer.Option(help="whether due retries of the group wait until the pause is lifted")
    ] = None,
    max_waiting: Annotated[
        int | None,
        typer.Option(min=0, help="maximum of waiting messages; new failures beyond it are refused; 0: no limit"),
    ] = None,
    delay_levels: Annotated[str | None, typer.Option(metavar="TABLE", help="level table for all groups")] = None,
    auto_create: Annotated[bool | None, typer.Option(help="whether unknown groups are served with defaults")] = None,
    yes: Yes = False,
) -> None:
    """Register or change a group, or the settings of all groups; running processes follow at once."""
    of_group = _given(
        retryMaxTimes=retry_max_times,
        retryQueueNums=retry_queue_nums,
        consumeEnable=consume_enable,
        consumeBroadcastEnable=consume_broadcast_enable,
        retryPaused=retry_paused,
        maxWaiting=max_waiting,
    ) | ({} if retry_policy is None else {"groupRetryPolicy": _json(retry_policy)})
    of_all = _given(messageDelayLevel=delay_levels, autoCreateSubscriptionGroup=auto_create)
    if group is not None:
        if of_all:
            raise IllegalSetting("--delay-levels and --auto-create apply to all groups: leave the group out")
        _set_group(here, group, of_group)
        return
    if of_group:
        raise IllegalSetting("these options apply to one group: name it, such as reconsume groups set departures")
    if not of_all:
        raise IllegalSetting("name a group, or what to set for all: --delay-levels or --auto-create/--no-auto-create")
    _set_system(here, of_all, yes=yes)


def _given(**values: Any) -> dict[str, Any]:
    """Return the fields of the command line; None keeps a field."""
    return {name: value for name, value in values.items() if value is not None}


def _set_group(here: Here, group: str, given: dict[str, Any]) -> None:
    groups, config, changed = change_group(here.cluster, group, given)
    known = groups.by_name.get(group)
    if here.as_json:
        print_json({"group": _values(config), "is_new": known is None, "changes": [asdict(one) for one in changed]})
        return
    if known is None:
        others = ", ".join(sorted(groups.by_name)) or "none"
        delete = f"reconsume groups delete {shlex.quote(group)}"
        print_line(f"group {group!r} is new; registered before: {others}. A typo? {delete}")
    else:
        print_line(changed_line(f"group {group}", changed) if changed else "nothing changes")
    print_line(f"{config.to_json()}\n{_TOPICS_TOO}")


def _set_system(here: Here, given: dict[str, Any], *, yes: bool) -> None:
    """Show the changes for all groups, ask, and change the level table or the setting for unknown groups."""
    groups = read_groups(here.cluster)

    def change(before: SystemConfig) -> SystemConfig:
        return parse_system_config(before.model_dump(by_alias=True) | given)

    config = change(groups.system)
    changed = system_changes(groups, config)
    if changed:
        _ask_for_all(groups, [changed_line("for all groups", changed), *going_down(config)], yes=yes)
        config = change_system(here.cluster, change)
    if here.as_json:
        print_json({"system": config.model_dump(by_alias=True), "changes": [asdict(one) for one in changed]})
    else:
        print_line(f"{config.to_json()}\n{_TOPICS_TOO if changed else 'nothing changes'}")


def _ask_for_all(groups: Groups, lines: Sequence[str], *, yes: bool) -> None:
    for line in lines:
        tell(line)
    own = sorted(name for name, one in groups.by_name.items() if one.group_retry_policy is not None)
    if own:
        tell(f"groups with a retry policy of their own keep it: {', '.join(own)}")
    confirm("Change this for all groups?", yes=yes)


@on_kafka(app, "delete")
def delete_group(
    here: Here, group: Annotated[str, typer.Argument(help="a registered group")], yes: Yes = False
) -> None:
    """Unregister a group. Its topics and their records stay."""
    groups = read_groups(here.cluster)
    known = groups.by_name.get(group)
    if known is None and group not in groups.unreadable:
        names = ", ".join(sorted(groups.by_name)) or "none"
        raise IllegalSetting(f"group {group!r} is not registered; registered are: {names}")
    tell(f"- group {group}: {groups.unreadable[group] if known is None else known.to_json()}")
    tell(f"its topics stay; as an unknown group it is {_unknown_groups(groups)}")
    confirm(f"Unregister group {group}?", yes=yes)
    remove_group(here.cluster, group, groups)
    if here.as_json:
        print_json({"deleted": group, "group": None if known is None else _values(known)})
    else:
        print_line(f"group {group} is no longer registered")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IllegalSetting(f"--retry-policy is not JSON: {error}") from None


on_kafka(app, "plan")(show_groups_plan)
on_kafka(app, "apply")(apply_groups)
