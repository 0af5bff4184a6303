"""Keeps an index of dead letters up to date with Kafka."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions, is_another_topic, partitions_with_leader
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.bridge.topics.missing_topics import MissingTopics
from reconsume.delay_levels.errors import KafkaNotReachable, MalformedProperty, ReconsumeError
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState, decode_state, parse_key
from reconsume.delay_levels.wire.names import DLQ_PREFIX, prefix_and_group
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.letters import IndexedLetter, Progress
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import record_of

logger = SafeLogger(__name__)

_EVERY_SECONDS: Final = 2.0
_LOOKS_WITHOUT: Final = 10
_GAP_MS: Final = 12 * 3_600_000
"""Kafka keeps removals of states for a day at least, so newer ones are all there."""
_TOGETHER: Final = 2_000
_TOGETHER_BYTES: Final = 32 * 1024 * 1024


class _Unread(NamedTuple):
    """The unread part of a partition.

    Attributes:
        first: the first offset that Kafka keeps.
        start: the first offset to read.
        is_anew: whether the topic was recreated or truncated since it was read.
    """

    topic_id: str
    first: int
    start: int
    end: int
    is_anew: bool


class DeadLetterIndex:
    """Reads dead letters and their states, each once, into a store.

    Guarantees: states are read after all earlier dead letters, so each state finds its letter. An index that was not
    followed for so long that Kafka may have forgotten reopenings begins again.
    Tests: tests/integration/operations/test_dead_letter_index.py,
    tests/unit/operations/dead_letter_index/test_follower.py.

    Args:
        cluster: the installation.
        store: the index, which also stores the progress.
        labels: assigns labels to causes.

    Attributes:
        left: number of records left to read after the last look; None before the first look.
        is_complete: whether everything was read once; later looks add new records. False after a look that failed,
            except while Kafka does not answer.
        trouble: why the last look failed; empty if it did not.
    """

    def __init__(self, cluster: Cluster, store: DeadLetterStore, labels: CauseLabels) -> None:
        self._cluster = cluster
        self.labels = labels
        self._states = cluster.names.dead_letter_states
        self.trouble = ""
        self.store = store
        self.left: int | None = None
        self.is_complete = False
        self._followed_ms = 0.0
        self._missing_topics = MissingTopics()

    def run(self, stop: threading.Event, looked: Callable[[], None] = lambda: None) -> None:
        """Look every two seconds until told to stop.

        Args:
            stop: ends it.
            looked: called before each look, with the result of the one before, whether it failed or not.
        """
        while not stop.is_set():
            try:
                looked()
                self.look(stop)
                self.trouble = ""
            except (ReconsumeError, sqlite3.Error) as error:
                if self._note(error):
                    logger.warning("index of dead letters is not up to date: %s", error)
            except Exception as error:
                # Without this thread the pages would show an old index as the current one.
                if self._note(error):
                    logger.exception("index of dead letters is not up to date")
            stop.wait(_EVERY_SECONDS)

    def _note(self, error: Exception) -> bool:
        """Note why the last look failed; return whether the one before did not fail so."""
        if not isinstance(error, KafkaNotReachable):
            self.is_complete = False  # Kafka has answered, so all other figures are current
        before, self.trouble = self.trouble, f"{type(error).__name__}: {error}"
        return before != self.trouble

    def look(self, stop: threading.Event | None = None) -> None:
        """Read new records; begin again if the index is damaged or outdated.

        Raises:
            KafkaNotReachable: no answer, or, after all others were read, partitions without a leader; the next look
                continues.
            KafkaRefused: rights are missing.
        """
        if self.store.is_damaged:
            self._begin_again()
        admin, began_ms = self._cluster.admin, self._cluster.clock()
        topics = admin.topics()
        # The end of the states first: their letters are before the other ends.
        states = self._new(all_partitions({self._states: min(1, topics.get(self._states, 0))}))
        if self._is_outdated(states):
            logger.info("index of dead letters is outdated, and is filled again")
            self._begin_again()
            states = self._new(list(states))
        topics = admin.topics()
        groups = {topic: group for topic in topics if (group := self._group_of(topic)) is not None}
        self._wait_for_missing(groups)
        partitions, lost = partitions_with_leader(admin, {topic: topics[topic] for topic in groups})
        letters = self._new(partitions)
        self._forget(letters, groups)
        # This look reads states of letters that it cannot read, so they and all states are read again later.
        known = self.store.progress()
        self._read_to({where: Progress(known[where].topic_id, 0) for where in lost & known.keys()})
        if any(one.start == one.first < one.end for one in letters.values()):
            # If a topic is read again, its letters are open until their states are read again too.
            states = {
                where: _Unread(one.topic_id, one.first, one.first, one.end, one.is_anew)
                for where, one in states.items()
            }
        self.left = sum(one.end - one.start for one in (letters | states).values())
        with RangeReader(self._cluster.base, f"{self._cluster.names.prefix}dlq") as reader:
            for spans in (letters, states):
                ids = {where: one.topic_id for where, one in spans.items()}
                ranges = {where: (one.start, one.end) for where, one in spans.items()}
                self._read(reader.records(ranges, stop=stop), groups, ids)
                if stop is not None and stop.is_set():
                    return
                self._read_to({where: Progress(one.topic_id, one.end) for where, one in spans.items()})
        self.left, self.is_complete = 0, True
        if states:
            self._followed_ms = began_ms
        if lost:
            # Without names, because the console shows it to people who may not see all groups.
            raise KafkaNotReachable(
                f"partitions of dead-letter topics without a leader, which are not read: {len(lost)}; start their "
                "brokers, which `kafka-topics.sh --describe --unavailable-partitions` shows"
            )

    def _begin_again(self) -> None:
        self.is_complete, self.left = False, None
        self.store.rebuild()

    def _is_outdated(self, states: Mapping[Partition, _Unread]) -> bool:
        """Return whether states were removed unseen: the topic is a new one, or Kafka has forgotten tombstones."""
        if any(one.is_anew for one in states.values()):
            return True
        now_ms, read = self._cluster.clock(), self.store.progress().keys() & states.keys()
        if not states or now_ms - self._followed_ms < _GAP_MS:
            return False  # without states this look cannot tell, and the next one asks again
        kept = self._cluster.admin.offsets_at(read, int(now_ms - _GAP_MS))
        self._followed_ms = now_ms
        return any(states[where].start < kept[where] for where in read)

    def _read_to(self, ends: Mapping[Partition, Progress]) -> None:
        """Note the progress; without news the store stays unchanged, so that nobody counts anew."""
        known = self.store.progress()
        if news := {where: end for where, end in ends.items() if known.get(where) != end}:
            self.store.add((), {}, news)

    def _group_of(self, topic: str) -> str | None:
        """Return the group of a dead-letter topic."""
        prefix, group = prefix_and_group(self._cluster.names.rocketmq_name(topic))
        return group if prefix == DLQ_PREFIX else None

    def _new(self, partitions: list[Partition]) -> dict[Partition, _Unread]:
        """Return the unread part of each partition; a recreated topic is all new."""
        admin, progress = self._cluster.admin, self.store.progress()
        ids = admin.topic_ids({topic for topic, _ in partitions})
        starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions)
        found = {}
        for where in partitions:
            known, topic_id = progress.get(where), ids.get(where[0])
            if topic_id is None:
                continue  # no broker knows the topic at this moment
            is_anew = known is not None and (is_another_topic(known.topic_id, topic_id) or known.next > ends[where])
            start = min(max(starts[where], 0 if known is None or is_anew else known.next), ends[where])
            found[where] = _Unread(topic_id, starts[where], start, ends[where], is_anew)
        return found

    def _wait_for_missing(self, groups: Mapping[str, str]) -> None:
        """Raise `KafkaNotReachable` until a topic counts as deleted: a broker that starts knows none for a while."""
        known = {topic for topic, _ in self.store.progress()} - {self._states}
        looks_without = self._missing_topics.look(known - groups.keys())
        if missing := sum(looks <= _LOOKS_WITHOUT for looks in looks_without.values()):
            raise KafkaNotReachable(
                f"dead-letter topics that are missing from the list of topics: {missing}; they count as deleted after "
                f"{_LOOKS_WITHOUT * _EVERY_SECONDS:.0f} s"
            )

    def _forget(self, letters: Mapping[Partition, _Unread], groups: Mapping[str, str]) -> None:
        """Remove letters that Kafka has deleted, and those of a recreated topic."""
        for where in self.store.progress():
            if where[0] == self._states:
                continue
            if where[0] not in groups or (where in letters and letters[where].is_anew):
                self.store.forget(*where, before=None)
            elif where in letters and letters[where].first > 0:
                self.store.forget(*where, before=letters[where].first)

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
            size += message.size
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
            *(one.key_of_state, group, letter.origin_message_id, letter.born_ms, letter.origin_topic, one.key),
            *(self.labels.label(letter.exception_class, letter.cause), letter.exception_class, letter.cause),
            *(letter.attempt, letter.replay_times, one.size),
            one.user_headers,
        )
