"""Send dead letters again that someone has picked, each once."""

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
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter, NewRecord
from reconsume.bridge.writing.lane_partitions import LanePartitions
from reconsume.delay_levels.errors import IllegalSetting, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import RESENT, SUPERSEDED, DeadLetterState
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.resend import REASONS, SEND, History, replayed_of, resend_headers, resend_status
from reconsume.operations.dead_letter_states import StatesReader, resend_id, state_name, state_record, states_topic
from reconsume.operations.dead_letters import DeadLetterRecord, find_partitions, read_these, record_of
from reconsume.operations.record_address import RecordAddress

__all__ = ["MOST", "REASONS", "SEND", "ResendVerdict", "new_replay_id", "plan_resend", "resend"]

MOST: Final = 10_000
"""Dead letters that one call sends again: they are held in memory. Spark replays more."""
_TOGETHER: Final = 500
"""Records of one transaction."""
_WITH_STATES: Final = (SEND, "superseded")
"""What becomes of them is written down."""


class ResendVerdict(NamedTuple):
    """The verdict on a dead letter to resend; the status is a key of `REASONS`."""

    record: DeadLetterRecord
    status: str
    times: int
    """How often its message was sent again before."""
    newest: tuple[int, int, int]
    """Where the newest dead letter of its message stands: stored (ms), partition, offset."""


