"""The place of a record in a known topic, as people write it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from reconsume.delay_levels.errors import IllegalSetting

_FORM: Final = re.compile(r"([0-9]{1,10})/([0-9]{1,19})", re.ASCII)
_PARTITIONS: Final = 2**31
_OFFSETS: Final = 2**63
"""Kafka's own limits."""


class RecordAddress(NamedTuple):
    """Written `<partition>/<offset>`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str, shown_by: str) -> RecordAddress:
        """Parse `<partition>/<offset>`.

        Args:
            text: the input.
            shown_by: the command that lists the places, for the error.

        Raises:
            IllegalSetting: the text has another form.
        """
        match = _FORM.fullmatch(text)
        found = cls(int(match[1]), int(match[2])) if match else None
        if found is None or found.partition >= _PARTITIONS or found.offset >= _OFFSETS:
            raise IllegalSetting(f"{text[:80]!r}: write PARTITION/OFFSET as `{shown_by}` shows it, such as 0/17")
        return found
