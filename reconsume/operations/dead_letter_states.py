"""Reads and writes states of dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.wire.dead_letter_states import (
    OPEN,
    DeadLetterKey,
    DeadLetterState,
    decode_state,
    encode_state,
    parse_key,
)
from reconsume.delay_levels.wire.names import encode_name

logger = SafeLogger(__name__)

_ONLY_PARTITION: Final = 0
_SET_BACK_MS: Final = 3_600_000


class StatesReader:
    """Reads states of dead letters backwards, only as far as the oldest requested letter needs.

    A state is written after its dead letter, so records older than the letter do not concern it. The reader begins an
    hour earlier: the brokers' clock may have been set back between the two.

    Args:
        cluster: the installation.
        to_the_last: wait for the end of open transactions.
        wanted: the letters that may be requested; states of others are not kept in memory.
        alive: called repeatedly during the read.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        to_the_last: bool = False,
        wanted: Callable[[DeadLetterKey], bool] = lambda _key: True,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._wanted, self._alive = wanted, alive
        self._end = 0
        self._cluster = cluster
        self._to_the_last = to_the_last
        self._where = cluster.names.dead_letter_states, _ONLY_PARTITION
        self._states: dict[DeadLetterKey, DeadLetterState | None] = {}
        self._start: int | None = None
        self._since_ms = 0
        self._step_ms = _SET_BACK_MS

    def of(self, letter: DeadLetterKey) -> DeadLetterState | None:
        """Return the state of a dead letter; None while it is open.

        Raises:
            KafkaNotReachable: no answer.
            KafkaRefused: the right to read the topic is missing.
            TopicNotReady: the topic is missing, and the reader waits for open transactions.
        """
        if self._start is None or max(0, letter.stored_ms - _SET_BACK_MS) < self._since_ms:
            self._read_since(letter.stored_ms)
        return self._states.get(letter)

    def _read_since(self, stored_ms: int) -> None:
        admin, where = self._cluster.admin, self._where
        if self._to_the_last:  # who writes must not take a missing topic for letters that are all open
            self._cluster.require(where[0])
        elif not admin.partitions([where[0]]):
            # An installation of an earlier version; `topics apply` creates it.
            self._start, self._since_ms = 0, 0
            return
        since_ms = max(0, stored_ms - self._step_ms)
        start = admin.offsets_at([where], since_ms, uncommitted=True)[where]
        end = self._start
        if end is None:
            end = admin.end_offsets([where], uncommitted=self._to_the_last)[where]
            self._end = end
        older = self._read(min(start, end), end)
        self._states = older | self._states
        self._start, self._since_ms, self._step_ms = min(start, end), since_ms, 2 * self._step_ms

    def catch_up(self) -> None:
        """Read new records."""
        if self._start is None:
            return
        end = self._cluster.admin.end_offsets([self._where], uncommitted=self._to_the_last).get(self._where, 0)
        self._states |= self._read(self._end, end)
        self._end = max(self._end, end)

    def _read(self, start: int, end: int) -> dict[DeadLetterKey, DeadLetterState | None]:
        where, found = self._where, dict[DeadLetterKey, DeadLetterState | None]()
        with RangeReader(self._cluster.base, f"{self._cluster.names.prefix}dlq") as reader:
            for message in reader.records({where: (start, end)}):
                self._alive()
                try:
                    key, value = parse_key(message.key), message.value
                    if self._wanted(key):
                        found[key] = None if value is None else decode_state(value)
                except MalformedProperty as error:
                    logger.warning("record skipped topic=%s offset=%s: %s", where[0], message.offset, error)
        return found


def state_name(state: DeadLetterState | None) -> str:
    """Return the name of a state, `OPEN` for None."""
    return OPEN if state is None else state.state


def resend_id(cluster: Cluster, group: str) -> str:
    """Return the transactional id of all writers that change states of a group's dead letters."""
    return f"{cluster.names.prefix}dlq-resend.{encode_name(group)}"


def check_reason(why: str) -> None:
    """Raise `IllegalSetting` if the reason of a resolution is blank."""
    if not why.strip():
        raise IllegalSetting("resolving needs a reason; give one with --why")


def state_record(topic: str, key: DeadLetterKey, state: DeadLetterState | None) -> NewRecord:
    """Return the record of a state; None opens a dead letter."""
    value = None if state is None else encode_state(state).encode()
    return NewRecord(topic, value, str(key).encode(), _ONLY_PARTITION)


def states_topic(cluster: Cluster) -> str:
    """Return the topic.

    Raises:
        TopicNotReady: it does not exist.
    """
    return cluster.require(cluster.names.dead_letter_states)
