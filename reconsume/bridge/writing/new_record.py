"""A record to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reconsume.delay_levels.wire.properties import Header


class NewRecord(NamedTuple):
    """A record to write."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: Sequence[Header] = ()
