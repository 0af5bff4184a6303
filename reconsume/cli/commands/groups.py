"""The commands `reconsume groups …`; what they do is imported when they run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from reconsume.cli.common import Here, Yes, on_kafka
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["groups_app"]

groups_app = typer.Typer(help="Subscription groups and the level table.", no_args_is_help=True)

_File = Annotated[Path, typer.Option("--file", "-f", help="YAML: system, defaults, groups")]
_Delete = Annotated[bool, typer.Option("--delete", help="unregister groups that the file does not name; topics stay")]


@groups_app.command("list")
@on_kafka
def groups_list(
    here: Here,
) -> None:
    """List the level table and the registered groups."""
    from reconsume.cli.actions.groups import list_groups

    list_groups(here.settings, as_json=here.as_json)


@groups_app.command("get")
@partial(on_kafka, output="json")
def groups_get(
    here: Here,
    group: str,
) -> None:
    """Print a group's SubscriptionGroupConfig, as JSON by default; the defaults where it is not registered."""
    from reconsume.cli.actions.groups import show_group

    show_group(here.settings, group, as_json=here.as_json)


@groups_app.command("set")
@on_kafka
def groups_set(
    here: Here,
    group: Annotated[str | None, typer.Argument(help="the group; leave it out to set what holds for all")] = None,
    retry_max_times: Annotated[int | None, typer.Option(help="send-backs until the dead letter")] = None,
    retry_queue_nums: Annotated[int | None, typer.Option(help="partitions of the retry topic")] = None,
    retry_policy: Annotated[
        str | None, typer.Option(metavar="JSON", help="groupRetryPolicy, as RocketMQ has it")
    ] = None,
    consume_enable: Annotated[bool | None, typer.Option(help="whether the group may consume")] = None,
    consume_broadcast_enable: Annotated[bool | None, typer.Option(help="whether it may broadcast")] = None,
    delay_levels: Annotated[str | None, typer.Option(metavar="TABLE", help="level table for all groups")] = None,
    auto_create: Annotated[bool | None, typer.Option(help="whether unknown groups are served with defaults")] = None,
    yes: Yes = False,
) -> None:
    """Register or change a group, or after a question what holds for all groups; running processes follow at once."""
    from reconsume.cli.actions.groups import GroupChange, set_group, set_system

    settings, as_json = here
    change = GroupChange(
        retry_max_times=retry_max_times,
        retry_queue_nums=retry_queue_nums,
        retry_policy=retry_policy,
        consume_enable=consume_enable,
        consume_broadcast_enable=consume_broadcast_enable,
    )
    if group is None:
        change.refuse_for_all()
        set_system(settings, delay_levels, auto_create, yes=yes, as_json=as_json)
        return
    if delay_levels is not None or auto_create is not None:
        raise IllegalSetting("--delay-levels and --auto-create hold for all groups: leave the group out")
    set_group(settings, group, change, as_json=as_json)


@groups_app.command("delete")
@on_kafka
def groups_delete(
    here: Here,
    group: Annotated[str, typer.Argument(help="a registered group")],
    yes: Yes = False,
) -> None:
    """Unregister a group. Its topics stay, with what is in them."""
    from reconsume.cli.actions.groups import delete_group

    delete_group(here.settings, group, yes=yes, as_json=here.as_json)


@groups_app.command("plan")
@on_kafka
def groups_plan(
    here: Here,
    file: _File,
    delete: _Delete = False,
) -> None:
    """Show what a file of groups would change, topics too; exit code 1 if it would change anything."""
    from reconsume.cli.actions.groups_file import show_groups_plan

    settings, as_json = here
    if show_groups_plan(settings, file, delete=delete, as_json=as_json):
        raise typer.Exit(1)


@groups_app.command("apply")
@on_kafka
def groups_apply(
    here: Here,
    file: _File,
    delete: _Delete = False,
    yes: Yes = False,
) -> None:
    """Make it so: the topics first, then the groups. A group that the file does not name stays without --delete."""
    from reconsume.cli.actions.groups_file import apply_groups

    settings, as_json = here
    apply_groups(settings, file, delete=delete, yes=yes, as_json=as_json)
