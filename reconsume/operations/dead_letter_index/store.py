"""The index of dead letters in SQLite: a cache that can be refilled from Kafka."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.wire.dead_letter_states import OPEN, SUPERSEDED, DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.properties import LARGEST
from reconsume.operations.dead_letter_index.letters import (
    Counted,
    IndexDamaged,
    IndexedLetter,
    IndexFull,
    LetterFilter,
    OpenLetters,
    Progress,
    letter_of_row,
    letter_row,
    state_row,
)
from reconsume.operations.dead_letter_index.queries import (
    ALL_GROUPS,
    BY_HOUR,
    LETTER,
    MESSAGE,
    MESSAGES,
    SCHEMA,
    STATE,
    SUPERSEDE,
    VERSION,
)

logger = SafeLogger(__name__)

_CACHE_KIB: Final = 65_536
"""Keys and ids are in random order, so their indexes are written all over the file."""
_HOUR_MS: Final = 3_600_000
_LABELS: Final = "application_id"
"""The field in the header of the file that holds the fingerprint of its labels."""


class DeadLetterStore:
    """An index file for one process, whose threads take turns; a context manager.

    A file of another version or with other labels, or a damaged one, is replaced. If another process has the file, or
    it cannot be written, the store is in memory.

    Args:
        file: the path; None keeps the store in memory.
        max_mib: the maximum size.
        labels: `CauseLabels.fingerprint` of the labels that the store gets.

    Attributes:
        is_damaged: whether the file has proved to be damaged; `rebuild` empties it.
    """

    def __init__(self, file: Path | None = None, max_mib: int = 1_024, labels: int = 0) -> None:
        self._max_mib, self._labels = max_mib, labels
        self._lock = threading.RLock()
        self._alone: int | None = None
        self._file = file
        try:
            if file is not None:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._alone = _lock_file(file)
            self._database, self._counts = self._connect()
        except (OSError, sqlite3.OperationalError) as error:
            self._file = None
            logger.warning("index of dead letters is in memory file=%s: %s", file, error)
            self._database, self._counts = self._connect()
        self.is_damaged = False
        self._counting = threading.Lock() if self._file is not None else self._lock

    @classmethod
    def reading(cls, file: Path) -> Self | None:
        """Open a file of another process for reading; None if no file of this version exists."""
        try:
            database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                database.close()
                return None
        except sqlite3.DatabaseError:
            return None
        store = cls()
        store._database.close()
        store._database = database
        return store

    def rebuild(self) -> None:
        """Begin again with an empty index, in place of a damaged or outdated one."""
        with self._counting, self._lock:
            self._counts.close()
            self._database.close()
            if self._file is not None:
                self._remove()
            self._database, self._counts = self._connect()
            self.is_damaged = False

    def _connect(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        """Open the file twice: counting all letters takes a second, and a search for one must not wait for that."""
        database = self._open()
        return database, database if self._file is None else sqlite3.connect(self._file, check_same_thread=False)

    def _remove(self) -> None:
        for part in ("", "-wal", "-shm"):
            Path(f"{self._file}{part}").unlink(missing_ok=True)

    @contextmanager
    def _locked(self, lock: threading.Lock | threading.RLock) -> Iterator[None]:
        """Use a connection alone; note damage."""
        with lock:
            try:
                yield
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                self.is_damaged = self._file is not None
                raise IndexDamaged(f"the index of dead letters is damaged ({error}); it is filled again") from error

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            return self._fresh(sqlite3.connect(":memory:", check_same_thread=False))
        try:
            database = sqlite3.connect(self._file, check_same_thread=False)
            [version], [labels] = (database.execute(f"PRAGMA {one}").fetchone() for one in ("user_version", _LABELS))
            if (version, labels) == (VERSION, self._labels):
                return self._tuned(database)
            database.close()
        except sqlite3.DatabaseError:
            pass
        self._remove()
        return self._fresh(sqlite3.connect(self._file, check_same_thread=False))

    def _tuned(self, database: sqlite3.Connection) -> sqlite3.Connection:
        [page_bytes] = database.execute("PRAGMA page_size").fetchone()
        database.execute(f"PRAGMA max_page_count = {self._max_mib * 1_048_576 // page_bytes}")
        # Changes that a crash loses are read from Kafka again.
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        database.execute("PRAGMA journal_mode = WAL")
        # A change of some hundred letters would need a temporary file, and a container may have no place for one.
        database.execute("PRAGMA temp_store = MEMORY")
        database.execute("PRAGMA synchronous = OFF")
        return database

    def _fresh(self, database: sqlite3.Connection) -> sqlite3.Connection:
        self._tuned(database).executescript(f"{SCHEMA} PRAGMA {_LABELS} = {self._labels}")
        return database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._counting:
            self._counts.close()
        with self._lock:
            self._database.close()
        if self._alone is not None:
            os.close(self._alone)

    def progress(self) -> dict[tuple[str, int], Progress]:
        """Return the progress of each partition."""
        rows = self._rows("SELECT topic, partition, topic_id, next FROM progress", ())
        return {(topic, partition): Progress(topic_id, following) for topic, partition, topic_id, following in rows}

    def add(
        self,
        letters: Iterable[IndexedLetter],
        states: Mapping[DeadLetterKey, DeadLetterState | None],
        read: Mapping[tuple[str, int], Progress],
    ) -> None:
        """Add new letters, states and progress atomically.

        Args:
            letters: new letters, without their states.
            states: states of known letters, None to reopen one; states of unknown letters are ignored.
            read: the progress by partition.

        Raises:
            IndexFull: the maximum size is reached; nothing was added.
        """
        added = list(letters)
        try:
            with self._locked(self._lock), self._database as database:
                self._add(database, added, states, read)
        except sqlite3.OperationalError as error:
            raise IndexFull(
                f"the index of dead letters cannot grow ({error}): raise console.index_mib ({self._max_mib}), or make "
                "room on its disk"
            ) from error

    @staticmethod
    def _add(
        database: sqlite3.Connection,
        added: Sequence[IndexedLetter],
        states: Mapping[DeadLetterKey, DeadLetterState | None],
        read: Mapping[tuple[str, int], Progress],
    ) -> None:
        rows = [letter_row(one) for one in added]
        insert = f"INSERT OR IGNORE INTO letters ({LETTER}) VALUES ({', '.join('?' * 16)})"  # noqa: S608
        database.executemany(insert, rows)
        database.executemany(
            f"UPDATE letters SET ({STATE}) = (?, ?, ?, ?, ?, ?) "  # noqa: S608
            "WHERE topic = ? AND partition = ? AND offset = ? AND stored_ms = ?",
            ((*state_row(one), *key) for key, one in states.items()),
        )
        # The newest dead letter of a message counts, however it was resent.
        messages = {(message_id, group, born_ms) for _, _, _, _, group, message_id, born_ms, *_ in rows}
        for key in (key for key, one in states.items() if one is None):
            messages.update(database.execute(MESSAGE, key[:3]))
        for message_id, group, _ in [one for one in messages if one[2] is None]:
            messages.update(database.execute(MESSAGES, (message_id, group)))
        database.executemany(SUPERSEDE, ((SUPERSEDED, *message, OPEN) for message in messages))
        database.executemany(
            "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)",
            ((*where, *progress) for where, progress in read.items()),
        )

    def forget(self, topic: str, partition: int, before: int | None) -> None:
        """Remove the letters of a partition before an offset; None removes all, and the progress."""
        where, values = "topic = ? AND partition = ?", (topic, partition)
        with self._locked(self._lock), self._database as database:
            if before is None:
                database.execute(f"DELETE FROM letters WHERE {where}", values)  # noqa: S608
                database.execute(f"DELETE FROM progress WHERE {where}", values)  # noqa: S608
            else:
                database.execute(f"DELETE FROM letters WHERE {where} AND offset < ?", (*values, before))  # noqa: S608

    def find(
        self, wanted: LetterFilter, *, limit: int = 50, before: DeadLetterKey | None = None
    ) -> list[IndexedLetter]:
        """Return dead letters, newest first, starting behind one."""
        where, values = wanted.where()
        if before is not None:
            where += " AND (stored_ms, topic, partition, offset) < (?, ?, ?, ?)"
            values += (before.stored_ms, before.topic, before.partition, before.offset)
        rows = self._rows(
            f"SELECT {LETTER}, {STATE} FROM {wanted.table} WHERE {where} "  # noqa: S608
            "ORDER BY stored_ms DESC, topic DESC, partition DESC, offset DESC LIMIT ?",
            (*values, limit),
        )
        return [letter_of_row(row) for row in rows]

    def count(self, wanted: LetterFilter) -> int:
        """Count matching letters."""
        where, values = wanted.where()
        return int(self._rows(f"SELECT count(*) FROM {wanted.table} WHERE {where}", values)[0][0])  # noqa: S608

    def has(self, group: str) -> bool:
        """Return whether the group has a dead letter."""
        return bool(self._rows('SELECT 1 FROM letters WHERE "group" = ? LIMIT 1', (group,)))

    def first(self, topic: str, partition: int) -> int | None:
        """Return the first offset of a partition's letters; None without a letter."""
        query = "SELECT min(offset) FROM letters WHERE topic = ? AND partition = ?"
        found: int | None = self._rows(query, (topic, partition))[0][0]
        return found

    def open_by_group(self, now_ms: float) -> dict[str, OpenLetters]:
        """Count the open dead letters of each group; groups without one are left out."""
        rows = self._counted(
            'SELECT "group", count(*), sum(stored_ms > ?), sum(stored_ms > ?), min(stored_ms) FROM letters '
            'WHERE state = ? GROUP BY "group"',
            (now_ms - _HOUR_MS, now_ms - 24 * _HOUR_MS, OPEN),
        )
        return {group: OpenLetters(*numbers) for group, *numbers in rows}

    def new_by_hour(self, now_ms: float, *, hours: int = 24, group: str | None = None) -> dict[str, list[int]]:
        """Count the dead letters of the last hours, by group and hour, the oldest hour first.

        Args:
            now_ms: a moment of the last hour, which has later letters too.
            hours: the number of hours.
            group: the group; None counts those of each group. Groups without a letter in that time are left out.
        """
        last = int(now_ms) // _HOUR_MS * _HOUR_MS
        starts = [last - ago * _HOUR_MS for ago in reversed(range(hours))]
        untils = [*starts[1:], LARGEST]
        groups, values = (ALL_GROUPS, []) if group is None else ("VALUES (?)", [group])
        query = BY_HOUR.format(groups=groups, hours=", ".join(["(?, ?)"] * hours))
        found: dict[str, list[int]] = {}
        for name, number in self._counted(query, [*values, *chain.from_iterable(zip(starts, untils, strict=True))]):
            found.setdefault(name, []).append(number)
        return {name: numbers for name, numbers in found.items() if any(numbers)}

    @property
    def changes(self) -> int:
        """A number that increases with each change."""
        with self._lock:
            return self._database.total_changes

    def count_by(self, column: str, wanted: LetterFilter) -> list[Counted]:
        """Count by `group`, `label`, `state`, `origin_topic` or `hour`, the largest count first; `hour` by time."""
        by = {
            "group": '"group"',
            "label": "label",
            "state": "state",
            "origin_topic": "coalesce(origin_topic, '')",
            "hour": "stored_ms / 3600000 * 3600000",
        }[column]
        order = "1 DESC" if column == "hour" else "2 DESC, 1"
        where, values = wanted.where()
        rows = self._rows(
            f"SELECT {by}, count(*), min(stored_ms), max(stored_ms) FROM {wanted.table} WHERE {where} "  # noqa: S608
            f"GROUP BY 1 ORDER BY {order} LIMIT 1000",
            values,
        )
        return [Counted(str(value), *numbers) for value, *numbers in rows]

    def _counted(self, query: str, values: Iterable[Any]) -> list[Any]:
        with _translated(), self._locked(self._counting):
            return self._counts.execute(query, tuple(values)).fetchall()

    def _rows(self, query: str, values: Iterable[Any]) -> list[Any]:
        with _translated(), self._locked(self._lock):
            return self._database.execute(query, tuple(values)).fetchall()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise IndexDamaged(f"the index of dead letters cannot be read ({error}); look at its disk") from error


def _lock_file(file: Path) -> int | None:
    """Lock the file; raises `OSError` if another process has locked it."""
    try:
        import fcntl  # noqa: PLC0415 - Windows has none, and SQLite locks files itself
    except ImportError:
        return None
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
