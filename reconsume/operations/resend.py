"""Decides whether a dead letter may be sent again, and makes the records for it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import RESENT, SUPERSEDED, DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.resend import (
    SEND,
    History,
    is_same_message,
    message_id_of,
    replayed_of,
    resend_headers,
    resend_status,
)
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, find_partitions, record_of
from reconsume.operations.record_address import RecordAddress

WITH_STATES: Final = (SEND, "superseded")
"""Statuses that become states."""


class ResendVerdict(NamedTuple):
    """The verdict on a dead letter to resend; the status is a key of `REASONS`."""

    record: DeadLetterRecord
    status: str
    times: int
    """How often its message was resent before."""
    newest: tuple[int, int, int]
    """The newest dead letter of its message: stored (ms), partition, offset."""


def new_replay_id(by: str, now_ms: float) -> str:
    """Return a `REPLAY_ID`: the program, the time, and a few random characters."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f"{by}-{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def find_lane(cluster: Cluster) -> list[Partition]:
    """Return the partitions of `DELAY.0s`, through which dead letters are resent.

    Raises:
        TopicNotReady: the topic is missing.
    """
    lane = cluster.names.delay(0)
    if not (found := all_partitions(cluster.admin.partitions([lane]))):
        raise TopicNotReady(f"topic {lane} does not exist; create it: reconsume topics apply")
    return found


def judge(record: DeadLetterRecord, history: History, state: DeadLetterState | None, max_replays: int) -> ResendVerdict:
    """Return the verdict on a dead letter to resend."""
    status = resend_status(record.letter, record.at, history, max_replays, state_name(state))
    return ResendVerdict(record, status, max(record.letter.replay_times, history.times), history.newest)


def resent_copy(
    cluster: Cluster,
    choose: Callable[[bytes | None], int],
    verdict: ResendVerdict,
    replay_id: str,
    *,
    to_origin: bool = False,
    edit: LetterEdit | None = None,
) -> NewRecord:
    """Return the record of `DELAY.0s` that resends a dead letter.

    Args:
        cluster: the installation.
        choose: chooses the partition for a key.
        verdict: the verdict on the dead letter.
        replay_id: the id of this resend.
        to_origin: send to the origin topic, where every group sees it, instead of the group's retry topic.
        edit: changes to the message.
    """
    record = verdict.record
    headers = resend_headers(
        record.headers, record.letter, replay_id, verdict.times, to_origin=to_origin, edit=edit or LetterEdit()
    )
    value = record.value if edit is None or edit.value is None else edit.value
    return NewRecord(cluster.names.delay(0), value, record.key, choose(record.key), headers)


def resent_state(verdict: ResendVerdict, replay_id: str, by: str, at_ms: int) -> tuple[DeadLetterKey, DeadLetterState]:
    """Return the state of a dead letter that is resent or superseded."""
    if verdict.status == SEND:
        return verdict.record.key_of_state, DeadLetterState(RESENT, at_ms, by, job=replay_id)
    newer = str(RecordAddress(*verdict.newest[1:]))
    return verdict.record.key_of_state, DeadLetterState(SUPERSEDED, at_ms, by, newer=newer)


class Histories:
    """The histories of some dead letters' messages, since the first of these died.

    Args:
        cluster: the installation.
        group: the group.
        to_the_last: wait for the end of open transactions, which hide later resends.
    """

    def __init__(self, cluster: Cluster, group: str, *, to_the_last: bool) -> None:
        self._cluster, self._group, self._to_the_last = cluster, group, to_the_last
        # By the id: that of its first letter, and for a few ids those of messages that were born at other times.
        self._found: dict[bytes, History] = {}
        self._others: dict[bytes, dict[int | None, History]] = {}
        self._since_ms: int | None = None
        self._read: dict[Partition, int] = {}

    def add(self, one: DeadLetterRecord) -> None:
        """Add the message of a dead letter; add all before the first `read`."""
        self._since_ms = one.stored_ms if self._since_ms is None else min(self._since_ms, one.stored_ms)
        key, history = _key(one.letter.origin_message_id), History(one.at, born_ms=one.letter.born_ms)
        if self._found.setdefault(key, history).born_ms != history.born_ms:
            self._others.setdefault(key, {}).setdefault(history.born_ms, history)

    def of(self, one: DeadLetterRecord) -> History:
        """Return the history of the message."""
        key, born_ms = _key(one.letter.origin_message_id), one.letter.born_ms
        first = self._found[key]
        return first if first.born_ms == born_ms else self._others[key][born_ms]

    def read(self, alive: Callable[[], None] = lambda: None) -> None:
        """Read to the end of the topics, from the end of the last call.

        Args:
            alive: called repeatedly during the read.
        """
        if self._since_ms is None:
            return
        admin = self._cluster.admin
        partitions = [*find_partitions(self._cluster, self._group), *find_lane(self._cluster)]
        if new := [where for where in partitions if where not in self._read]:
            self._read |= admin.offsets_at(new, self._since_ms, uncommitted=True)
        ends = admin.end_offsets(partitions, uncommitted=self._to_the_last)
        with RangeReader(self._cluster.base, f"{self._cluster.names.prefix}dlq") as reader:
            for read in reader.records({where: (self._read[where], ends[where]) for where in partitions}):
                self._take(read)
                alive()
        self._read |= ends

    def _take(self, read: ReadRecord) -> None:
        if read.topic != self._cluster.names.delay(0):
            # For most records only this is read: a topic may have a million dead letters of other messages.
            key = _key(message_id_of(Position(*read[:3]), read.headers))
            if key in self._found:
                record = record_of(self._group, read)
                for history in self._same(key, record.letter.born_ms):
                    history.add_dead_letter(record.at, record.letter.replay_times)
            return
        replayed, retry = replayed_of(read.headers), RETRY_PREFIX + self._group
        # A copy on an ordinary topic reaches every group.
        if replayed is not None and (replayed.real_topic == retry or not replayed.real_topic.startswith(RETRY_PREFIX)):
            for history in self._same(_key(replayed.origin_message_id), replayed.born_ms):
                history.add_replay(read.stored_ms, replayed.times)

    def _same(self, key: bytes, born_ms: int | None) -> list[History]:
        """Return the histories of messages that may be the same; of many with one id, only three are looked at."""
        if (first := self._found.get(key)) is None:
            return []
        others = self._others.get(key, {})
        nearest = others if born_ms is None else others.keys() & {born_ms, None}
        return [one for one in (first, *map(others.__getitem__, nearest)) if is_same_message(one.born_ms, born_ms)]


def _key(message_id: str) -> bytes:
    """Return a digest: 100,000 ids are in memory, and foreign programs may have written one as long as a record."""
    return hashlib.blake2b(message_id.encode(errors="surrogatepass"), digest_size=16).digest()
