"""Records of the DEAD_LETTERS topic: the state of each dead letter. Without a record it is open.

The key is `<topic>/<partition>/<offset>/<stored>`, where `stored` is the append time in milliseconds. Append times in a
recreated topic differ, so its dead letters are open. The value is a JSON object. Readers keep 100,000 of them and more,
whose texts are mostly the same, so equal texts are one object.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.properties import LARGEST, LARGEST_PARTITION, json_object

OPEN: Final = "OPEN"
RESENT: Final = "RESENT"
RESOLVED: Final = "RESOLVED"
SUPERSEDED: Final = "SUPERSEDED"
STATES: Final = {
    OPEN: "waits for a person",
    RESENT: "was sent again",
    RESOLVED: "was closed without being sent again",
    SUPERSEDED: "the same message has a newer dead letter",
}
_KEY: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,10})/([0-9]{1,19})/(-?[0-9]{1,19})", re.ASCII)


class DeadLetterKey(NamedTuple):
    """The identity of a dead letter.

    Attributes:
        topic: the Kafka topic.
        stored_ms: its append time.
    """

    topic: str
    partition: int
    offset: int
    stored_ms: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}/{self.stored_ms}"


@dataclass(frozen=True, slots=True)
class DeadLetterState:
    """The state of a dead letter.

    Attributes:
        state: a key of `STATES`, but not `OPEN`.
        at_ms: the time, by the clock of the program that wrote it.
        by: the name of the person or program.
        why: a reason from a person; may be empty.
        job: the `REPLAY_ID` of a resend, else empty.
        newer: for a superseded one, the place of the newer dead letter: `<partition>/<offset>`; else empty.
    """

    state: str
    at_ms: int
    by: str
    why: str = ""
    job: str = ""
    newer: str = ""


def parse_key(key: bytes | None) -> DeadLetterKey:
    """Return the dead letter that a record is about.

    Raises:
        MalformedProperty: the key is something else.
    """
    match = _KEY.fullmatch((key or b"").decode(errors="replace"))
    found = DeadLetterKey(sys.intern(match[1]), int(match[2]), int(match[3]), int(match[4])) if match else None
    if found is None or found.partition > LARGEST_PARTITION or max(found.offset, abs(found.stored_ms)) > LARGEST:
        raise MalformedProperty(f"key {(key or b'')[:400]!r} is not <topic>/<partition>/<offset>/<stored>")
    return found


def encode_state(state: DeadLetterState) -> str:
    """Return the value of a record."""
    value: dict[str, Any] = {"state": state.state, "at": state.at_ms, "by": state.by}
    value |= {name: text for name in ("why", "job", "newer") if (text := getattr(state, name))}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode_state(value: bytes) -> DeadLetterState:
    """Return the state that `encode_state` wrote; fields of later versions are ignored.

    Raises:
        MalformedProperty: the value is something else.
    """
    found = json_object(value)
    state, at_ms = found.get("state"), found.get("at")
    texts = [found.get(name, "") for name in ("by", "why", "job", "newer")]
    if state not in (RESENT, RESOLVED, SUPERSEDED) or type(at_ms) is not int or not 0 <= at_ms <= LARGEST:
        raise MalformedProperty(f"value {value[:80]!r} needs a state (RESENT, RESOLVED, SUPERSEDED) and a time")
    if not all(isinstance(one, str) for one in texts):
        raise MalformedProperty(f"value {value[:80]!r} has a by, why, job or newer that is not a text")
    return DeadLetterState(sys.intern(state), at_ms, *map(sys.intern, texts))
