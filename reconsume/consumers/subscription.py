"""Which messages of a topic a group wants: tag expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["TagExpression"]


@dataclass(frozen=True, slots=True)
class TagExpression:
    """`*`, or tags parted by `||`; None means all (RocketMQ: TF-03)."""

    tags: frozenset[str] | None

    @classmethod
    def parse(cls, expression: str | None) -> Self:
        """Read an expression; empty, None and `*` mean all.

        Raises:
            IllegalSetting: nothing is left between the `||`.
        """
        if expression is None or expression.strip() in ("", "*"):
            return cls(None)
        tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
        if not tags:
            raise IllegalSetting(f"tag expression {expression!r} has no tag; write 'TagA || TagB', or '*' for all")
        return cls(tags)

    def wants(self, tag: str | None) -> bool:
        """Exact match; a message without a tag never matches a set of tags (RocketMQ: TF-01, TF-02, TF-03)."""
        return self.tags is None or (tag is not None and tag in self.tags)
