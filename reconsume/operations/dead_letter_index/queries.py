"""The tables of the index in SQLite, and its longer queries."""

from __future__ import annotations

from typing import Final

from reconsume.delay_levels.wire.dead_letter_states import OPEN

VERSION: Final = 7
SCHEMA: Final = f"""
CREATE TABLE letters (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, stored_ms INTEGER NOT NULL,
    "group" TEXT NOT NULL, message_id TEXT NOT NULL, born_ms INTEGER, origin_topic TEXT, key BLOB,
    label TEXT NOT NULL, exception_class TEXT, cause TEXT, attempt INTEGER, replay_times INTEGER NOT NULL,
    size INTEGER NOT NULL, headers TEXT NOT NULL, state TEXT NOT NULL DEFAULT '{OPEN}',
    at_ms INTEGER NOT NULL DEFAULT 0, by TEXT NOT NULL DEFAULT '', why TEXT NOT NULL DEFAULT '',
    job TEXT NOT NULL DEFAULT '', newer TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (topic, partition, offset)
);
CREATE INDEX by_time ON letters (stored_ms, topic, partition, offset);
CREATE INDEX by_group ON letters ("group", stored_ms);
CREATE INDEX by_label ON letters ("group", state, label, stored_ms);
CREATE INDEX by_message ON letters (message_id, ifnull(born_ms, -1));
CREATE INDEX by_key ON letters (key);
CREATE TABLE progress (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL, next INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
LETTER: Final = (
    'topic, partition, offset, stored_ms, "group", message_id, born_ms, origin_topic, key, label, exception_class, '
    "cause, attempt, replay_times, size, headers"
)
STATE: Final = "state, at_ms, by, why, job, newer"
MESSAGE: Final = 'SELECT message_id, "group", born_ms FROM letters WHERE topic = ? AND partition = ? AND offset = ?'
MESSAGES: Final = (
    'SELECT DISTINCT message_id, "group", born_ms FROM letters INDEXED BY by_message '
    'WHERE message_id = ? AND "group" = ?'
)
_SAME: Final = 'message_id = ?2 AND "group" = ?3 AND ifnull(born_ms, -1) IN (?4, -1)'
SUPERSEDE: Final = (
    f"UPDATE letters INDEXED BY by_message SET state = ?1 WHERE {_SAME} AND state = ?5 AND "  # noqa: S608
    "(stored_ms, partition, offset) < (SELECT stored_ms, partition, offset FROM letters INDEXED BY by_message "
    f"WHERE {_SAME} ORDER BY stored_ms DESC, partition DESC, offset DESC LIMIT 1)"
)
"""As `is_same_message` with one `born_ms`: unknown ones are of each message. The newest is looked for once, because a
program may give the same id to all its messages."""
ALL_GROUPS: Final = """
    SELECT min("group") FROM letters
    UNION ALL
    SELECT (SELECT min("group") FROM letters WHERE "group" > name) FROM every WHERE name IS NOT NULL
"""
BY_HOUR: Final = """
WITH RECURSIVE every(name) AS ({groups}), hour(start, until) AS (VALUES {hours})
SELECT name, (
    SELECT count(*) FROM letters INDEXED BY by_group WHERE "group" = name AND stored_ms >= start AND stored_ms < until
) FROM every CROSS JOIN hour WHERE name IS NOT NULL ORDER BY name, start
"""
"""Each hour is a range of an index. GROUP BY would sort all letters of a group, which takes ten times as long."""
