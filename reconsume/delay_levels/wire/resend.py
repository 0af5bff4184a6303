"""A dead letter for people, whether it may be resent, and the headers of its copy.

The rules are those of replays (docs/replay.md): `spark_connectors.replay` applies them in Spark to millions, this
module to those that a person picks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeVar

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESENT, RESOLVED
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    DLQ_ERRORS,
    FIRST_FAILURE_TIMESTAMP,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    REPLAY_EDITED,
    REPLAY_ID,
    REPLAY_TIMES,
    RETRY_TOPIC,
    Header,
    Headers,
    count_property,
    integer_property,
    replace_properties,
    text_property,
)
from reconsume.delay_levels.wire.send_back_copy import Position

T = TypeVar("T")

SEND: Final = "send"
REASONS: Final = {
    SEND: "will be sent",
    "superseded": "the same message has a newer dead letter; that one counts",
    "replayed": "it was sent again since it died",
    "resolved": "someone has resolved it; `reconsume dlq reopen` opens it",
    "capped": "it was sent again as often as is allowed, and died each time",
    "damaged": "a header that tells its identity or its count does not hold what it must",
}
"""The reasons to resend a dead letter or not."""
_MOST: Final = 100_000
_LONGEST: Final = 512
_WITHIN_CHARACTER: Final = range(0x80, 0xC0)
"""The bytes of a character of UTF-8 but for its first one."""
_UNCHANGED: Final = LetterEdit()
_IDENTITY: Final = frozenset({ORIGIN_MESSAGE_ID, RETRY_TOPIC, REPLAY_TIMES})
_OF_REPLAYS: Final = frozenset({REPLAY_ID, REPLAY_TIMES})


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    """The headers of a dead letter; None for missing or unreadable ones.

    Attributes:
        group: the group of the dead letter.
        origin_message_id: the id of the first copy; the dead letter's own place if no header has it.
        origin_topic: the topic of the first copy.
        attempt: how often it was sent back, including the last time to the dead letters.
        cause: the error's text, or the rule's reason.
        born_ms: timestamp of the first copy.
        first_failure_ms: when it was sent back for the first time.
        replay_id: the last replay or resend.
        replay_times: how often it was resent.
        malformed: names of reconsume's headers with invalid values.
    """

    group: str
    origin_message_id: str
    origin_topic: str | None
    attempt: int | None
    cause: str | None
    exception_class: str | None
    stacktrace: str | None
    born_ms: int | None
    first_failure_ms: int | None
    replay_id: str | None
    replay_times: int
    malformed: tuple[str, ...] = ()

    @property
    def retries(self) -> int | None:
        """Return the number of retries before it died: `retryMaxTimes` at most; None if unknown."""
        return None if self.attempt is None else max(0, self.attempt - 1)

    @classmethod
    def of(cls, group: str, stands: Position, headers: Headers) -> Self:
        """Split the headers of a dead letter; invalid ones are not an error."""
        malformed: list[str] = []

        def read(name: str, how: Callable[[Headers, str], T | None]) -> T | None:
            with suppress(MalformedProperty):
                return how(headers, name)
            malformed.append(name)
            return None

        return cls(
            group,
            read(ORIGIN_MESSAGE_ID, text_property) or str(stands),
            read(RETRY_TOPIC, text_property),
            read(RECONSUME_TIME, count_property),
            read(DLQ_ERRORS + "message", text_property),
            read(DLQ_ERRORS + "exception.class", text_property),
            read(DLQ_ERRORS + "stacktrace", text_property),
            read(BORN_TIMESTAMP, integer_property),
            read(FIRST_FAILURE_TIMESTAMP, integer_property),
            read(REPLAY_ID, text_property),
            read(REPLAY_TIMES, count_property) or 0,
            tuple(malformed),
        )


def message_id_of(stands: Position, headers: Headers) -> str:
    """Return what `DeadLetterInfo.of` gives as `origin_message_id`, at a tenth of the cost."""
    with suppress(MalformedProperty):
        return text_property(headers, ORIGIN_MESSAGE_ID) or str(stands)
    return str(stands)


def born_ms_of(headers: Headers) -> int | None:
    """Return the `BORN_TIMESTAMP` of a record; None if it is missing or unreadable."""
    with suppress(MalformedProperty):
        return integer_property(headers, BORN_TIMESTAMP)
    return None


def is_same_message(born_ms: int | None, other_ms: int | None) -> bool:
    """Return whether two records with the same `ORIGIN_MESSAGE_ID` are copies of one message, by `BORN_TIMESTAMP`.

    A topic that was deleted and created again has other messages at the same offsets. An unknown time, None, may be
    the same as any.
    """
    return born_ms == other_ms or None in (born_ms, other_ms)


def short_id(text: str) -> str:
    """Return an id to keep and compare, of at most 512 characters; a digest in place of the rest tells ids apart.

    Foreign programs may have written an id, or a topic, as long as a record.
    """
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return text[: _LONGEST - len(digest)] + digest


def short_key(key: bytes) -> bytes:
    """Return a record's key to keep and compare, of at most 512 bytes, as `short_id` does with an id.

    It is cut before a character of UTF-8, not in its middle.
    """
    if len(key) <= _LONGEST:
        return key
    digest = hashlib.sha256(key).hexdigest().encode()
    end = _LONGEST - len(digest)
    end = next((at for at in range(end, end - 4, -1) if key[at] not in _WITHIN_CHARACTER), end)
    return key[:end] + digest


class Replayed(NamedTuple):
    """A record of `DELAY.0s` that resends a dead letter."""

    origin_message_id: str
    born_ms: int | None
    real_topic: str
    times: int


def replayed_of(headers: Headers) -> Replayed | None:
    """Return the replay of a record, else None; later send-backs have its headers too, but a count above 0."""
    try:
        replay = text_property(headers, REPLAY_ID)
        message_id, real_topic = text_property(headers, ORIGIN_MESSAGE_ID), text_property(headers, REAL_TOPIC)
        if replay is None or message_id is None or real_topic is None or count_property(headers, RECONSUME_TIME):
            return None
        return Replayed(message_id, born_ms_of(headers), real_topic, count_property(headers, REPLAY_TIMES) or 0)
    except MalformedProperty:
        return None


@dataclass(slots=True)
class History:
    """Further facts about a message.

    Attributes:
        newest: its newest dead letter: stored (ms), partition, offset.
        times: how often it was resent, by any of its records.
        replayed_ms: when it was last resent.
        born_ms: timestamp of its first copy.
    """

    newest: tuple[int, int, int]
    times: int = 0
    replayed_ms: int | None = None
    born_ms: int | None = None

    def add_dead_letter(self, place: tuple[int, int, int], times: int) -> None:
        """Add another dead letter."""
        self.newest, self.times = max(self.newest, place), max(self.times, times)

    def add_replay(self, stored_ms: int, times: int) -> None:
        """Add another resend."""
        self.replayed_ms, self.times = max(self.replayed_ms or 0, stored_ms), max(self.times, times)


def resend_status(
    letter: DeadLetterInfo, place: tuple[int, int, int], history: History, max_replays: int, state: str = OPEN
) -> str:
    """Return whether a dead letter may be resent, as a key of `REASONS`.

    Args:
        letter: the headers of the dead letter.
        place: its place, as in `History`.
        history: the history of its message.
        max_replays: a message that was resent this often is refused.
        state: a key of `STATES`.
    """
    if _IDENTITY.intersection(letter.malformed):
        return "damaged"
    if history.newest > place:
        return "superseded"
    if state == RESENT or (history.replayed_ms is not None and history.replayed_ms >= place[0]):
        return "replayed"
    if state == RESOLVED:
        return "resolved"
    if max(letter.replay_times, history.times) >= max_replays:
        return "capped"
    return SEND


def resend_headers(
    headers: Headers,
    letter: DeadLetterInfo,
    replay_id: str,
    times: int,
    *,
    to_origin: bool = False,
    edit: LetterEdit = _UNCHANGED,
) -> Sequence[Header]:
    """Return the headers of the copy for `DELAY.0s`: the user's, then reconsume's; the message gets all attempts again.

    Args:
        headers: the headers of the dead letter.
        letter: the parsed headers; the origin topic for `to_origin`.
        replay_id: the id of this resend.
        times: how often the message was resent before.
        to_origin: send to the origin topic instead of the group's retry topic.
        edit: changes to the message.
    """
    properties: dict[str, str | None] = {
        ORIGIN_MESSAGE_ID: letter.origin_message_id,
        BORN_TIMESTAMP: None if letter.born_ms is None else str(letter.born_ms),
        REPLAY_ID: replay_id,
        REPLAY_TIMES: str(times + 1),
    }
    if to_origin:
        properties |= {REAL_TOPIC: letter.origin_topic, REAL_QID: _origin_partition(letter)}
    else:
        properties |= {
            RETRY_TOPIC: letter.origin_topic,
            MAX_RECONSUME_TIMES: _text(headers, MAX_RECONSUME_TIMES),
            REAL_TOPIC: RETRY_PREFIX + letter.group,
            RECONSUME_TIME: "0",
            DELAY: "0",
        }
    users = [header for header in headers if header[0] not in _OF_REPLAYS and header[0] not in edit.headers]
    users += [(name, text.encode()) for name, text in edit.headers.items() if text is not None]
    if edit.parts:
        users = [header for header in users if header[0] != REPLAY_EDITED]
        users.append((REPLAY_EDITED, edit.parts.encode()))
    return replace_properties(users, {name: text for name, text in properties.items() if text is not None})


def _origin_partition(letter: DeadLetterInfo) -> str | None:
    """Return the partition of the first copy, if its id names it."""
    topic, slash, place = letter.origin_message_id.rpartition("/")[0].rpartition("/")
    return place if slash and topic == letter.origin_topic and place.isdecimal() else None


def _text(headers: Headers, name: str) -> str | None:
    """Return a readable count of reconsume; an unreadable one is dropped, as in Spark's replay."""
    try:
        count = count_property(headers, name)
    except MalformedProperty:
        return None
    return None if count is None else str(count)
