"""`reconsume groups set`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from reconsume.bridge.groups import parse_group_config, parse_system_config
from reconsume.bridge.groups_store import read_groups, write_group, write_system
from reconsume.bridge.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["GroupChange", "set_group", "set_system"]


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What the command line says of a group; None leaves it as it is."""

    retry_max_times: int | None
    retry_queue_nums: int | None
    retry_policy: str | None
    consume_enable: bool | None
    consume_broadcast_enable: bool | None


def set_group(settings: Settings, group: str, change: GroupChange) -> None:
    """Register a group, or change what is given."""
    known = read_groups(settings).by_name.get(group)
    value: dict[str, Any] = {} if known is None else known.model_dump(by_alias=True, exclude_none=True)
    wanted = {
        "retryMaxTimes": change.retry_max_times,
        "retryQueueNums": change.retry_queue_nums,
        "consumeEnable": change.consume_enable,
        "consumeBroadcastEnable": change.consume_broadcast_enable,
        "groupRetryPolicy": _json(change.retry_policy),
    }
    value |= {name: new for name, new in wanted.items() if new is not None}
    config = parse_group_config(group, json.dumps(value))
    write_group(settings, config)
    sys.stdout.write(config.to_json() + "\n")
    sys.stdout.write("`reconsume topics plan` tells whether it needs topics that are missing\n")


def set_system(settings: Settings, delay_levels: str | None, auto_create: bool | None) -> None:
    """Change the level table or the switch for unknown groups."""
    if delay_levels is None and auto_create is None:
        raise IllegalSetting("name a group, or what to set for all: --delay-levels or --auto-create/--no-auto-create")
    value = read_groups(settings).system.model_dump(by_alias=True)
    if delay_levels is not None:
        value["messageDelayLevel"] = delay_levels
    if auto_create is not None:
        value["autoCreateSubscriptionGroup"] = auto_create
    config = parse_system_config(json.dumps(value))
    write_system(settings, config)
    sys.stdout.write(config.to_json() + "\n")
    sys.stdout.write("`reconsume topics plan` tells whether it needs topics that are missing\n")


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise IllegalSetting(f"--retry-policy is not JSON: {error}") from None
