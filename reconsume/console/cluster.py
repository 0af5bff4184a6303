"""The pages' questions to Kafka. All of them block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.wire.dead_letter_states import OPEN
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.letters import Counted, LetterFilter, OpenLetters
from reconsume.operations.dead_letter_index.pages import indexed_page, is_index_cursor
from reconsume.operations.dead_letters import DeadLetterRecord, Filter, Page, read_one, read_page
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import ResendVerdict, plan_resend, resend
from reconsume.operations.resolve import Changed, reopen, resolve
from reconsume.operations.status import Status, collect_status

T = TypeVar("T")
_KEPT_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 30.0


class ConsoleCluster:
    """Kafka as the pages see it; every method may raise `ReconsumeError`."""

    def __init__(self, settings: Settings, index: DeadLetterIndex | None = None) -> None:
        self._settings = settings
        self._index = index
        self._status: Shared[Status] = Shared(lambda: collect_status(self._cluster))
        self._groups: Shared[Groups] = Shared(lambda: read_groups(self._cluster))
        # Who resends at the same time is fenced; those of one console wait for each other instead.
        self._resending = threading.Lock()

    @property
    def _cluster(self) -> Cluster:
        """A new one for each page: a client waits before it tells a second time that its login fails."""
        return Cluster(self._settings)

    def status(self) -> Status:
        """Return the waiting and dead records, at most 2 s old."""
        return self._status.get()

    def groups(self) -> Groups:
        """Settings of the groups, at most 2 s old."""
        return self._groups.get()

    def left_to_index(self) -> int | None:
        """How many records the index has still to read; None if it has not begun."""
        return None if self._index is None else self._index.left

    def open_letters(self, now_ms: float) -> dict[str, OpenLetters] | None:
        """The open dead letters of each group; None while the index is incomplete."""
        index = self._complete_index()
        return None if index is None else index.store.open_by_group(now_ms)

    def causes(self, group: str) -> list[Counted] | None:
        """The causes of a group's open dead letters, the most frequent first; None where the index has none of it."""
        index = self._index_of(group)
        return None if index is None else index.store.count_by("label", LetterFilter(group=group, state=OPEN))

    def page(self, group: str, wanted: Filter, *, before: str | None = None, limit: int = 50) -> Page:
        """Dead letters, newest first: from the index, or, where that has none of the group, from Kafka."""
        index = self._index_of(group)
        if index is None or (before is not None and not is_index_cursor(before)):
            return read_page(self._cluster, group, wanted, before=before, limit=limit)
        return indexed_page(index.store, group, self._settings.names.dead_letter(group), wanted, before, limit)

    def _index_of(self, group: str) -> DeadLetterIndex | None:
        index = self._complete_index()
        return index if index is not None and index.store.count(LetterFilter(group=group)) else None

    def _complete_index(self) -> DeadLetterIndex | None:
        return self._index if self._index is not None and self._index.is_complete else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let changes of dead letters run one after the other; one that waits for too long gives its thread back."""
        if not self._resending.acquire(timeout=_WAIT_SECONDS):
            raise KafkaNotReachable(
                f"another resend of this console has run for {_WAIT_SECONDS:.0f} s; nothing was changed, send the form "
                "again later"
            )
        try:
            yield
        finally:
            self._resending.release()

    def one(self, group: str, place: RecordAddress) -> DeadLetterRecord:
        """One of them."""
        return read_one(self._cluster, group, place)

    def plan(self, group: str, places: Collection[RecordAddress]) -> list[ResendVerdict]:
        """Return the plan of `resend`."""
        return plan_resend(self._cluster, group, places)

    def resend(self, group: str, places: Collection[RecordAddress], replay_id: str, by: str) -> list[ResendVerdict]:
        """Send them again, each once."""
        with self._alone():
            try:
                return resend(self._cluster, group, places, replay_id=replay_id, by=by)
            finally:
                self._status.forget()

    def resolve(self, group: str, places: Collection[RecordAddress], by: str, why: str) -> list[Changed]:
        """Resolve those that are open."""
        with self._alone():
            return resolve(self._cluster, group, places, by=by, why=why)

    def reopen(self, group: str, places: Collection[RecordAddress]) -> list[Changed]:
        """Open those that were resolved."""
        with self._alone():
            return reopen(self._cluster, group, places)


class Shared(Generic[T]):
    """An answer that several ask for at once is fetched once, and kept for a moment; so is an error.

    Args:
        fetch: asks.
        clock: gives seconds that only grow.
    """

    def __init__(self, fetch: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._answer: Callable[[], T] = fetch

    def get(self) -> T:
        """The answer; raises what the fetching raised."""
        with self._lock:
            if self._clock() >= self._until:
                self._answer = self._fetched()
                self._until = self._clock() + _KEPT_SECONDS
            return self._answer()

    def forget(self) -> None:
        """Ask again the next time."""
        with self._lock:
            self._until = float("-inf")

    def _fetched(self) -> Callable[[], T]:
        try:
            found = self._fetch()
        except ReconsumeError as error:
            kind, text = type(error), str(error)

            def refuse() -> T:
                raise kind(text)

            return refuse
        return lambda: found
