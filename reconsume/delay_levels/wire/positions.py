"""Records of the POSITIONS topic: the position of a scheduler worker in a partition.

The key is `<topic>/<partition>`, the value a JSON object with `offset`, `metadata`, `topicId` and `transactionalId`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.properties import LARGEST, LARGEST_PARTITION, json_object

_NUMBER: Final = re.compile("[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The position where the next worker continues.

    Attributes:
        offset: the next record to deliver.
        metadata: the delivered records above it, in the form of a committed offset's metadata.
        topic_id: Kafka's id of the topic; a recreated topic has another one.
        transactional_id: the worker's id; empty if it works without transactions.
    """

    offset: int
    metadata: str
    topic_id: str
    transactional_id: str


def position_key(topic: str, partition: int) -> str:
    """Return the key of a partition's position."""
    return f"{topic}/{partition}"


def partition_of_key(key: bytes | None) -> tuple[str, int]:
    """Return the topic and the partition of a key.

    Raises:
        MalformedProperty: the key is something else.
    """
    topic, slash, partition = (key or b"").decode(errors="replace").rpartition("/")
    if not (topic and slash and _NUMBER.fullmatch(partition)) or int(partition) > LARGEST_PARTITION:
        raise MalformedProperty(f"key {(key or b'')[:400]!r} is not <topic>/<partition>")
    return topic, int(partition)


def encode_position(position: StoredPosition) -> str:
    """Return the value of a record."""
    value = {
        "offset": position.offset,
        "metadata": position.metadata,
        "topicId": position.topic_id,
        "transactionalId": position.transactional_id,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode_position(value: bytes) -> StoredPosition:
    """Return the position that `encode_position` wrote; fields of later versions are ignored.

    Raises:
        MalformedProperty: the value is something else.
    """
    found = json_object(value)
    offset = found.get("offset")
    texts = [found.get(name, "") for name in ("metadata", "topicId", "transactionalId")]
    if type(offset) is not int or not 0 <= offset <= LARGEST or not all(isinstance(one, str) for one in texts):
        raise MalformedProperty(f"value {value[:80]!r} needs an offset of 0 or more, and texts")
    return StoredPosition(offset, *texts)
