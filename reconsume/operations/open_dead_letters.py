"""Follow dead-letter topics and `DELAY.0s`, to tell how old the oldest dead letter is that nobody has sent again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import IllegalName, ReconsumeError
from reconsume.delay_levels.wire.names import DLQ_PREFIX
from reconsume.delay_levels.wire.resend import OpenDeadLetters, replayed_of
from reconsume.operations.dead_letters import record_of

__all__ = ["OpenDeadLettersFollower"]

logger = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 60.0
_DAY_MS: Final = 86_400_000
_KEPT_OF_RETENTION: Final = 6 / 7
"""What was sent again is known while `DELAY.0s` keeps it; brokers delete whole segments, at any time after that."""


class OpenDeadLettersFollower:
    """Reads what is new once a minute, in a thread of its own.

    Args:
        cluster: the installation.
        tell: is given when the oldest open dead letter of each group was stored, in milliseconds.
    """

    def __init__(self, cluster: Cluster, tell: Callable[[Mapping[str, int]], None]) -> None:
        self._cluster = cluster
        self._tell = tell
        self._open = OpenDeadLetters()
        self._read_to: dict[Partition, int] = {}
        self._refused = ""

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop."""
        while not stop.is_set():
            try:
                self.look()
                self._refused = ""
            except ReconsumeError as error:
                if self._refused != str(error):
                    logger.warning("open dead letters are not followed: %s", error)
                    self._refused = str(error)
            stop.wait(_EVERY_SECONDS)

    def look(self) -> None:
        """Read what is new, and tell.

        Raises:
            KafkaNotReachable: no answer; the next look goes on.
            KafkaRefused: rights are missing.
        """
        admin, names, since_ms = self._cluster.admin, self._cluster.names, self._since_ms()
        # The lane's ends first: what was sent again before them had died before the other ends.
        lane = names.delay(0)
        replays = self._new(all_partitions({lane: admin.topics().get(lane, 0)}), since_ms)
        topics = admin.topics()
        dead = {topic: group for topic in topics if (group := self._group_of(topic)) is not None}
        letters = all_partitions({topic: topics[topic] for topic in dead})
        died = self._new(letters, since_ms)
        with RangeReader(self._cluster.base, f"{names.prefix}dlq") as reader:
            for read in reader.records(died):
                record = record_of(dead[read.topic], read)
                self._open.died(record.letter.group, record.letter.origin_message_id, record.at)
            for read in reader.records(replays):
                if (replayed := replayed_of(read.headers)) is not None:
                    self._open.replayed(replayed, read.stored_ms)
        self._read_to = {where: end for where, (_, end) in (replays | died).items()}
        starts = admin.end_offsets(letters, earliest=True)
        for topic, group in dead.items():
            self._open.forget(group, {one: at for (name, one), at in starts.items() if name == topic}, since_ms)
        self._open.keep_groups(frozenset(dead.values()))
        self._tell(self._open.oldest_ms())

    def _since_ms(self) -> int:
        kept_ms = self._cluster.settings.topics.retention_days * _DAY_MS * _KEPT_OF_RETENTION
        return int(self._cluster.clock() - kept_ms)

    def _group_of(self, topic: str) -> str | None:
        """Whose dead-letter topic it is."""
        try:
            name = self._cluster.names.rocketmq_name(topic)
        except IllegalName:
            return None
        return name.removeprefix(DLQ_PREFIX) if name.startswith(DLQ_PREFIX) else None

    def _new(self, partitions: list[Partition], since_ms: int) -> dict[Partition, tuple[int, int]]:
        """What was not read yet; of a partition that is new, or was made again, what was stored since then."""
        ends = self._cluster.admin.end_offsets(partitions)
        known = {where: self._read_to[where] for where in partitions if self._read_to.get(where, -1) >= 0}
        known = {where: at for where, at in known.items() if at <= ends[where]}
        unknown = [where for where in partitions if where not in known]
        first = self._cluster.admin.offsets_at(unknown, since_ms)
        return {where: (min(known.get(where, first.get(where, 0)), ends[where]), ends[where]) for where in partitions}
