"""A dead letter as a person reads it, whether it may be sent again, and what is sent then.

The rules are those of replays (docs/replay.md): `spark_connectors.replay` says them to Spark for millions, this module
for those that a person picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
"""What may be said of a dead letter that someone wants to send again."""
_MOST: Final = 100_000
_UNCHANGED: Final = LetterEdit()
_IDENTITY: Final = frozenset({ORIGIN_MESSAGE_ID, RETRY_TOPIC, REPLAY_TIMES})
_OF_REPLAYS: Final = frozenset({REPLAY_ID, REPLAY_TIMES})


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    """The headers of a dead letter; None where they are absent or unreadable.

    Attributes:
        group: whose dead letter it is.
        origin_message_id: of the first copy; where the dead letter itself stands if no header tells.
        origin_topic: of the first copy.
        attempt: how often it was sent back, the last time to the dead letters.
        cause: the error's text, or the rule's reason.
        born_ms: timestamp of the first copy.
        first_failure_ms: when it was sent back for the first time.
        replay_id: what last sent it again.
        replay_times: how often it was sent again.
        malformed: names of headers of ours that do not hold what they must.
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
        """How often it came again before it died: `retryMaxTimes` at most; None where nothing tells."""
        return None if self.attempt is None else max(0, self.attempt - 1)

    @classmethod
    def of(cls, group: str, stands: Position, headers: Headers) -> Self:
        """Take them apart; nothing in them is an error here."""
        malformed: list[str] = []

        def read(name: str, how: Callable[[Headers, str], T | None]) -> T | None:
            try:
                return how(headers, name)
            except MalformedProperty:
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


class Replayed(NamedTuple):
    """A record of `DELAY.0s` by which someone has sent a dead letter again."""

    origin_message_id: str
    real_topic: str
    times: int


def replayed_of(headers: Headers) -> Replayed | None:
    """None of any other record; a send-back of a replayed message has its headers too, but its count is above 0."""
    try:
        replay = text_property(headers, REPLAY_ID)
        message_id, real_topic = text_property(headers, ORIGIN_MESSAGE_ID), text_property(headers, REAL_TOPIC)
        if replay is None or message_id is None or real_topic is None or count_property(headers, RECONSUME_TIME):
            return None
        return Replayed(message_id, real_topic, count_property(headers, REPLAY_TIMES) or 0)
    except MalformedProperty:
        return None


@dataclass(frozen=True, slots=True)
class History:
    """Further facts about a message.

    Attributes:
        newest: where its newest dead letter stands: stored (ms), partition, offset.
        times: how often it was sent again, as far as any of its records tell.
        replayed_ms: when it was last sent again.
    """

    newest: tuple[int, int, int]
    times: int = 0
    replayed_ms: int | None = None

    def with_dead_letter(self, place: tuple[int, int, int], times: int) -> History:
        """Another dead letter of it."""
        return History(max(self.newest, place), max(self.times, times), self.replayed_ms)

    def with_replay(self, stored_ms: int, times: int) -> History:
        """It was sent again."""
        return History(self.newest, max(self.times, times), max(self.replayed_ms or 0, stored_ms))


def resend_status(
    letter: DeadLetterInfo, place: tuple[int, int, int], history: History, max_replays: int, state: str = OPEN
) -> str:
    """A key of `REASONS`.

    Args:
        letter: what it tells.
        place: where it stands, as in `History`.
        history: of its message.
        max_replays: a message that was sent again so often is not any more.
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
    """Return the headers of the copy for `DELAY.0s`: the user's, then ours; the message has all its attempts again.

    Args:
        headers: of the dead letter.
        letter: what they tell; its origin topic, to send it there.
        replay_id: of this resend.
        times: how often the message was sent again before.
        to_origin: to the origin topic in place of the group's retry topic.
        edit: what is changed in the message.
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
    """A count of ours that is readable; one that is not is left behind, as Spark's replay does."""
    try:
        count = count_property(headers, name)
    except MalformedProperty:
        return None
    return None if count is None else str(count)
