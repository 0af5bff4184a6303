"""Roles of people, and the consumer groups of each role."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

EVERYTHING: Final = "*"
ANYBODY: Final = "*"
NOBODY: Final = "-"
"""The name of people on this machine if no sign-in is set."""
SHARED_TOKEN: Final = "token"  # noqa: S105 - a name
"""The name of everyone with the shared token of `console.token_file`."""
_LONGEST_NAME: Final = 64


class ConsoleRole(IntEnum):
    """The rights of a person; each role includes the earlier ones."""

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
    """A role for some consumer groups; `*` in a pattern matches any text."""

    role: ConsoleRole
    groups: tuple[str, ...]


class SignedIn(NamedTuple):
    """A person who has signed in: a name, and teams of the proxy or the provider."""

    name: str
    teams: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConsoleCaller:
    """The caller and their rights.

    Attributes:
        name: the name for states, jobs and the log; from sign-in, never from a form.
    """

    name: str
    grants: tuple[Grant, ...]

    def role_for(self, group: str) -> ConsoleRole | None:
        """Return the role for a consumer group; None if the person may not see it."""
        roles = [one.role for one in self.grants if any(fnmatchcase(group, pattern) for pattern in one.groups)]
        return max(roles, default=None)

    @property
    def role_everywhere(self) -> ConsoleRole | None:
        """Return the role for all groups and the installation as a whole."""
        return max((one.role for one in self.grants if EVERYTHING in one.groups), default=None)

    @property
    def highest_role(self) -> ConsoleRole | None:
        """Return the highest role for any group."""
        return max((one.role for one in self.grants), default=None)

    def may(self, role: ConsoleRole, group: str | None) -> bool:
        """Return whether the person has this role, or a higher one.

        Args:
            role: the required role.
            group: the group; None for the installation as a whole.
        """
        found = self.role_everywhere if group is None else self.role_for(group)
        return found is not None and found >= role

    def visible(self, groups: Iterable[str]) -> list[str]:
        """Return the groups that the person may see."""
        return [group for group in groups if self.role_for(group) is not None]


EVERYBODY: Final = ConsoleCaller(NOBODY, (Grant(ConsoleRole.ADMIN, (EVERYTHING,)),))
"""The caller of a console without sign-in."""


def caller_of(identity: SignedIn, rules: Collection[AccessRule], *, otherwise: ConsoleRole | None) -> ConsoleCaller:
    """Give a person the roles of all rules that name them.

    Args:
        identity: the person.
        rules: the rules of the settings.
        otherwise: the role of a person if there are no rules.
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
    """Return a name for the log: one line, not long."""
    return "".join(one if one.isprintable() else "?" for one in name[:_LONGEST_NAME])
