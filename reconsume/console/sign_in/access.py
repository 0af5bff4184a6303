"""Roles of people, and the consumer groups that they hold for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

EVERYTHING: Final = "*"
ANYBODY: Final = "*"
NOBODY: Final = "-"
"""The name of people on this machine, where no sign-in is set."""
SHARED_TOKEN: Final = "token"  # noqa: S105 - a name
"""The name of all who show the one token of `console.token_file`."""
_LONGEST_NAME: Final = 64


class ConsoleRole(IntEnum):
    """The rights of a person; each role includes those before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class AccessRule(Protocol):
    """An entry of the setting `console.access`."""

    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def people(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def teams(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def groups(self) -> Sequence[str]: ...  # noqa: D102


class Grant(NamedTuple):
    """A role for some consumer groups; `*` in a pattern stands for any text."""

    role: ConsoleRole
    groups: tuple[str, ...]


class SignedIn(NamedTuple):
    """A signed-in person: a name, and the teams that the proxy or the provider names."""

    name: str
    teams: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConsoleCaller:
    """The caller and their rights.

    Attributes:
        name: for states, jobs and the log; it comes from sign-in, never from a form.
    """

    name: str
    grants: tuple[Grant, ...]

    def role_for(self, group: str) -> ConsoleRole | None:
        """The role for a consumer group; None: they may not see it."""
        roles = [one.role for one in self.grants if any(fnmatchcase(group, pattern) for pattern in one.groups)]
        return max(roles, default=None)

    @property
    def role_everywhere(self) -> ConsoleRole | None:
        """The role for all groups, the installation as a whole."""
        return max((one.role for one in self.grants if EVERYTHING in one.groups), default=None)

    @property
    def highest_role(self) -> ConsoleRole | None:
        """The highest of any group."""
        return max((one.role for one in self.grants), default=None)

    def may(self, role: ConsoleRole, group: str | None) -> bool:
        """Whether they have this role, or a higher one.

        Args:
            role: that is needed.
            group: for which; None: for the installation as a whole.
        """
        found = self.role_everywhere if group is None else self.role_for(group)
        return found is not None and found >= role

    def visible(self, groups: Iterable[str]) -> list[str]:
        """Those of the groups that they may see."""
        return [group for group in groups if self.role_for(group) is not None]


EVERYBODY: Final = ConsoleCaller(NOBODY, (Grant(ConsoleRole.ADMIN, (EVERYTHING,)),))
"""Who asks a console without sign-in."""


def caller_of(identity: SignedIn, rules: Collection[AccessRule], *, otherwise: ConsoleRole | None) -> ConsoleCaller:
    """Give a person the roles of all rules that name them.

    Args:
        identity: who has signed in.
        rules: of the settings.
        otherwise: the role of a person where there are no rules.
    """
    if not rules:
        return ConsoleCaller(identity.name, () if otherwise is None else (Grant(otherwise, (EVERYTHING,)),))
    grants = [
        Grant(ConsoleRole[one.role.upper()], tuple(one.groups))
        for one in rules
        if {ANYBODY, identity.name}.intersection(one.people) or identity.teams.intersection(one.teams)
    ]
    return ConsoleCaller(identity.name, tuple(grants))


def printable(name: str) -> str:
    """A name as it may stand in a log: one line, not long."""
    return "".join(one if one.isprintable() else "?" for one in name[:_LONGEST_NAME])