def new_replay_id(by: str, now_ms: float) -> str:
    """A `REPLAY_ID`: by which program, when, and a few characters that no other has."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f"{by}-{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def plan_resend(
    cluster: Cluster, group: str, places: Collection[RecordAddress], *, max_replays: int = 2
) -> list[ResendVerdict]:
    """Return the plan of `resend`; writes nothing.

    Raises:
        IllegalSetting: too many are named, or none.
        RecordNotFound: one is not there.
        TopicNotReady: the group has no dead-letter topic, or `DELAY.0s` is missing.
    """
    return _judge(cluster, group, places, max_replays, _lane(cluster), to_the_last=False)


def _lane(cluster: Cluster) -> list[Partition]:
    """The partitions of `DELAY.0s`, through which dead letters are sent again."""
    lane = cluster.names.delay(0)
    if not (found := all_partitions(cluster.admin.partitions([lane]))):
        raise TopicNotReady(f"topic {lane} does not exist; create it: reconsume topics apply")
    return found


def _judge(
    cluster: Cluster,
    group: str,
    places: Collection[RecordAddress],
    max_replays: int,
    lane: Collection[Partition],
    *,
    to_the_last: bool,
) -> list[ResendVerdict]:
    if not places or len(places) > MOST:
        raise IllegalSetting(
            f"{len(places)} dead letters: name between 1 and {MOST:,}; `reconsume replay` sends as many as there are"
        )
    records, states = read_these(cluster, group, places), StatesReader(cluster, to_the_last=to_the_last)
    histories = _histories(cluster, group, records, lane, to_the_last=to_the_last)
    found = []
    for record in records:
        history = histories[record.letter.origin_message_id]
        status = resend_status(
            record.letter, record.at, history, max_replays, state_name(states.of(record.key_of_state))
        )
        found.append(ResendVerdict(record, status, max(record.letter.replay_times, history.times), history.newest))
    return found


def resend(
    cluster: Cluster, group: str, places: Collection[RecordAddress], *, replay_id: str, by: str, max_replays: int = 2
) -> list[ResendVerdict]:
    """Send dead letters again to their group, through `DELAY.0s`, and write their states, in the same transactions.

    Another resend at the same time is fenced, and earlier resends are read back first, so each goes once; given
    again, it sends what is missing.

    Args:
        cluster: the installation.
        group: whose.
        places: which.
        replay_id: the header `REPLAY_ID` of what is sent.
        by: who sends them, for their states.
        max_replays: a message that was sent again so often is left out.

    Returns:
        What was decided of each; those with the status `send` were sent.

    Raises:
        IllegalSetting: as `plan_resend`.
        KafkaNotReachable: an answer did not come; the same call goes on.
        KafkaRefused: rights are missing, or someone else has begun to resend; the same call goes on.
    """
    found, left, groups = dict[RecordAddress, ResendVerdict](), list(places), read_groups(cluster)
    lanes, topic = LanePartitions(lambda: groups), states_topic(cluster)
    with ExclusiveWriter(cluster, resend_id(cluster), "sending dead letters again") as writer:
        while True:
            # First: from here on nobody else's resend can be committed any more, so what is read is the last word.
            writer.take_over()
            lane = _lane(cluster)
            verdicts = _judge(cluster, group, left, max_replays, lane, to_the_last=True)
            choose = partial(lanes.choose, cluster.names.delay(0), len(lane), group)
            # Two dead letters of one message are never both sent: the older one is superseded.
            chosen, sent = [one for one in verdicts if one.status in _WITH_STATES], 0
            while sent < len(chosen) and writer.is_alone:
                part = chosen[sent : sent + _TOGETHER]
                at_ms = int(cluster.clock())
                copies = [_copy(cluster.names.delay(0), choose, one, replay_id) for one in part if one.status == SEND]
                states = [(one.record.key_of_state, _state(one, replay_id, by, at_ms)) for one in part]
                writer.write_records([*copies, *(state_record(topic, *one) for one in states)])
                sent += len(part)
            found |= {one.record.place: one for one in verdicts}
            left = [one.record.place for one in chosen[sent:]]
            if not left:
                return [found[place] for place in sorted(found)]


def _copy(topic: str, choose: Callable[[bytes | None], int], verdict: ResendVerdict, replay_id: str) -> NewRecord:
    record = verdict.record
    headers = resend_headers(record.headers, record.letter, replay_id, verdict.times)
    return NewRecord(topic, record.value, record.key, choose(record.key), headers)


def _state(verdict: ResendVerdict, replay_id: str, by: str, at_ms: int) -> DeadLetterState:
    if verdict.status == SEND:
        return DeadLetterState(RESENT, at_ms, by, job=replay_id)
    return DeadLetterState(SUPERSEDED, at_ms, by, newer=str(RecordAddress(*verdict.newest[1:])))


def _histories(
    cluster: Cluster,
    group: str,
    records: Collection[DeadLetterRecord],
    lane: Collection[Partition],
    *,
    to_the_last: bool,
) -> dict[str, History]:
    """Return the histories of the messages since the first of these dead letters.

    Args:
        cluster: the installation.
        group: whose they are.
        records: the dead letters.
        lane: the partitions of `DELAY.0s`.
        to_the_last: wait for transactions that are open now: what was sent again behind one is not seen before its end.
    """
    since_ms = min(one.stored_ms for one in records)
    found: dict[str, History] = {}
    for one in records:
        known = found.get(one.letter.origin_message_id, History(one.at))
        found[one.letter.origin_message_id] = known.with_dead_letter(one.at, one.letter.replay_times)
    partitions = [*find_partitions(cluster, group), *lane]
    starts = cluster.admin.offsets_at(partitions, since_ms, uncommitted=True)
    ends = cluster.admin.end_offsets(partitions, uncommitted=to_the_last)
    retry = RETRY_PREFIX + group
    with RangeReader(cluster.base, f"{cluster.names.prefix}dlq") as reader:
        for read in reader.records({where: (starts[where], ends[where]) for where in partitions}):
            if read.topic != cluster.names.delay(0):
                record = record_of(group, read)
                message_id = record.letter.origin_message_id
                if message_id in found:
                    found[message_id] = found[message_id].with_dead_letter(record.at, record.letter.replay_times)
                continue
            replayed = replayed_of(read.headers)
            # One to an ordinary topic comes to every group.
            if (
                replayed is not None
                and replayed.origin_message_id in found
                and (replayed.real_topic == retry or not replayed.real_topic.startswith(RETRY_PREFIX))
            ):
                message_id = replayed.origin_message_id
                found[message_id] = found[message_id].with_replay(read.stored_ms, replayed.times)
    return found
