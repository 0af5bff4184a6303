"""Offsets that this process knows to be committed, held against a coordinator that has lost them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import Answer
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

logger = logging.getLogger(__name__)

_PATIENCE_MS: Final = 30_000.0
"""Of answers that do not change: as long as they do the coordinator is still loading. A rebalance gives its members ten
times as long."""
STEADY_MS: Final = 1_000.0
"""A broker loads some ten thousand commits in that time."""
_AGAIN_SECONDS: Final = 0.5
_EXAMPLES: Final = 5
_NOTHING: Final = Commit(-1, "")

Ask = Callable[[Collection[Partition]], Mapping[Partition, Answer]]
"""Asks for some partitions; of those that are left out nothing is committed."""
TopicIds = Callable[[Collection[str]], Mapping[str, str]]
"""The id of each topic that exists."""
Fallen = dict[Partition, tuple[Commit, Commit]]
"""What is known, and the lower answer."""


class CommittedOffsets(NamedTuple):
    """Committed offsets of a group.

    Attributes:
        committed: of each partition that was asked for.
        restored: those of which Kafka says less; someone should commit them again.
    """

    committed: Mapping[Partition, Answer]
    restored: Mapping[Partition, Commit]


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
        self._known: dict[Partition, Commit] = {}
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

    def note(self, committed: Mapping[Partition, Commit]) -> None:
        """Take note of what a member has committed itself; negative offsets say nothing."""
        found = _known(committed)
        self._keep(found)
        with self._lock:
            self._steady.update(found)

    def read(self, answers: Mapping[Partition, Answer]) -> None:
        """Take note of what the coordinator says; negative offsets say nothing."""
        found, now = _known(answers), self._clock()
        self._keep(found)
        with self._lock:
            for where, one in found.items():
                if where in self._steady:
                    continue
                said, since = self._said.get(where, (-1, now))
                self._said[where] = said, since = one.offset, since if said == one.offset else now
                if now - since >= self._steady_ms:
                    self._steady.add(where)
                    del self._said[where]

    def _keep(self, found: Mapping[Partition, Commit]) -> None:
        self.meet(topic for topic, _ in found)
        with self._lock:
            for where, one in found.items():
                before = self._known.get(where)
                if where[0] in self._ids and (before is None or one.offset >= before.offset):
                    self._known[where] = one

    def ask(self, ask: Ask, partitions: Collection[Partition], stop: threading.Event) -> CommittedOffsets:
        """Return the committed offsets of these partitions, as far as they are credible.

        Asks again until the coordinator has found its offsets; in the end what is known here holds. Raises what `ask`
        raises. After a stop nothing is to be restored: the coordinator may be about to find it.
        """
        before = None
        begun = changed = self._clock()
        while True:
            answers, fallen = self._asked(ask, partitions, anew=before is None)
            said = {where: one.offset if isinstance(one, Commit) else None for where, one in answers.items()}
            now = self._clock()
            self.read({where: one for where, one in answers.items() if where not in fallen})
            changed = changed if before in (None, said) else now
            waited = now - (changed if fallen else begun)
            if not (fallen or self._is_unsteady(answers)) or waited >= self._patience_ms or stop.is_set():
                break
            if fallen and before is None:
                logger.warning("coordinator of the group lost offsets, asking again: %s", _told(fallen))
            before = said
            stop.wait(_AGAIN_SECONDS)
        if stop.is_set():
            return CommittedOffsets(self._overruled(answers, fallen), {})
        if fallen:
            logger.error("coordinator has lost offsets of the group, restoring: %s", _told(fallen))
        restored = {where: ours for where, (ours, _) in fallen.items()}
        return CommittedOffsets(self._overruled(answers, fallen), restored)

    def _is_unsteady(self, answers: Iterable[Partition]) -> bool:
        with self._lock:
            return any(where in self._said and where[0] in self._ids for where in answers)

    def ask_once(self, ask: Ask, partitions: Collection[Partition]) -> Mapping[Partition, Answer]:
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
        self, ask: Ask, partitions: Collection[Partition], *, anew: bool
    ) -> tuple[Mapping[Partition, Answer], Fallen]:
        """The answers, and those that went back; asked anew, it is looked whether their topics were made again."""
        answers = dict.fromkeys(partitions, _NOTHING) | dict(ask(partitions))
        fallen = self._fallen(answers)
        if anew and fallen and self._forget_made_again({topic for topic, _ in fallen}):
            fallen = self._fallen(answers)
        return answers, fallen

    def _overruled(self, answers: Mapping[Partition, Answer], fallen: Fallen) -> Mapping[Partition, Answer]:
        """Return the answers; known offsets replace those that went back."""
        held = {**answers, **{where: ours for where, (ours, _) in fallen.items()}}
        self._keep(_known(held))
        return held

    def _fallen(self, answers: Mapping[Partition, Answer]) -> Fallen:
        with self._lock:
            known = {where: self._known[where] for where in answers if where in self._known}
        return {
            where: (ours, theirs)
            for where, ours in known.items()
            if isinstance(theirs := answers[where], Commit) and theirs.offset < ours.offset
        }

    def _forget_made_again(self, topics: Collection[str]) -> set[str]:
        """Which of these topics were.

        Raises:
            ReconsumeError: no broker answers.
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


def _known(answers: Mapping[Partition, Answer]) -> dict[Partition, Commit]:
    return {where: one for where, one in answers.items() if isinstance(one, Commit) and one.offset >= 0}


def _told(fallen: Fallen) -> str:
    return ", ".join(
        f"{topic}-{number} was committed at {ours.offset} and is said to be at {max(theirs.offset, 0)}"
        for (topic, number), (ours, theirs) in sorted(fallen.items())[:_EXAMPLES]
    ) + (f", and {len(fallen) - _EXAMPLES} more" if len(fallen) > _EXAMPLES else "")
