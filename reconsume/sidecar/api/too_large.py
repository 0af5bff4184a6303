"""The answer for a record that its topic does not accept: how large it is, the limit, the way out."""

from __future__ import annotations

from collections.abc import Sequence

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.delay_levels.wire.properties import Header
from reconsume.sidecar.problems import Problem


def size_of(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Bytes of a record as its sender knows it, without what reconsume and Kafka add."""
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)


def too_large(what: str, size: int, topic: str, admin: KafkaAdmin, way_out: str) -> Problem:
    """The problem, with the limit if this client may read it; blocks.

    Args:
        what: the record.
        size: of it in bytes.
        topic: that did not take it.
        admin: asks for the limit.
        way_out: what else the caller or an operator can do.
    """
    known = admin.max_message_bytes(topic)  # the right to read settings is no other right
    limit = "fewer than that" if known is None else f"{known:,}"
    return Problem(
        "record-too-large",
        f"{what}: key, value and headers have {size:,} bytes, and {topic} takes {limit} (max.message.bytes), with what "
        f"is added to them; {way_out}",
    )
