"""Resends picked dead letters, each once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter
from reconsume.bridge.writing.lane_partitions import LanePartitions
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import RESENT, SUPERSEDED, DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.resend import REASONS, SEND, History, replayed_of, resend_headers, resend_status
from reconsume.operations.dead_letter_states import StatesReader, resend_id, state_name, state_record, states_topic
from reconsume.operations.dead_letters import DeadLetterRecord, find_partitions, read_these, record_of
from reconsume.operations.record_address import RecordAddress

__all__ = [
    "MOST",
    "REASONS",
    "SEND",
    "WITH_STATES",
    "Histories",
    "ResendVerdict",
    "find_lane",
    "judge",
    "new_replay_id",
    "plan_resend",
    "resend",
    "resent_copy",
    "resent_state",
]

MOST: Final = 10_000
"""Maximum of dead letters in one call: they are in memory. Spark replays more."""
_TOGETHER: Final = 500
"""Maximum of records in one transaction."""
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


def plan_resend(
    cluster: Cluster, group: str, places: Collection[RecordAddress], *, max_replays: int = 2
) -> list[ResendVerdict]:
    """Return the plan of `resend`, without writing.

    Raises:
        IllegalSetting: too many places, or none.
        RecordNotFound: a dead letter does not exist.
        TopicNotReady: the group has no dead-letter topic, or `DELAY.0s` is missing.
    """
    return _judge(cluster, group, places, max_replays, to_the_last=False)


def find_lane(cluster: Cluster) -> list[Partition]:
    """Return the partitions of `DELAY.0s`, through which dead letters are resent.

    Raises:
        TopicNotReady: the topic is missing.
    """
    lane = cluster.names.delay(0)
    if not (found := all_partitions(cluster.admin.partitions([lane]))):
        raise TopicNotReady(f"topic {lane} does not exist; create it: reconsume topics apply")
    return found


def _judge(
    cluster: Cluster,
    group: str,
    places: Collection[RecordAddress],
    max_replays: int,
    *,
    to_the_last: bool,
) -> list[ResendVerdict]:
    if not places or len(places) > MOST:
        raise IllegalSetting(
            f"{len(places)} dead letters are named; name between 1 and {MOST:,}, or use `reconsume dlq resend --all`"
        )
    records, states = read_these(cluster, group, places), StatesReader(cluster, to_the_last=to_the_last)
    histories = Histories(cluster, group, to_the_last=to_the_last)
    for record in records:
        histories.add(record)
    histories.read()
    return [judge(record, histories.of(record), states.of(record.key_of_state), max_replays) for record in records]


def judge(record: DeadLetterRecord, history: History, state: DeadLetterState | None, max_replays: int) -> ResendVerdict:
    """Return the verdict on a dead letter to resend."""
    status = resend_status(record.letter, record.at, history, max_replays, state_name(state))
    return ResendVerdict(record, status, max(record.letter.replay_times, history.times), history.newest)


def resend(
    cluster: Cluster, group: str, places: Collection[RecordAddress], *, replay_id: str, by: str, max_replays: int = 2
) -> list[ResendVerdict]:
    """Resend dead letters to their group through `DELAY.0s`, and write their states in the same transactions.

    A simultaneous resend is fenced, and earlier resends are read first, so each letter is sent once. A repeated call
    sends the missing ones.

    Args:
        cluster: the installation.
        group: the group.
        places: the places of the dead letters.
        replay_id: the header `REPLAY_ID` of the copies.
        by: the name of the sender, for the states.
        max_replays: a message that was resent this often is left out.

    Returns:
        The verdict on each; those with the status `send` were sent.

    Raises:
        IllegalSetting: as `plan_resend`.
        KafkaNotReachable: an answer is missing; repeat the call, which continues.
        KafkaRefused: rights are missing, or another resend has begun; repeat the call, which continues.
    """
    found, left, groups = dict[RecordAddress, ResendVerdict](), list(places), read_groups(cluster)
    lanes, topic = LanePartitions(lambda: groups), states_topic(cluster)
    with ExclusiveWriter(cluster, resend_id(cluster, group), "sending dead letters again") as writer:
        while True:
            # First: from here on no other resend can be committed, so the records read are final.
            writer.take_over()
            choose = partial(lanes.choose, cluster.names.delay(0), len(find_lane(cluster)), group)
            verdicts = _judge(cluster, group, left, max_replays, to_the_last=True)
            # Two dead letters of one message are never both sent: the older one is superseded.
            chosen, sent = [one for one in verdicts if one.status in WITH_STATES], 0
            while sent < len(chosen) and writer.is_alone:
                part = chosen[sent : sent + _TOGETHER]
                at_ms = int(cluster.clock())
                copies = [resent_copy(cluster, choose, one, replay_id) for one in part if one.status == SEND]
                states = [state_record(topic, *resent_state(one, replay_id, by, at_ms)) for one in part]
                writer.write_records([*copies, *states])
                sent += len(part)
            found |= {one.record.place: one for one in verdicts}
            left = [one.record.place for one in chosen[sent:]]
            if not left:
                return [found[place] for place in sorted(found)]


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
        self._found: dict[str, History] = {}
        self._since_ms: int | None = None
        self._read: dict[Partition, int] = {}

    def add(self, one: DeadLetterRecord) -> None:
        """Add the message of a dead letter; add all before the first `read`."""
        self._since_ms = one.stored_ms if self._since_ms is None else min(self._since_ms, one.stored_ms)
        known = self._found.get(one.letter.origin_message_id, History(one.at))
        self._found[one.letter.origin_message_id] = known.with_dead_letter(one.at, one.letter.replay_times)

    def of(self, one: DeadLetterRecord) -> History:
        """Return the history of the message."""
        return self._found[one.letter.origin_message_id]

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
            record = record_of(self._group, read)
            if (known := self._found.get(record.letter.origin_message_id)) is not None:
                self._found[record.letter.origin_message_id] = known.with_dead_letter(
                    record.at, record.letter.replay_times
                )
            return
        replayed, retry = replayed_of(read.headers), RETRY_PREFIX + self._group
        # A copy on an ordinary topic reaches every group.
        if (
            replayed is not None
            and (known := self._found.get(replayed.origin_message_id)) is not None
            and (replayed.real_topic == retry or not replayed.real_topic.startswith(RETRY_PREFIX))
        ):
            self._found[replayed.origin_message_id] = known.with_replay(read.stored_ms, replayed.times)
