"""Keep an index of dead letters up to date with Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.delay_levels.errors import IllegalName, MalformedProperty, ReconsumeError
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState, decode_state, parse_key
from reconsume.delay_levels.wire.names import DLQ_PREFIX
from reconsume.delay_levels.wire.properties import DLQ_ERRORS, OUR_PROPERTIES
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.letters import IndexedLetter, Progress
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import record_of

__all__ = ["DeadLetterIndex"]

logger = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 2.0
_TOGETHER: Final = 2_000
_TOGETHER_BYTES: Final = 32 * 1024 * 1024


class DeadLetterIndex:
    """Reads dead letters and their states, each once, into a store.

    Guarantees: states are read after all dead letters that stood before them, so a state finds its letter.
    Test: tests/integration/test_dead_letter_index.py.

    Args:
        cluster: the installation.
        store: what is known; its own progress says where to go on.
        labels: of causes.

    Attributes:
        left: records that the last look had still to read; None before the first look.
    """

    def __init__(self, cluster: Cluster, store: DeadLetterStore, labels: CauseLabels) -> None:
        self._cluster = cluster
        self._labels = labels
        self._states = cluster.names.dead_letter_states
        self._refused = ""
        self.store = store
        self.left: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything was read that stood in Kafka at the last look."""
        return self.left == 0

    def run(self, stop: threading.Event, looked: Callable[[], None] = lambda: None) -> None:
        """Look every two seconds until told to stop.

        Args:
            stop: ends it.
            looked: called after each look.
        """
        while not stop.is_set():
            try:
                self.look(stop)
                looked()
                self._refused = ""
            except ReconsumeError as error:
                if self._refused != str(error):
                    self._refused = str(error)
                    logger.warning("index of dead letters is not up to date: %s", error)
            stop.wait(_EVERY_SECONDS)

    def look(self, stop: threading.Event | None = None) -> None:
        """Read what is new.

        Raises:
            KafkaNotReachable: no answer; the next look goes on.
            KafkaRefused: rights are missing.
        """
        admin = self._cluster.admin
        topics = admin.topics()
        # The end of the states first: the letters that they tell of stand before the other ends.
        states = self._new(all_partitions({self._states: min(1, topics.get(self._states, 0))}))
        topics = admin.topics()
        groups = {topic: group for topic in topics if (group := self._group_of(topic)) is not None}
        letters = self._new(all_partitions({topic: topics[topic] for topic in groups}))
        self._forget(letters)
        self.left = sum(end - start for _, start, end in (letters | states).values())
        with RangeReader(self._cluster.base, f"{self._cluster.names.prefix}dlq") as reader:
            for spans in (letters, states):
                ids = {where: topic_id for where, (topic_id, _, _) in spans.items()}
                ranges = {where: (start, end) for where, (_, start, end) in spans.items()}
                self._read(reader.records(ranges, stop=stop), groups, ids)
                if stop is not None and stop.is_set():
                    return
                read_to = {where: Progress(topic_id, end) for where, (topic_id, _, end) in spans.items()}
                self.store.add((), {}, read_to)
        self.left = 0

    def _group_of(self, topic: str) -> str | None:
        """Whose dead-letter topic it is."""
        try:
            name = self._cluster.names.rocketmq_name(topic)
        except IllegalName:
            return None
        return name.removeprefix(DLQ_PREFIX) if name.startswith(DLQ_PREFIX) else None

    def _new(self, partitions: list[Partition]) -> dict[Partition, tuple[str, int, int]]:
        """What was not read yet of each partition: the id of the topic, the first offset, and the end.

        Of a topic that was made again all is new.
        """
        admin, progress = self._cluster.admin, self.store.progress()
        ids = admin.topic_ids({topic for topic, _ in partitions})
        starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions)
        found = {}
        for where in partitions:
            known, topic_id = progress.get(where), ids.get(where[0], "")
            if known is None or known.topic_id != topic_id or known.next > ends[where]:
                known = Progress(topic_id, 0)
            start = max(starts[where], known.next)
            found[where] = (topic_id, min(start, ends[where]), ends[where])
        return found

    def _forget(self, letters: Mapping[Partition, tuple[str, int, int]]) -> None:
        """Remove what Kafka has deleted, or what stood in a topic that was made again."""
        starts = self._cluster.admin.end_offsets(letters, earliest=True)
        for where, known in self.store.progress().items():
            if where[0] == self._states:
                continue
            if where not in letters or known.topic_id != letters[where][0]:
                self.store.forget(*where, before=None)
            elif starts[where] > 0:
                self.store.forget(*where, before=starts[where])

    def _read(self, messages: Iterable[ReadRecord], groups: Mapping[str, str], ids: Mapping[Partition, str]) -> None:
        letters: list[IndexedLetter] = []
        states: dict[DeadLetterKey, DeadLetterState | None] = {}
        read: dict[Partition, Progress] = {}
        size = 0

        def keep() -> None:
            self.store.add(letters, states, read)
            if self.left is not None:
                self.left = max(1, self.left - len(letters) - len(states))
            for kept in (letters, states, read):
                kept.clear()

        for message in messages:
            where = message.where
            if where[0] == self._states:
                self._take_state(message, states)
            else:
                letters.append(self._letter(groups[where[0]], message))
            read[where] = Progress(ids[where], message.offset + 1)
            size += len(message.value or b"")
            if len(letters) + len(states) >= _TOGETHER or size >= _TOGETHER_BYTES:
                keep()
                size = 0
        keep()

    def _take_state(self, message: ReadRecord, states: dict[DeadLetterKey, DeadLetterState | None]) -> None:
        try:
            key, value = parse_key(message.key), message.value
            states[key] = None if value is None else decode_state(value)
        except MalformedProperty as error:
            logger.warning("record skipped topic=%s offset=%s: %s", message.topic, message.offset, error)

    def _letter(self, group: str, message: ReadRecord) -> IndexedLetter:
        one = record_of(group, message)
        letter = one.letter
        return IndexedLetter(
            *(one.key_of_state, group, letter.origin_message_id, letter.origin_topic, one.key),
            *(self._labels.label(letter.exception_class, letter.cause), letter.exception_class, letter.cause),
            *(letter.attempt, letter.replay_times, one.size),
            {
                name: value.decode(errors="replace")
                for name, value in one.headers
                if value is not None and name not in OUR_PROPERTIES and not name.startswith(DLQ_ERRORS)
            },
        )
