"""Withdrawn delayed messages: their ids, the set in memory, and the records of the WITHDRAWN topic.

An id is a hash of fixed size, so a long `UNIQ_KEY`, which its sender chooses, costs no memory.
"""

from __future__ import annotations

import json
import re
import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.wire.properties import (
    LARGEST,
    LARGEST_PARTITION,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    Headers,
    count_property,
    json_object,
    text_property,
)
from reconsume.delay_levels.wire.timer import CANCELS_KEPT_MS, LONGEST_DELAY_MS, is_too_far_ahead

ID_BYTES: Final = 16
"""A collision drops another message: for 10^15 messages and 10 million ids the odds are 1 in 10^16."""
MET_KEPT_MS: Final = 3_600_000
"""How long an id is kept after its message was dropped: a producer without idempotence may have stored a copy of that
message, which arrives a moment later."""
MOST_WITHDRAWALS: Final = 10_000_000
"""They take about 200 MB."""

RANDOM_BYTES: Final = 10
"""Hash size of a `UNIQ_KEY` in bytes."""

_FORM: Final = re.compile(r"[0-9A-F]{32}", re.ASCII)
_DIGITS: Final = 19
_PREFIX_BYTES: Final = 2
_SEGMENTS: Final = 1 << 8 * _PREFIX_BYTES
_ENTRY: Final = struct.Struct(f">{ID_BYTES - _PREFIX_BYTES}sI")
_SIZE: Final = _ENTRY.size
_MET: Final = 1 << 31
"""Marks an entry whose message was dropped; the rest of the number is the minute in which the entry expires."""
_MINUTE_MS: Final = 60_000
_FORGET_AT_ONCE: Final = 64
_NEARLY_FULL: Final = 0.9
_KEPT_NEARLY_FULL_MS: Final = 3_600_000


def make_uniq_key(due_ms: int, random_bytes: bytes) -> str:
    """Return 32 hexadecimal digits, as in RocketMQ's ids: 12 of the due moment, 20 random ones."""
    return f"{due_ms:012X}{random_bytes.hex().upper()}"


def withdrawable_until_ms(uniq_key: str) -> int:
    """Return the due moment in an id that `make_uniq_key` made.

    Raises:
        IllegalSetting: not such an id.
    """
    if not _FORM.fullmatch(uniq_key):
        raise IllegalSetting(f"id {uniq_key[:80]!r} is not one that send() returned; use its 32 digits of 0-9 and A-F")
    return int(uniq_key[:12], 16)


def check_remembered(what: str, due_ms: int, now_ms: float) -> None:
    """Refuse a withdrawal that workers forget before its message is due, which takes a level of over 40 days.

    Raises:
        IllegalSetting: the message is due too late.
    """
    if is_too_far_ahead(due_ms, now_ms):
        days, longest = (one / 86_400_000 for one in (due_ms - now_ms, LONGEST_DELAY_MS))
        raise IllegalSetting(
            f"{what} is due in {days:.0f} days; a withdrawal is remembered for {longest:.0f} only, so withdraw it later"
        )


def withdrawal_id(uniq_key: str) -> bytes:
    """Return the id of a message's withdrawal."""
    return blake2b(uniq_key.encode(), digest_size=ID_BYTES).digest()


def requested_withdrawal(headers: Headers, stored_ms: int) -> tuple[bytes, int]:
    """Return the id and the due moment of a record of the CANCEL topic.

    Without its due moment, or with an invalid one, a withdrawal is due when the longest delay ends.

    Raises:
        MalformedProperty: the record names no message, or its moment is not a number.
    """
    uniq_key = text_property(headers, TIMER_DEL_UNIQKEY)
    if not uniq_key:
        raise MalformedProperty(f"header {TIMER_DEL_UNIQKEY} is missing; give it the UNIQ_KEY of the message")
    longest, deliver_ms = stored_ms + LONGEST_DELAY_MS, count_property(headers, TIMER_DELIVER_MS)
    return withdrawal_id(uniq_key), longest if deliver_ms is None else min(deliver_ms, longest)


