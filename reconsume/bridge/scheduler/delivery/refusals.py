"""Refusals by brokers, remembered by target and cause, so that they cost other targets nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from reconsume.bridge.process.polled_records import PolledRecord, offset_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.refused_targets import LimitSearch, RefusedTarget, Where
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, TransactionalWriter
from reconsume.bridge.scheduler.queues.partition_queues import Waits
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.record_size import SizeSearch, record_batch_bytes
from reconsume.bridge.scheduler.targets.routing import UNWRITTEN, Delivery, Router
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, RecordTooLarge

logger = SafeLogger(__name__)

_FRESH_MS: Final = 5_000.0
"""A refusal holds for this time. Then one record, or one request, finds out whether it still does."""
_KEPT_MS: Final = 600_000.0
"""A target is suspected for this time after its last refusal."""
_AGAIN_MS: Final = 500.0
_PATIENT_TRIALS: Final = 3
_DECIDED: Final = UNWRITTEN | {"quarantined"}


class Refusals:
    """Decides which records of a batch are written, quarantined, or wait for a verdict.

    Guarantees:
        1. A record goes to the quarantine for its size only if the brokers refused it alone, or refused a smaller one
           within the last 5 s and the producer does not compress.
        2. A record goes to the quarantine for a missing right only if the brokers denied the right within the last 5 s,
           and for a missing key only if its topic was compacted within the last 5 s.
        3. A record that waits for a verdict holds up only its partition. The limit of a target is found with one
           aborted batch and a trial for each halving of the number of sizes, one in each turn of the worker. After a
           refusal for another reason, records of the target are tried one in each turn, until 5 s pass without one.
    The topic's `max.message.bytes` only decides which record is tried first. With compression each record is tried
    alone.
    Tests: tests/unit/bridge/scheduler/delivery/test_refusals.py, tests/integration/scheduler/test_refusals.py.

    Args:
        router: makes records for the quarantine.
        trials: writes single records; None if that is impossible, and then the worker halves its batches.
        unwritable: returns the topics that this client may not write to, and why.
        settings_of: returns the settings of a topic; empty if the brokers do not say.
        compresses: whether a larger record may take less space than a smaller one.
    """

    def __init__(
        self,
        router: Router,
        trials: TransactionalWriter | None = None,
        unwritable: Callable[[Collection[str]], Mapping[str, str]] = lambda _topics: {},
        settings_of: Callable[[str], Mapping[str, str]] = lambda _topic: {},
        *,
        compresses: bool = False,
    ) -> None:
        self._router = router
        self._trials = trials
        self._unwritable = unwritable
        self._settings_of = settings_of
        self._compresses = compresses
        self._alone: dict[Where, str] = {}
        self._accepted: set[Where] = set()
        self._targets: dict[str, RefusedTarget] = {}
        self._compacted: dict[str, RefusedTarget] = {}
        self._searches: dict[str, LimitSearch] = {}
        self._asked: set[str] = set()
        self._sets: dict[str, int] = {}
        self._untried: dict[str, float] = {}
        self._not_before = 0.0

    def __bool__(self) -> bool:
        return bool(self._alone or self._accepted or self._targets or self._compacted or self._searches)

    def overrule(self, runs: list[DueRun], batch: list[Delivery], now_ms: float) -> tuple[list[DueRun], list[Delivery]]:
        """Return the part of the batch that can be written now; refused records go to the quarantine."""
        kept_runs, kept, deliveries = list[DueRun](), list[Delivery](), iter(batch)
        for run in runs:
            judged = [
                self._judge((run.queue.topic, run.queue.partition), record, next(deliveries), now_ms)
                for record in run.records
            ]
            ready = judged.index(None) if None in judged else len(judged)
            if ready:
                kept_runs.append(run.first(ready))
                kept += [one for one in judged[:ready] if one is not None]
        return kept_runs, kept

    def _judge(self, source: tuple[str, int], record: Waits, one: Delivery, now_ms: float) -> Delivery | None:
        """Return the delivery of the record, None while the verdict is open."""
        message = record[1]
        where = *source, offset_of(message)
        if (reason := self._alone.get(where)) is not None:
            return self._router.quarantine(message, reason)
        if one.outcome in _DECIDED:
            return one
        if where in self._accepted:
            return one
        if one.topic in self._searches:
            return None
        known = (self._compacted.get(one.topic) if one.key is None else None) or self._targets.get(one.topic)
        return one if known is None else self._compare(where, message, one, known, now_ms)

    def _compare(
        self, where: Where, message: PolledRecord, one: Delivery, known: RefusedTarget, now_ms: float
    ) -> Delivery | None:
        """Judge a record by its target's earlier refusals."""
        if known.is_by_record:
            if now_ms < known.until_ms:
                return self._doubt(where, one, record_batch_bytes(one))
            self._forget_target(one.topic)
            return one
        size = record_batch_bytes(one) if known.size else 0
        if size < known.size:
            return one
        if now_ms < known.until_ms and not (size and self._compresses):
            return self._router.quarantine(message, known.reason)
        return self._doubt(where, one, size)

    def _doubt(self, where: Where, one: Delivery, size: int) -> Delivery | None:
        """Start to find out what a target accepts now."""
        if not size:
            self._asked.add(one.topic)
        elif self._trials is None:
            self._forget_target(one.topic)
            return one
        else:
            self._searches[one.topic] = LimitSearch(SizeSearch([size]), {size: (where, one)}, size, is_again=True)
        return None

    def learn(self, runs: Sequence[DueRun], batch: Sequence[Delivery], aborted: BatchAborted, now_ms: float) -> bool:
        """Start to find the refused records of an aborted batch; False if only halving helps."""
        if isinstance(aborted.error, RecordTooLarge):
            return self._learn_size(runs, batch, aborted.topic, now_ms)
        return self._learn_rights({one.topic for one in batch if one.outcome not in _DECIDED}, now_ms)

    def _learn_rights(self, topics: Collection[str], now_ms: float) -> bool:
        """Learn which of these topics this client may not write to; False if it knows of none."""
        try:
            found = self._unwritable(topics)
        except ReconsumeError as error:
            logger.warning("rights to write topics unknown: %s", error)
            return False
        for topic, reason in found.items():
            self._remember(topic, RefusedTarget(reason, 0, now_ms + _FRESH_MS))
        return bool(found)

    def _learn_size(self, runs: Sequence[DueRun], batch: Sequence[Delivery], topic: str, now_ms: float) -> bool:
        """Search among the target's records; records for the quarantine have no alternative."""
        concerned = [
            (record_batch_bytes(one), where, one)
            for where, one in zip(wheres_of(runs), batch, strict=True)
            if one.topic == topic and one.outcome not in _DECIDED
        ]
        if not concerned or self._trials is None or topic in self._searches:
            return False
        if now_ms < self._untried.pop(topic, 0.0):
            self._untried[topic] = now_ms + _FRESH_MS
            return False
        largest, total = max(size for size, _, _ in concerned), sum(size for size, _, _ in concerned)
        if self._sets.get(topic, largest + 1) <= largest:
            return False
        limit = self._settings_of(topic).get("max.message.bytes")
        hint = None if limit is None else int(limit)
        sizes = SizeSearch((size for size, _, _ in concerned), hint)
        records = {size: (where, one) for size, where, one in concerned}
        self._searches[topic] = LimitSearch(sizes, records, total, hint=hint)
        return True

    def refused_alone(self, where: Where, one: Delivery, error: ReconsumeError, now_ms: float) -> None:
        """Note that a record was refused as the only one of its batch."""
        self._alone[where] = str(error)
        if isinstance(error, RecordTooLarge):
            self._remember(one.topic, _too_large(error, record_batch_bytes(one), now_ms))
            self._untried.pop(one.topic, None)
            return
        if self._learn_rights({one.topic}, now_ms):
            return
        if one.key is None:
            self._learn_policy(one.topic, now_ms)
            if (known := self._compacted.get(one.topic)) is not None:
                self._alone[where] = known.reason
                return
        if self._trials is not None:
            self._remember(one.topic, RefusedTarget(str(error), 0, now_ms + _FRESH_MS, is_by_record=True))

    def _learn_policy(self, topic: str, now_ms: float) -> None:
        """Learn whether a topic is compacted: then its brokers refuse every record without a key."""
        policy = self._settings_of(topic).get("cleanup.policy", "")
        if "compact" not in policy.split(","):
            self._compacted.pop(topic, None)
            return
        reason = (
            f"topic {topic} is compacted (cleanup.policy={policy}) and accepts no record without a key; send the "
            "message again with one"
        )
        if topic not in self._compacted:
            logger.warning("%s", reason)
        self._compacted[topic] = RefusedTarget(reason, 0, now_ms + _FRESH_MS)

    def is_blamed(self, where: Where) -> bool:
        """Return whether the record was refused alone before."""
        return where in self._alone

    def pardon(self, where: Where) -> None:
        """Try the record unchanged next time."""
        self._alone.pop(where, None)

    def forget(self, wheres: Iterable[Where]) -> None:
        """Forget delivered and committed records."""
        for where in wheres:
            self._alone.pop(where, None)
            self._accepted.discard(where)

    def revoke(self, partitions: Collection[tuple[str, int]]) -> None:
        """Forget these partitions, which went to another worker, and searches among their records."""
        self.forget([where for where in self._accepted.union(self._alone) if where[:2] in partitions])
        for topic, search in list(self._searches.items()):
            if any(where[:2] in partitions for where, _ in search.records.values()):
                del self._searches[topic]

    def step(self, now_ms: float) -> None:
        """Take one step of the search: one request, or one trial."""
        if self._asked:
            self._ask(now_ms)
        elif self._searches and now_ms >= self._not_before:
            topic, search = next(iter(self._searches.items()))
            try:
                self._try(topic, search, now_ms)
            except ReconsumeError as error:
                logger.warning("no verdict on a record for topic %s: %s", topic, error)
                self._not_before = now_ms + _AGAIN_MS
                search.unanswered += 1
                if search.unanswered >= _PATIENT_TRIALS or not isinstance(error, KafkaNotReachable):
                    self._leave_to_halving(topic, now_ms)
        for topic in [topic for topic, known in self._targets.items() if known.until_ms + _KEPT_MS < now_ms]:
            self._forget_target(topic)
        for topic in [topic for topic, known in self._compacted.items() if known.until_ms + _KEPT_MS < now_ms]:
            del self._compacted[topic]

    def _leave_to_halving(self, topic: str, now_ms: float) -> None:
        """Give up trials; the worker writes the records and halves its batches until one is refused alone."""
        del self._searches[topic]
        self._untried[topic] = now_ms + _FRESH_MS
        self._forget_target(topic)

    def _ask(self, now_ms: float) -> None:
        """Write to a target with an unknown state, and let the brokers decide."""
        found: Mapping[str, str] = {}
        try:
            found = self._unwritable(self._asked)
        except ReconsumeError as error:
            logger.warning("rights to write topics unknown: %s", error)
        for topic in self._asked:
            if topic in found:
                self._remember(topic, RefusedTarget(found[topic], 0, now_ms + _FRESH_MS))
            else:
                self._forget_target(topic)
            if topic in self._compacted:
                self._learn_policy(topic, now_ms)
        self._asked.clear()

    def _try(self, topic: str, search: LimitSearch, now_ms: float) -> None:
        """Try the next size; raise `KafkaNotReachable` if there was no verdict."""
        assert self._trials is not None
        size = search.sizes.next_size
        if size is not None:
            where, one = search.records[size]
            error = self._trials.try_alone(one)
            search.sizes.answer(refused=error is not None)
            if error is not None:
                search.errors[size] = error
                self._alone[where] = str(error)
        if search.sizes.next_size is None:
            del self._searches[topic]
            self._conclude(topic, search, now_ms)

    def _conclude(self, topic: str, search: LimitSearch, now_ms: float) -> None:
        assert self._trials is not None
        size, largest = search.sizes.smallest_refused, max(search.records)
        known = self._targets.get(topic)
        if known is not None and known.is_by_record and not isinstance(search.errors.get(largest), RecordTooLarge):
            if size is None:
                self._accepted.update(where for where, _ in search.records.values())
            else:
                known.until_ms = now_ms + _FRESH_MS
        elif size is not None:
            error = search.errors[size]
            if isinstance(error, RecordTooLarge):
                self._remember(topic, _too_large(error, size, now_ms))
                self._limit_sets(topic, min(search.hint or size - 1, self._sets.get(topic, size)))
        elif search.is_again:
            if self._compresses and topic in self._targets:
                self._targets[topic].size = largest + 1  # smaller ones count as accepted until one is refused
            else:
                self._forget_target(topic)
        else:
            # Each is accepted alone, so together they are too large.
            before = self._sets.get(topic, search.total)
            half = max(largest, min(before, search.total) // 2)
            self._limit_sets(topic, search.hint if search.hint is not None and search.hint < before else half)
            self._targets.setdefault(topic, RefusedTarget("", search.total, now_ms))

    def _limit_sets(self, topic: str, max_bytes: int) -> None:
        assert self._trials is not None
        self._sets[topic] = max_bytes
        self._trials.limit_sets(topic, max_bytes)

    def _remember(self, topic: str, refused: RefusedTarget) -> None:
        if topic not in self._targets:
            logger.warning("topic %s refuses records: %s", topic, refused.reason)
        self._targets[topic] = refused

    def _forget_target(self, topic: str) -> None:
        self._targets.pop(topic, None)
        if self._sets.pop(topic, None) is not None and self._trials is not None:
            self._trials.limit_sets(topic, None)


def _too_large(error: ReconsumeError, size: int, now_ms: float) -> RefusedTarget:
    reason = f"at least as large as a record of {size} bytes that was refused moments before: {error}"
    return RefusedTarget(reason, size, now_ms + _FRESH_MS)


def wheres_of(runs: Iterable[DueRun]) -> list[Where]:
    """Return the position of each record of a batch, in the batch's order."""
    return [(run.queue.topic, run.queue.partition, offset_of(message)) for run in runs for _, message in run.records]
