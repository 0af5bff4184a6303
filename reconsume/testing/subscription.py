"""What a consumer in memory subscribes to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from reconsume.testing.cluster import Member

__all__ = ["Subscription"]

_Callback = Callable[[Consumer, list[TopicPartition]], object]


@dataclass(slots=True)
class Subscription:
    """A membership with its callbacks."""

    member: Member
    on_assign: _Callback | None = None
    on_revoke: _Callback | None = None

    def want(self, topics: list[str], on_assign: _Callback | None, on_revoke: _Callback | None) -> None:
        """These topics, by name or as a regular expression that begins with `^`, instead of those before."""
        patterns = [re.compile(one) for one in topics if one.startswith("^")]
        names = frozenset(topics)
        self.on_assign, self.on_revoke = on_assign, on_revoke
        self.member.wants = lambda topic: topic in names or any(pattern.match(topic) for pattern in patterns)
