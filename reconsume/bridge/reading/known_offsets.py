"""Offsets that this process knows to be committed, compared with a coordinator that may have lost them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import Answer
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

logger = SafeLogger(__name__)

_PATIENCE_MS: Final = 30_000.0
"""How long answers must stay the same: while they change, the coordinator is still loading. A rebalance gives its
members ten times as long."""
STEADY_MS: Final = 1_000.0
"""A broker loads some ten thousand commits in this time."""
_AGAIN_SECONDS: Final = 0.5
_EXAMPLES: Final = 5
_NOTHING: Final = Commit(-1, "")

Ask = Callable[[Collection[Partition]], Mapping[Partition, Answer]]
"""Requests committed offsets; partitions without one are missing in the result."""
TopicIds = Callable[[Collection[str]], Mapping[str, str]]
"""Returns the id of each existing topic."""
Fallen = dict[Partition, tuple[Commit, Commit]]
"""The known offset, and the lower answer."""


class CommittedOffsets(NamedTuple):
    """Committed offsets of a group.

    Attributes:
        committed: the offset of each requested partition.
        restored: offsets above Kafka's answer; the caller should commit them again.
    """

    committed: Mapping[Partition, Answer]
    restored: Mapping[Partition, Commit]


class KnownOffsets:
    """Detects wrong answers: a group's offsets never decrease while one of its members lives.

    Brokers give wrong answers: a broker that becomes a group's coordinator twice within a moment, as at each start of
    the only broker, may confuse the first loading of offsets with the second (`CompleteLoad` of Kafka's
    `CoordinatorRuntime` ignores the epoch; seen with 4.1.1). Until the second loading ends, and for good if the group
    writes meanwhile, the group has no offsets, or old ones. Continuing from those would deliver everything again.

    A process that has just started knows nothing. It believes the first answer for a partition when it gets the same
    answer twice, a second apart, because offsets increase during the loading. This does not help before the group's
    first offset is loaded.

    Guarantees: an answer below the known offset is requested again, and finally overruled.
    Tests: tests/integration/bridge/test_lost_offsets.py, tests/unit/bridge/reading/test_known_offsets.py.
    Remove when: `CompleteLoad` looks at the epoch in all supported versions of Kafka; 4.0 to 4.3.1 do not.

    A recreated topic has another id; offsets of the old topic are forgotten.

    Args:
        topic_ids: returns ids, which distinguish a recreated topic.
        patience_ms: how long the coordinator may take to find the offsets again.
        steady_ms: how long a first answer must stay the same.
        clock: monotonic milliseconds.

    Safe to use from several threads.
    """

    def __init__(
        self,
        topic_ids: TopicIds,
        *,
        patience_ms: float = _PATIENCE_MS,
        steady_ms: float = STEADY_MS,
        clock: Clock = monotonic_ms,
    ) -> None:
        self.topic_ids = topic_ids
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
        """Track these topics by their ids; nothing is remembered about others."""
        if new := set(topics) - self._ids.keys():
            try:
                self._ids.update(self.topic_ids(new))
            except ReconsumeError as error:
                logger.debug("offsets are not tracked: %s", error)

    def note(self, committed: Mapping[Partition, Commit]) -> None:
        """Note offsets that a member has committed; negative ones are ignored."""
        found = _known(committed)
        self._keep(found)
        with self._lock:
            self._steady.update(found)

    def read(self, answers: Mapping[Partition, Answer]) -> None:
        """Note answers of the coordinator; negative offsets are ignored."""
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
        """Return the credible committed offsets of these partitions.

        This asks again until the coordinator has found its offsets; in the end the known offsets count. Errors of `ask`
        pass through. After a stop nothing is restored: the coordinator may be about to find its offsets.
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
        """Ask once without waiting, for a thread that repeats the call itself.

        Raises:
            KafkaNotReachable: the coordinator has lost offsets and may find them again. Errors of `ask` pass through.
        """
        since = self._doubted_since
        answers, fallen = self._asked(ask, partitions, anew=since is None)
        now = self._clock()
        self._doubted_since = since = (now if since is None else since) if fallen else None
        if since is not None and now - since < self._patience_ms:
            raise KafkaNotReachable(f"the coordinator of the group has lost offsets, asking again: {_told(fallen)}")
        return self._overruled(answers, fallen)

    def _asked(
        self, ask: Ask, partitions: Collection[Partition], *, anew: bool
    ) -> tuple[Mapping[Partition, Answer], Fallen]:
        """Return the answers, and those that decreased, without recreated topics."""
        answers = dict.fromkeys(partitions, _NOTHING) | dict(ask(partitions))
        fallen = self._fallen(answers)
        if anew and fallen and self._forget_made_again({topic for topic, _ in fallen}):
            fallen = self._fallen(answers)
        return answers, fallen

    def _overruled(self, answers: Mapping[Partition, Answer], fallen: Fallen) -> Mapping[Partition, Answer]:
        """Return the answers, with known offsets in place of decreased ones."""
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
        """Forget those of these topics that were recreated, and return them.

        Raises:
            ReconsumeError: no broker answers.
        """
        now = self.topic_ids(topics)
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
