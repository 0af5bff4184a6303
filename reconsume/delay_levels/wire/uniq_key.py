"""Ids of messages: RocketMQ's UNIQ_KEY, which also tells until when a message can be withdrawn."""

from __future__ import annotations

import re
from typing import Final

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["RANDOM_BYTES", "make_uniq_key", "withdrawable_until_ms"]

RANDOM_BYTES: Final = 10
_FORM: Final = re.compile(r"[0-9A-F]{32}", re.ASCII)


def make_uniq_key(due_ms: int, random_bytes: bytes) -> str:
    """32 hexadecimal digits, as RocketMQ's are: 12 of the due moment, 20 of chance."""
    return f"{due_ms:012X}{random_bytes.hex().upper()}"


def withdrawable_until_ms(uniq_key: str) -> int:
    """The due moment in an id that `make_uniq_key` made.

    Raises:
        IllegalSetting: not such an id.
    """
    if not _FORM.fullmatch(uniq_key):
        raise IllegalSetting(f"id {uniq_key[:80]!r} is not one that send() gave; it has 32 digits of 0-9 and A-F")
    return int(uniq_key[:12], 16)
