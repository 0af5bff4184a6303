"""Answers to ListOffsets that have neither an offset nor an error.

librdkafka (2.16) gives -1001 without an error for a partition while its broker stalls. Used as the end of a topic, it
means that the topic is empty. Upstream issue: none was found.
Test: tests/unit/bridge/kafka/test_missing_offsets.py.

Remove when: librdkafka reports an error for each partition without an answer.
"""

from __future__ import annotations

from typing import Final

from reconsume.delay_levels.errors import KafkaNotReachable

_NOTHING_LATER: Final = -1
"""The brokers' answer if no record has that timestamp or a later one."""


def require_offset(offset: int, doing: str) -> int:
    """Return the offset.

    Raises:
        KafkaNotReachable: it is missing.
    """
    if offset < _NOTHING_LATER:
        raise KafkaNotReachable(f"{doing}: the answer has no offset; `reconsume doctor` examines the connection")
    return offset
