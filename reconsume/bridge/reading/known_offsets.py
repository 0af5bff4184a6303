"""What this process knows its group to have committed, held against a coordinator that has lost it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_INVALID, TopicPartition

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

__all__ = ["STEADY_MS", "CommittedOffsets", "KnownOffsets", "asking"]

logger = logging.getLogger(__name__)

_PATIENCE_MS: Final = 30_000.0
"""Of answers that do not change: as long as they do the coordinator is still loading. A rebalance gives its members ten
times as long."""
STEADY_MS: Final = 1_000.0
"""A broker loads some ten thousand commits in that time."""
_AGAIN_SECONDS: Final = 0.5
_EXAMPLES: Final = 5

Ask = Callable[[list[TopicPartition]], list[TopicPartition]]
"""What the group has committed of these; a negative offset where that is nothing."""
TopicIds = Callable[[Collection[str]], Mapping[str, str]]
"""The id of each topic that exists."""
Fallen = dict[Partition, tuple[TopicPartition, TopicPartition]]
"""What is known, and the lower answer."""


def asking(admin: KafkaAdmin, group: str, *, stable: bool = False) -> Ask:
    """Ask as one who is no member of the group; `stable` as of `KafkaAdmin.commits`."""

    def ask(asked: list[TopicPartition]) -> list[TopicPartition]:
        wheres = [(one.topic, one.partition) for one in asked]
        found = admin.commits(group, wheres, stable=stable)
        return [
            TopicPartition(*where, found[where].offset, found[where].metadata or "")
            if where in found
            else TopicPartition(*where, OFFSET_INVALID)
            for where in wheres
        ]

    return ask


class CommittedOffsets(NamedTuple):
    """Committed offsets of a group.

    Attributes:
        committed: of each partition that was asked for; a negative offset where that is nothing.
        restored: those of which Kafka says less; somebody should commit them again.
    """

    committed: list[TopicPartition]
    restored: list[TopicPartition]


class KnownOffsets:
    """The group's offsets never go back while one of its members lives, so an answer that does is wrong.

    Brokers give such answers: one that becomes coordinator of a group twice within a moment, as at each start of the
    only broker, may take the first loading of the group's offsets for the second one (`CompleteLoad` of Kafka's
    `CoordinatorRuntime` does not look at the epoch; seen with 4.1.1). Until the second one has ended, and for good if
    the group writes something meanwhile, the group has no offsets, or old ones. Going on from there would deliver
    everything again.

    Who has just started knows nothing, so of each partition the first answer is believed when it is given twice, a
    second apart: while offsets are loaded they rise. It does not help before the group's first one is loaded.

    Guarantees: an answer below what is known is asked for again, and overruled in the end.
    Tests: tests/integration/test_lost_offsets.py, tests/unit/bridge/reading/test_known_offsets.py.
    Remove when: `CompleteLoad` looks at the epoch in all supported versions of Kafka; 4.0 to 4.3.1 do not.

    A topic that was made again has another id; what is known of the old one is forgotten then.

    Args:
        topic_ids: tells one topic from another with the same name.
        patience_ms: how long the coordinator may take to find the offsets again.
        steady_ms: for how long a first answer must stay as it is.
        clock: milliseconds that only grow.

    Threads may share it.
    """

    def __init__(
        self,
        topic_ids: TopicIds,
        *,
        patience_ms: float = _PATIENCE_MS,
        steady_ms: float = STEADY_MS,
        clock: Clock = monotonic_ms,
    ) -> None:
        self._topic_ids = topic_ids
        self._patience_ms = patience_ms
        self._steady_ms = steady_ms
        self._clock = clock
        self._known: dict[Partition, TopicPartition] = {}
        self._steady: set[Partition] = set()
        self._said: dict[Partition, tuple[int, float]] = {}
        self._ids: dict[str, str] = {}
        self._doubted_since: float | None = None
        self._lock = threading.Lock()

    def meet(self, topics: Iterable[str]) -> None:
        """From now on these topics are told from later ones of the same name; of others nothing is kept in mind."""
        if new := set(topics) - self._ids.keys():
            try:
                self._ids.update(self._topic_ids(new))
            except ReconsumeError as error:
                logger.debug("offsets are not kept in mind: %s", error)

    def note(self, committed: Iterable[TopicPartition]) -> None:
        """Take note of what a member has committed itself; negative offsets say nothing."""
        found = [one for one in committed if one.offset >= 0]
        self._keep(found)
        with self._lock:
            self._steady.update((one.topic, one.partition) for one in found)

    def read(self, committed: Iterable[TopicPartition]) -> None:
        """Take note of what the coordinator says; negative offsets say nothing."""
        found, now = [one for one in committed if one.offset >= 0], self._clock()
        self._keep(found)
        with self._lock:
            for one in found:
                where = one.topic, one.partition
                if where in self._steady:
                    continue
                said, since = self._said.get(where, (-1, now))
                self._said[where] = said, since = one.offset, since if said == one.offset else now
                if now - since >= self._steady_ms:
                    self._steady.add(where)
                    del self._said[where]

    def _keep(self, found: Sequence[TopicPartition]) -> None:
        self.meet(one.topic for one in found)
        with self._lock:
            for one in found:
                before = self._known.get((one.topic, one.partition))
                if one.topic in self._ids and (before is None or one.offset >= before.offset):
                    self._known[one.topic, one.partition] = one

    def ask(self, ask: Ask, partitions: Iterable[Partition], stop: threading.Event) -> CommittedOffsets:
        """What is committed of these partitions, as far as it can be believed.

        Asks again until the coordinator has found its offsets; in the end what is known here holds. Raises what `ask`
        raises. After a stop nothing is to be restored: the coordinator may be about to find it.
        """
        wanted, before = list(partitions), None
        begun = changed = self._clock()
        while True:
            answers, fallen = self._asked(ask, wanted, anew=before is None)
            said, now = {where: one.offset for where, one in answers.items()}, self._clock()
            self.read(one for where, one in answers.items() if where not in fallen)
            changed = changed if before in (None, said) else now
            waited = now - (changed if fallen else begun)
            if not (fallen or self._is_unsteady(answers)) or waited >= self._patience_ms or stop.is_set():
                break
            if fallen and before is None:
                logger.warning("the coordinator of the group has lost offsets, asking again: %s", _told(fallen))
            before = said
            stop.wait(_AGAIN_SECONDS)
        if stop.is_set():
            return CommittedOffsets(self._overruled(answers, fallen), [])
        if fallen:
            logger.error("the coordinator has not found the group's offsets again; restoring: %s", _told(fallen))
        return CommittedOffsets(self._overruled(answers, fallen), [ours for ours, _ in fallen.values()])

    def _is_unsteady(self, answers: Mapping[Partition, TopicPartition]) -> bool:
        with self._lock:
            return any(where in self._said and where[0] in self._ids for where in answers)

    def ask_once(self, ask: Ask, partitions: Iterable[Partition]) -> list[TopicPartition]:
        """The same without waiting, for one thread that asks again by itself.

        Raises:
            KafkaNotReachable: the coordinator has lost offsets and may find them again. Also what `ask` raises.
        """
        answers, fallen = self._asked(ask, partitions, anew=self._doubted_since is None)
        now = self._clock()
        if not fallen:
            self._doubted_since = None
        elif self._doubted_since is None:
            self._doubted_since = now
        if self._doubted_since is not None and now - self._doubted_since < self._patience_ms:
            raise KafkaNotReachable(f"the coordinator of the group has lost offsets, asking again: {_told(fallen)}")
        return self._overruled(answers, fallen)

    def _asked(
        self, ask: Ask, partitions: Iterable[Partition], *, anew: bool
    ) -> tuple[dict[Partition, TopicPartition], Fallen]:
        """The answers, and those that went back; asked anew, it is looked whether their topics were made again."""
        answers = {(one.topic, one.partition): one for one in ask([TopicPartition(*where) for where in partitions])}
        fallen = _fallen(self._known_of(answers), answers)
        if anew and fallen and self._forget_made_again({topic for topic, _ in fallen}):
            fallen = _fallen(self._known_of(answers), answers)
        return answers, fallen

    def _overruled(self, answers: Mapping[Partition, TopicPartition], fallen: Fallen) -> list[TopicPartition]:
        """What holds: the answers, and in place of those that went back what is known."""
        held = {**answers, **{where: ours for where, (ours, _) in fallen.items()}}
        self._keep([one for one in held.values() if one.offset >= 0])
        return list(held.values())

    def _known_of(self, partitions: Iterable[Partition]) -> dict[Partition, TopicPartition]:
        with self._lock:
            return {where: self._known[where] for where in partitions if where in self._known}

    def _forget_made_again(self, topics: Collection[str]) -> set[str]:
        """Which of these topics were.

        Raises:
            ReconsumeError: nobody tells.
        """
        now = self._topic_ids(topics)
        made_again = {topic for topic in topics if now.get(topic) != self._ids.get(topic)}
        with self._lock:
            for topic in made_again:
                self._ids.pop(topic, None)
            for where in [one for one in self._known if one[0] in made_again]:
                del self._known[where]
                self._steady.discard(where)
                self._said.pop(where, None)
        return made_again


def _fallen(known: Mapping[Partition, TopicPartition], answers: Mapping[Partition, TopicPartition]) -> Fallen:
    return {
        where: (one, answers[where])
        for where, one in known.items()
        if answers[where].error is None and answers[where].offset < one.offset
    }


def _told(fallen: Fallen) -> str:
    return ", ".join(
        f"{topic}-{number} was committed at {ours.offset} and is said to be at {max(theirs.offset, 0)}"
        for (topic, number), (ours, theirs) in sorted(fallen.items())[:_EXAMPLES]
    ) + (f", and {len(fallen) - _EXAMPLES} more" if len(fallen) > _EXAMPLES else "")
