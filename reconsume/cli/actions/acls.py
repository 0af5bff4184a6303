"""`reconsume topics acls`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from reconsume.bridge.process.settings import Settings
from reconsume.cli.output import print_json, print_line, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.rights import ROLES, Role, acl_commands, rights_of, unsayable

__all__ = ["role_of", "show_acls"]


def role_of(name: str) -> Role:
    """The role with that name; IllegalSetting names those that there are."""
    try:
        return Role(name)
    except ValueError:
        known = "; ".join(f"{role.value}: {what}" for role, what in ROLES.items())
        raise IllegalSetting(f"--role {name!r}: there are {known}") from None


def show_acls(
    settings: Settings,
    role_name: str,
    *,
    group: str | None,
    topics: Sequence[str],
    exactly_once: bool,
    principal: str | None,
    as_json: bool,
) -> None:
    """Print the rights of one role."""
    role = role_of(role_name)
    if role in (Role.CONSUMER, Role.SIDECAR) and (group is None or not topics):
        raise IllegalSetting(f"--role {role.value} needs --group and, for each topic that it reads, --topic")
    rights = rights_of(
        role,
        settings.names,
        group=group or "",
        topics=topics,
        exactly_once=exactly_once,
        allowed_real_topics=settings.allowed_real_topics,
    )
    principal = principal or f"User:{role.value}"
    commands = acl_commands(rights, principal, settings.bootstrap_servers)
    if as_json:
        print_json(
            {
                "role": role.value,
                "principal": principal,
                "rights": [
                    asdict(right) | {"operations": list(right.operations), "command": command}
                    for right, command in zip(rights, commands, strict=True)
                ],
            }
        )
    else:
        print_line(f"# {role.value}: {ROLES[role]}")
        for right, command in zip(rights, commands, strict=True):
            print_line(f"# {right.why}\n{command}")
    for pattern in unsayable(settings.allowed_real_topics) if role is Role.SCHEDULER else ():
        tell(f"allowed_real_topics {pattern!r} cannot be said in ACLs: grant Write on those topics too")