def known_withdrawal(withdrawal: bytes, due_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of a record of the WITHDRAWN topic; its tombstone has the same key."""
    return withdrawal, b"%d" % due_ms


class PositionInCancel(NamedTuple):
    """A record of the WITHDRAWN topic: all requests before this offset of CANCEL are written there.

    Attributes:
        partition: the partition of CANCEL.
        topic_id: Kafka's id of CANCEL; a recreated topic starts anew.
        offset: the offset of the first request that may be missing.
    """

    partition: int
    topic_id: str
    offset: int

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return b"read-%d" % self.partition, json.dumps({"topicId": self.topic_id, "offset": self.offset}).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> PositionInCancel | None:
        """Return the position, None if the record is something else."""
        try:
            found = json_object(value)
            partition, topic_id, offset = int(key.removeprefix(b"read-")), found.get("topicId"), found.get("offset")
        except (MalformedProperty, ValueError):
            return None
        if not isinstance(topic_id, str) or type(offset) is not int:
            return None
        is_place = 0 <= partition <= LARGEST_PARTITION and 0 <= offset <= LARGEST
        return cls(partition, topic_id, offset) if is_place else None


def due_in(value: bytes) -> int | None:
    """Return the due time in the value of a record made by `known_withdrawal`; None for other values."""
    return int(value) if len(value) <= _DIGITS and value.isdigit() else None


class Withdrawals:
    """Ids of withdrawn messages with their due moments: 18 bytes each, and some 10 % for the lists.

    A dictionary of texts and moments took 260 to 290 bytes each.

    An id expires 7 days after its message was due, or `MET_KEPT_MS` after its message was dropped. When memory is
    nearly full, the 7 days become an hour; when it is full, further ids are refused.

    Guarantees: no id is forgotten before the transaction that drops its message is committed; otherwise the message
    would be delivered. So the tombstone is written after the commit, outside of it. A lost tombstone only costs memory.
    Tests: tests/unit/bridge/scheduler/test_worker.py, tests/integration/operations/test_withdrawals.py.

    One thread changes it; others may look ids up.

    Args:
        most: the maximum of ids.
    """

    def __init__(self, most: int = MOST_WITHDRAWALS) -> None:
        self._most = most
        # By the first bytes of the ids: the rest of each id, then minutes since the epoch.
        self._segments: list[bytearray | None] = [None] * _SEGMENTS
        self._next = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, withdrawal: bytes) -> bool:
        segment = self._segments[_segment_of(withdrawal)]
        return segment is not None and _find(segment, withdrawal) >= 0

    def add(self, withdrawal: bytes, due_ms: float, now: float) -> bool:
        """Add a withdrawal unless it has expired; False if memory is full."""
        if due_ms + self._kept_ms() <= now:
            return True
        segment, place = self._place(withdrawal)
        entry = _ENTRY.pack(withdrawal[_PREFIX_BYTES:], _minute(due_ms))
        if place >= 0:
            segment[place : place + _SIZE] = entry
        elif self._length < self._most:
            segment += entry
            self._length += 1
        else:
            return False
        return True

    def met(self, withdrawal: bytes, now: float) -> None:
        """Note that the message was dropped."""
        segment, place = self._place(withdrawal)
        if place >= 0:
            until = _MET | _minute(now + MET_KEPT_MS)
            segment[place : place + _SIZE] = _ENTRY.pack(withdrawal[_PREFIX_BYTES:], until)

    def discard(self, withdrawal: bytes) -> None:
        """Forget one id."""
        segment, place = self._place(withdrawal)
        if place >= 0:
            del segment[place : place + _SIZE]
            self._length -= 1

    def forget(self, now: float) -> list[bytes]:
        """Forget expired ids; return those whose messages were dropped.

        Each call checks a thousandth of all ids, so that it takes little time.
        """
        over, met_over = int((now - self._kept_ms()) // _MINUTE_MS), _MET | int(now // _MINUTE_MS)
        met: list[bytes] = []
        for number in range(self._next, self._next + _FORGET_AT_ONCE):
            segment = self._segments[number]
            if not segment:
                continue
            entries = list(_ENTRY.iter_unpack(segment))
            gone = {one for one in entries if one[1] <= (met_over if one[1] & _MET else over)}
            if gone:
                kept = b"".join(_ENTRY.pack(*one) for one in entries if one not in gone)
                self._segments[number] = bytearray(kept) if kept else None
                self._length -= len(gone)
                met.extend(number.to_bytes(_PREFIX_BYTES) + rest for rest, minute in gone if minute & _MET)
        self._next = (self._next + _FORGET_AT_ONCE) % _SEGMENTS
        return met

    def _kept_ms(self) -> int:
        return _KEPT_NEARLY_FULL_MS if self._length >= self._most * _NEARLY_FULL else CANCELS_KEPT_MS

    def _place(self, withdrawal: bytes) -> tuple[bytearray, int]:
        """Return the segment of an id and its place there, -1 if it is missing."""
        number = _segment_of(withdrawal)
        segment = self._segments[number]
        if segment is None:
            segment = self._segments[number] = bytearray()
        return segment, _find(segment, withdrawal)


def _segment_of(withdrawal: bytes) -> int:
    return withdrawal[0] << 8 | withdrawal[1]


def _find(segment: bytearray, withdrawal: bytes) -> int:
    rest = withdrawal[_PREFIX_BYTES:]
    place = segment.find(rest)
    while place > 0 and place % _SIZE:  # bytes of two entries
        place = segment.find(rest, place + 1)
    return place


def _minute(moment_ms: float) -> int:
    """Round up, never beyond what an entry holds."""
    return min(max(0, -int(-moment_ms // _MINUTE_MS)), _MET - 1)
