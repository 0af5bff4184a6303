"""The answer for a record that its topic does not accept: its size, the limit, the way out."""

from __future__ import annotations

from collections.abc import Sequence

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.delay_levels.wire.properties import Header
from reconsume.sidecar.problems import Problem


def size_of(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return the bytes of a record as its sender knows it, without what reconsume and Kafka add."""
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)


def too_large(what: str, size: int, topic: str, admin: KafkaAdmin, way_out: str) -> Problem:
    """Return the problem, with the limit if this client may read it; blocking.

    Args:
        what: a name for the record.
        size: its size in bytes.
        topic: the topic that refused it.
        admin: looks the limit up.
        way_out: a remedy for the caller or an operator.
    """
    known = admin.max_message_bytes(topic)  # the right to read topic settings is separate
    limit = "fewer than that" if known is None else f"{known:,}"
    return Problem(
        "record-too-large",
        f"{what}: key, value and headers have {size:,} bytes, and {topic} takes {limit} (max.message.bytes), with what "
        f"is added to them; {way_out}",
    )
