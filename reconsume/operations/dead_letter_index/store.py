"""What is known of dead letters, in SQLite: a cache that Kafka can fill again at any time."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from reconsume.delay_levels.wire.dead_letter_states import OPEN, DeadLetterKey, DeadLetterState

__all__ = ["Counted", "DeadLetterStore", "IndexedLetter", "LetterFilter", "Progress"]

_VERSION: Final = 1
_SCHEMA: Final = f"""
CREATE TABLE letters (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, stored_ms INTEGER NOT NULL,
    "group" TEXT NOT NULL, message_id TEXT NOT NULL, origin_topic TEXT, key BLOB, label TEXT NOT NULL,
    exception_class TEXT, cause TEXT, attempt INTEGER, replay_times INTEGER NOT NULL, size INTEGER NOT NULL,
    headers TEXT NOT NULL, state TEXT NOT NULL DEFAULT '{OPEN}', at_ms INTEGER NOT NULL DEFAULT 0,
    by TEXT NOT NULL DEFAULT '', why TEXT NOT NULL DEFAULT '', job TEXT NOT NULL DEFAULT '',
    newer TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (topic, partition, offset)
) WITHOUT ROWID;
CREATE INDEX by_time ON letters (stored_ms);
CREATE INDEX by_group ON letters ("group", stored_ms, state, label);
CREATE INDEX by_message ON letters (message_id);
CREATE INDEX by_key ON letters (key);
CREATE TABLE progress (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL, next INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
"""
_LETTER: Final = (
    'topic, partition, offset, stored_ms, "group", message_id, origin_topic, key, label, exception_class, cause, '
    "attempt, replay_times, size, headers"
)
_STATE: Final = "state, at_ms, by, why, job, newer"
_MOST_OF_HEADERS: Final = 4_096
_MOST_OF_CAUSE: Final = 2_000
_MOST_OF_KEY: Final = 512


@dataclass(frozen=True, slots=True)
class IndexedLetter:
    """A dead letter without its value.

    Attributes:
        label: its cause, as `CauseLabels` gives it.
        size: bytes of key and value.
        headers: names and texts; what goes beyond 4 KiB is left out.
        state: what became of it; None while it is open.
    """

    key: DeadLetterKey
    group: str
    message_id: str
    origin_topic: str | None
    record_key: bytes | None
    label: str
    exception_class: str | None
    cause: str | None
    attempt: int | None
    replay_times: int
    size: int
    headers: Mapping[str, str]
    state: DeadLetterState | None = None


class Progress(NamedTuple):
    """How far a partition is read.

    Attributes:
        topic_id: of Kafka; a topic that was made again has another one.
        next: the first offset that was not read.
    """

    topic_id: str
    next: int


class Counted(NamedTuple):
    """So many dead letters of one kind, and when the first and the last of them were stored."""

    value: str
    count: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are wanted; None takes any.

    Attributes:
        text: is in the cause or the exception's class; the case of ASCII letters does not matter.
        header: a name and a text; the header has exactly that text.
        since_ms: stored then or later.
        until_ms: stored before that.
    """

    group: str | None = None
    state: str | None = None
    label: str | None = None
    text: str | None = None
    key: bytes | None = None
    message_id: str | None = None
    header: tuple[str, str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition and its values."""
        conditions = {
            '"group" = ?': self.group,
            "state = ?": self.state,
            "label = ?": self.label,
            "message_id = ?": self.message_id,
            "key = ?": self.key,
            "stored_ms >= ?": self.since_ms,
            "stored_ms < ?": self.until_ms,
        }
        if self.text is not None:
            like = "%" + self.text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
            conditions[r"(coalesce(exception_class, '') || ' ' || coalesce(cause, '')) LIKE ? ESCAPE '\'"] = like
        if self.header is not None:
            conditions["json_extract(headers, ?) = ?"] = self.header
        used = {one: value for one, value in conditions.items() if value is not None}
        values: list[Any] = []
        for one, value in used.items():
            values += (f"$.{json.dumps(value[0])}", value[1]) if one.startswith("json_extract") else (value,)
        return " AND ".join(used) or "1", values


class DeadLetterStore:
    """One file, used by one process; several threads take turns. Use it as a context.

    A file of another version, or one that is damaged, is made anew.

    Args:
        file: where it is; None keeps it in memory.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            return self._fresh(sqlite3.connect(":memory:", check_same_thread=False))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            database = sqlite3.connect(self._file, check_same_thread=False)
            if database.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
                return self._tuned(database)
            database.close()
        except sqlite3.DatabaseError:
            pass
        for part in ("", "-wal", "-shm"):
            Path(f"{self._file}{part}").unlink(missing_ok=True)
        return self._fresh(sqlite3.connect(self._file, check_same_thread=False))

    @staticmethod
    def _tuned(database: sqlite3.Connection) -> sqlite3.Connection:
        # What a crash takes is read from Kafka again.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        return database

    def _fresh(self, database: sqlite3.Connection) -> sqlite3.Connection:
        self._tuned(database).executescript(_SCHEMA)
        return database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._database.close()

    def progress(self) -> dict[tuple[str, int], Progress]:
        """How far each partition is read."""
        rows = self._rows("SELECT topic, partition, topic_id, next FROM progress", ())
        return {(topic, partition): Progress(topic_id, following) for topic, partition, topic_id, following in rows}

    def add(
        self,
        letters: Iterable[IndexedLetter],
        states: Mapping[DeadLetterKey, DeadLetterState | None],
        read: Mapping[tuple[str, int], Progress],
    ) -> None:
        """Add what was read, and how far, both or neither.

        Args:
            letters: new ones; what became of them comes with `states`.
            states: of letters that are known; None opens one again, and others are left out.
            read: how far, by partition.
        """
        with self._lock, self._database as database:
            database.executemany(
                f"INSERT OR IGNORE INTO letters ({_LETTER}) VALUES ({', '.join('?' * 15)})",  # noqa: S608
                map(_row, letters),
            )
            database.executemany(
                f"UPDATE letters SET ({_STATE}) = (?, ?, ?, ?, ?, ?) "  # noqa: S608
                "WHERE topic = ? AND partition = ? AND offset = ? AND stored_ms = ?",
                (
                    ((OPEN, 0, "", "", "", "") if one is None else astuple(one)) + tuple(key)
                    for key, one in states.items()
                ),
            )
            database.executemany(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)",
                ((*where, *progress) for where, progress in read.items()),
            )

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Remove the letters of a partition that stood before an offset: Kafka has deleted them."""
        with self._lock, self._database as database:
            database.execute(
                "DELETE FROM letters WHERE topic = ? AND partition = ? AND offset < ?", (topic, partition, before)
            )

    def clear(self) -> None:
        """Remove everything."""
        with self._lock, self._database as database:
            database.executescript("DELETE FROM letters; DELETE FROM progress;")

    def find(
        self, wanted: LetterFilter, *, limit: int = 50, before: DeadLetterKey | None = None
    ) -> list[IndexedLetter]:
        """Return dead letters, newest first, from behind one on."""
        where, values = wanted.where()
        if before is not None:
            where += " AND (stored_ms, topic, partition, offset) < (?, ?, ?, ?)"
            values += (before.stored_ms, before.topic, before.partition, before.offset)
        rows = self._rows(
            f"SELECT {_LETTER}, {_STATE} FROM letters WHERE {where} "  # noqa: S608
            "ORDER BY stored_ms DESC, topic DESC, partition DESC, offset DESC LIMIT ?",
            (*values, limit),
        )
        return [_letter(row) for row in rows]

    def count(self, wanted: LetterFilter) -> int:
        """Return how many there are."""
        where, values = wanted.where()
        return int(self._rows(f"SELECT count(*) FROM letters WHERE {where}", values)[0][0])  # noqa: S608

    def count_by(self, column: str, wanted: LetterFilter, *, limit: int = 1_000) -> list[Counted]:
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
            f"SELECT {by}, count(*), min(stored_ms), max(stored_ms) FROM letters WHERE {where} "  # noqa: S608
            f"GROUP BY 1 ORDER BY {order} LIMIT ?",
            (*values, limit),
        )
        return [Counted(str(value), *numbers) for value, *numbers in rows]

    def _rows(self, query: str, values: Iterable[Any]) -> list[Any]:
        with self._lock:
            return self._database.execute(query, tuple(values)).fetchall()


def _row(one: IndexedLetter) -> tuple[Any, ...]:
    return (
        *(*one.key, one.group, one.message_id, one.origin_topic, one.record_key and one.record_key[:_MOST_OF_KEY]),
        *(one.label, one.exception_class, one.cause and one.cause[:_MOST_OF_CAUSE], one.attempt, one.replay_times),
        *(one.size, _bounded(one.headers)),
    )


def _letter(row: Sequence[Any]) -> IndexedLetter:
    headers, state = json.loads(row[14]), DeadLetterState(*row[15:])
    return IndexedLetter(
        *(DeadLetterKey(*row[:4]), *row[4:14]), headers=headers, state=None if state.state == OPEN else state
    )


def _bounded(headers: Mapping[str, str]) -> str:
    kept: dict[str, str] = {}
    left = _MOST_OF_HEADERS
    for name, text in headers.items():
        left -= len(name) + len(text)
        if left >= 0:
            kept[name] = text
    return json.dumps(kept, ensure_ascii=False)
