"""The answer for a record that its topic does not accept: its size, the limit, the way out."""

from __future__ import annotations

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.sidecar.problems import Problem


def too_large(what: str, size: int, topic: str, admin: KafkaAdmin, way_out: str) -> Problem:
    """Return the problem, with the limit if this client may read it; blocking.

    Args:
        what: a name for the record.
        size: its size in bytes.
        topic: the topic that refused it.
        admin: looks the limit up.
        way_out: a remedy for the caller or an operator.
    """
    known = admin.known_settings(topic).get("max.message.bytes")  # the right to read topic settings is separate
    limit = "fewer than that" if known is None else f"{int(known):,}"
    return Problem(
        "record-too-large",
        f"{what}: key, value and headers have {size:,} bytes, and {topic} takes {limit} (max.message.bytes), with what "
        f"is added to them; {way_out}",
    )
