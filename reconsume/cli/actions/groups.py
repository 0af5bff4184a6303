"""`reconsume groups list`, `get`, `set` and `delete`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, Final

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, parse_group_config, parse_system_config
from reconsume.bridge.groups.groups_store import read_groups, remove_group, write_group, write_system
from reconsume.bridge.process.settings import Settings
from reconsume.cli.actions.groups_file import changed_line, going_down
from reconsume.cli.common import confirm
from reconsume.cli.output import print_facts, print_json, print_line, print_table, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.groups_file import Change, changes

__all__ = ["GroupChange", "delete_group", "list_groups", "set_group", "set_system", "show_group"]

_TOPICS_TOO: Final = "`reconsume topics plan` tells whether it needs topics that are missing"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What the command line says of a group; None leaves it as it is."""

    retry_max_times: int | None
    retry_queue_nums: int | None
    retry_policy: str | None
    consume_enable: bool | None
    consume_broadcast_enable: bool | None

    def refuse_for_all(self) -> None:
        """Raises `IllegalSetting` if anything is said: only one group can have it."""
        if any(one is not None for one in astuple(self)):
            raise IllegalSetting("these options hold for one group: name it, such as reconsume groups set departures")


def list_groups(settings: Settings, *, as_json: bool) -> None:
    """The level table, what becomes of unknown groups, and the registered groups."""
    groups = read_groups(settings)
    if as_json:
        registered = [_values(one) | {"waits": one.waits(groups.table)} for one in groups.by_name.values()]
        print_json({"system": groups.system.model_dump(by_alias=True), "groups": registered})
        return
    print_line(f"level table: {groups.table}\nunknown groups: {_unknown_groups(groups)}")
    rows = [
        (one.group_name, one.retry_max_times, one.retry_queue_nums, one.waits(groups.table))
        for one in groups.by_name.values()
    ]
    print_table("registered groups", ("group", "retryMaxTimes", "retryQueueNums", "waits"), rows)


def _unknown_groups(groups: Groups) -> str:
    return "served with defaults" if groups.system.auto_create_subscription_group else "refused"


def _values(config: SubscriptionGroupConfig) -> dict[str, Any]:
    return config.model_dump(by_alias=True, exclude_none=True)


def show_group(settings: Settings, group: str, *, as_json: bool) -> None:
    """One group."""
    groups = read_groups(settings)
    config = groups.find(group)
    if as_json:
        print_json(_values(config))
    else:
        registered = {"registered": group in groups.by_name}
        print_facts(_values(config) | {"waits": config.waits(groups.table)} | registered)


def set_group(settings: Settings, group: str, change: GroupChange, *, as_json: bool) -> None:
    """Register a group, or change what is given."""
    groups = read_groups(settings)
    known = groups.by_name.get(group)
    before: dict[str, Any] = {} if known is None else _values(known)
    wanted = {
        "retryMaxTimes": change.retry_max_times,
        "retryQueueNums": change.retry_queue_nums,
        "consumeEnable": change.consume_enable,
        "consumeBroadcastEnable": change.consume_broadcast_enable,
        "groupRetryPolicy": _json(change.retry_policy),
    }
    given = {name: new for name, new in wanted.items() if new is not None}
    config = parse_group_config(group, json.dumps(before | given))
    write_group(settings, config)
    changed = changes(before, _values(config))
    if as_json:
        print_json({"group": _values(config), "is_new": known is None, "changes": _listed(changed)})
        return
    if known is None:
        others = ", ".join(sorted(groups.by_name)) or "none"
        print_line(f"group {group!r} is new; registered before: {others}. A typo? reconsume groups delete {group}")
    else:
        print_line(changed_line(f"group {group}", changed) if changed else "nothing changes")
    print_line(f"{config.to_json()}\n{_TOPICS_TOO}")


def set_system(
    settings: Settings, delay_levels: str | None, auto_create: bool | None, *, yes: bool, as_json: bool
) -> None:
    """Show what changes for all groups, ask, change the level table or the switch for unknown groups.

    Raises:
        IllegalSetting: nothing is given, a value cannot be, or the answer was no.
    """
    if delay_levels is None and auto_create is None:
        raise IllegalSetting("name a group, or what to set for all: --delay-levels or --auto-create/--no-auto-create")
    groups = read_groups(settings)
    before = groups.system.model_dump(by_alias=True)
    given = {"messageDelayLevel": delay_levels, "autoCreateSubscriptionGroup": auto_create}
    config = parse_system_config(json.dumps(before | {name: new for name, new in given.items() if new is not None}))
    changed = changes(before, config.model_dump(by_alias=True))
    if changed:
        _ask_for_all(groups, [changed_line("for all groups", changed), *going_down(config)], yes=yes)
        write_system(settings, config)
    if as_json:
        print_json({"system": config.model_dump(by_alias=True), "changes": _listed(changed)})
    else:
        print_line(f"{config.to_json()}\n{_TOPICS_TOO if changed else 'nothing changes'}")


def _ask_for_all(groups: Groups, lines: Sequence[str], *, yes: bool) -> None:
    for line in lines:
        tell(line)
    own = sorted(name for name, one in groups.by_name.items() if one.group_retry_policy is not None)
    if own:
        tell(f"groups with a retry policy of their own keep it: {', '.join(own)}")
    if not confirm("Change this for all groups?", yes=yes):
        raise IllegalSetting("nothing was changed")


def delete_group(settings: Settings, group: str, *, yes: bool, as_json: bool) -> None:
    """Unregister a group; its topics stay.

    Raises:
        IllegalSetting: it is not registered, or the answer was no.
    """
    groups = read_groups(settings)
    known = groups.by_name.get(group)
    if known is None and group not in groups.unreadable:
        names = ", ".join(sorted(groups.by_name)) or "none"
        raise IllegalSetting(f"group {group!r} is not registered; registered are: {names}")
    tell(f"- group {group}: {groups.unreadable[group] if known is None else known.to_json()}")
    tell(f"its topics stay; as an unknown group it is {_unknown_groups(groups)}")
    if not confirm(f"Unregister group {group}?", yes=yes):
        raise IllegalSetting("nothing was deleted")
    remove_group(settings, group)
    if as_json:
        print_json({"deleted": group, "group": None if known is None else _values(known)})
    else:
        print_line(f"group {group} is no longer registered")


def _listed(changed: Sequence[Change]) -> list[dict[str, Any]]:
    return [asdict(one) for one in changed]


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise IllegalSetting(f"--retry-policy is not JSON: {error}") from None
