"""The allowed topics of delayed messages: regular expressions, and their record in the GROUPS topic."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from reconsume.delay_levels.errors import IllegalSetting, TopicNotAllowed
from reconsume.delay_levels.foreign_values import regular_expression


def is_allowed(topic: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns matches the whole name."""
    return any(re.fullmatch(pattern, topic) for pattern in patterns)


def require_allowed(topic: str, published: Sequence[str] | None) -> None:
    """Refuse a delayed message that the schedulers would quarantine.

    Args:
        topic: the target of the message.
        published: the schedulers' patterns; None if unknown, which allows every topic.

    Raises:
        TopicNotAllowed: no pattern matches.
    """
    if published is None or is_allowed(topic, published):
        return
    now, wanted = ", ".join(map(repr, published)) or "empty", shlex.quote(" ".join([*published, topic]))
    raise TopicNotAllowed(
        f"topic {topic!r}: the schedulers' setting allowed_real_topics does not allow delayed messages for it, it is "
        f"{now}; add the topic and restart the schedulers, for example with RECONSUME_ALLOWED_REAL_TOPICS={wanted}"
    )


def encode_allowed(patterns: Sequence[str]) -> str:
    """Return the value of the record.

    It is a list, because older versions would read an object as the settings of a group.
    """
    return json.dumps(list(patterns), ensure_ascii=False)


def decode_allowed(value: bytes) -> tuple[str, ...]:
    """Read the value of the record.

    Raises:
        IllegalSetting: not a list of regular expressions.
    """
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise IllegalSetting(f"allowed_real_topics: the value is not JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise IllegalSetting(f"allowed_real_topics: the value must be a list of texts, not {value[:80]!r}")
    for pattern in found:
        regular_expression(pattern, "allowed_real_topics:")
    return tuple(found)
