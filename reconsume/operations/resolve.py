"""Resolves dead letters that need no resend, and reopens them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.writing.exclusive_writer import write_exclusively
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESOLVED, DeadLetterState
from reconsume.operations.dead_letter_states import (
    StatesReader,
    check_reason,
    resend_id,
    state_name,
    state_record,
    states_topic,
)
from reconsume.operations.dead_letters import DeadLetterRecord, read_these
from reconsume.operations.record_address import RecordAddress

MOST: Final = 10_000
"""The maximum number of dead letters in one call, which are held in memory; use a job for more."""


class Changed(NamedTuple):
    """A dead letter to resolve or reopen.

    Attributes:
        before: a key of `STATES`.
        is_changed: False if it stayed unchanged, for example because it was resent.
    """

    record: DeadLetterRecord
    before: str
    is_changed: bool


def resolve(cluster: Cluster, group: str, places: Collection[RecordAddress], *, by: str, why: str) -> list[Changed]:
    """Resolve open dead letters, so that later resends skip them.

    Args:
        cluster: the installation.
        group: the group.
        places: the places of the dead letters.
        by: the name of the person.
        why: the reason.

    Raises:
        IllegalSetting: too many places, or none; or the reason is missing.
        RecordNotFound: a dead letter does not exist.
        TopicNotReady: the group has no dead-letter topic, or the topic of states is missing.
        KafkaNotReachable: an answer is missing; repeat the call, which continues.
        KafkaRefused: rights are missing, or others changed dead letters of the group again and again.
    """
    check_reason(why)
    return _change(cluster, group, places, OPEN, DeadLetterState(RESOLVED, int(cluster.clock()), by, why))


def reopen(cluster: Cluster, group: str, places: Collection[RecordAddress]) -> list[Changed]:
    """Reopen resolved dead letters; errors as those of `resolve`."""
    return _change(cluster, group, places, RESOLVED, None)


def _change(
    cluster: Cluster, group: str, places: Collection[RecordAddress], wanted: str, state: DeadLetterState | None
) -> list[Changed]:
    if not places or len(places) > MOST:
        raise IllegalSetting(
            f"{len(places)} dead letters are named; name between 1 and {MOST:,}, or use `reconsume dlq resolve --all`"
        )
    topic, done = states_topic(cluster), list[Changed]()
    # A job of the group may fence this writer repeatedly: it reads only new states again.
    letters = read_these(cluster, group, places)
    keys = {one.key_of_state for one in letters}
    states = StatesReader(cluster, to_the_last=True, wanted=keys.__contains__)
    for one in letters:
        states.of(one.key_of_state)

    def records() -> list[NewRecord]:
        states.catch_up()
        found = [(one, state_name(states.of(one.key_of_state))) for one in letters]
        done[:] = [Changed(one, before, before == wanted) for one, before in found]
        return [state_record(topic, one.record.key_of_state, state) for one in done if one.is_changed]

    write_exclusively(cluster, resend_id(cluster, group), "changing the state of dead letters", records)
    return done
