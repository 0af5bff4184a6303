"""Lists and resets positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import NO_ID
from reconsume.bridge.kafka.single_records import write_records
from reconsume.bridge.scheduler.delivery.positions import PositionLog
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import counted
from reconsume.delay_levels.wire.positions import position_key

_MOST_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class ListedPosition:
    """A partition's position and its committed offset.

    Attributes:
        committed: the offset of the schedulers' group; None without one.
        worker: the transactional id of the worker that wrote it; empty without transactions.
        counts: whether it has the id of the existing topic. While brokers report no ids, all count.
    """

    topic: str
    partition: int
    offset: int
    committed: int | None
    worker: str
    counts: bool


def list_positions(cluster: Cluster) -> list[ListedPosition]:
    """Return all committed positions.

    Raises:
        TopicNotReady: the POSITIONS topic is missing.
    """
    admin, topic = cluster.admin, cluster.require(cluster.names.positions)
    last = PositionLog(cluster.base, topic).committed().last
    ids = admin.topic_ids({lane for lane, _ in last})
    committed = admin.committed(cluster.names.scheduler_group, [where for where in last if where[0] in ids])
    return [
        ListedPosition(
            *where,
            one.offset,
            committed.get(where),
            one.transactional_id,
            counts=ids.get(where[0]) in (one.topic_id, NO_ID),
        )
        for where, (_, one) in sorted(last.items())
        if one is not None
    ]


def parse_partition(text: str) -> Partition:
    """Parse TOPIC-PARTITION.

    Raises:
        IllegalSetting: the text has another form.
    """
    topic, _, partition = text.rpartition("-")
    if not (topic and partition.isascii() and partition.isdigit() and len(partition) <= _MOST_DIGITS):
        raise IllegalSetting(f"{text!r}: write TOPIC-PARTITION, such as reconsume.DELAY.10s-0")
    return topic, int(partition)


def reset_positions(cluster: Cluster, wanted: Sequence[Partition] | None) -> list[ListedPosition]:
    """Remove some positions, or all, and return them.

    Raises:
        IllegalSetting: a partition has no position, or a running worker would write it again.
    """
    found = {(one.topic, one.partition): one for one in list_positions(cluster)}
    wheres = list(found) if wanted is None else list(dict.fromkeys(wanted))
    if unknown := [f"{topic}-{partition}" for topic, partition in wheres if (topic, partition) not in found]:
        raise IllegalSetting(f"no position of {', '.join(unknown)}; `reconsume positions list` shows them")
    group = cluster.names.scheduler_group
    if members := cluster.admin.member_names(group):
        raise IllegalSetting(
            f"group {group} has {counted(len(members), 'member')}; stop all scheduler workers first. A running worker "
            "would write its position again; a killed one stays a member until its session ends"
        )
    write_records(cluster, cluster.names.positions, [(position_key(*where), None) for where in wheres])
    return [found[where] for where in wheres]
