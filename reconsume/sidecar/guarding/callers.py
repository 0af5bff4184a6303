"""Callers of the API: tokens, and the groups and topics that each token allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from reconsume.sidecar.problems import Problem

_BEARER: Final = b"bearer "


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller who has shown a token.

    Attributes:
        name: the name in the settings.
        groups: names, or prefixes that end with `*`; None allows all.
        topics: the same for topics; reconsume's own topics are never included.
    """

    name: str
    groups: Sequence[str] | None = None
    topics: Sequence[str] | None = None

    def require_group(self, group: str) -> str:
        """Return the entry of `groups` that allows the group, the group itself without entries.

        Raises:
            Problem: 403, the token does not allow the group.
        """
        entry = _opens(self.groups, group)
        if entry is None:
            raise self._refusal("group", group, self.groups)
        return entry

    def require_topic(self, topic: str, own_prefix: str) -> None:
        """Raise `Problem` 403 if the token does not allow the topic.

        Args:
            topic: the Kafka topic.
            own_prefix: the prefix of reconsume's own topics, which hold records of all groups.
        """
        if self.topics is not None and (topic.startswith(own_prefix) or _opens(self.topics, topic) is None):
            raise self._refusal("topic", topic, self.topics)

    def _refusal(self, kind: str, name: str, opened: Sequence[str] | None) -> Problem:
        return Problem(
            "token-not-allowed",
            f"{kind} {name!r}: the token of {self.name} opens the {kind}s {', '.join(opened or ()) or '(none)'}; the "
            f"operator of the sidecar adds others to sidecar.callers.{self.name}.{kind}s",
        )


ANYBODY: Final = Caller("anybody")
"""The caller if no token is required, and of the token that allows everything."""


class Callers:
    """Finds the caller of a token.

    Args:
        by_token: callers by token; empty admits everyone.
    """

    def __init__(self, by_token: Mapping[str, Caller]) -> None:
        # Hashes: the time of a lookup reveals nothing about the token.
        self._by_hash = {sha256(token.encode()).digest(): caller for token, caller in by_token.items()}

    def of(self, authorization: bytes) -> Caller | None:
        """Return the caller of this header; None if it is unknown."""
        if not self._by_hash:
            return ANYBODY
        shown = authorization[len(_BEARER) :] if authorization[: len(_BEARER)].lower() == _BEARER else b""
        return self._by_hash.get(sha256(shown.strip()).digest())


def unauthorized() -> Problem:
    """Return the problem for a missing or wrong token."""
    return Problem(
        "unauthorized",
        "the header `authorization: Bearer …` is missing or does not hold a token of sidecar.token_file or "
        "sidecar.callers",
    )


def _opens(patterns: Sequence[str] | None, name: str) -> str | None:
    if patterns is None:
        return name
    return next((one for one in patterns if name == one or (one.endswith("*") and name.startswith(one[:-1]))), None)
