"""The console's index on this machine, for commands that need a page of it."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.process.environment import cache_folder
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_index.letters import IndexDamaged
from reconsume.operations.dead_letter_index.pages import cursor_in_kafka, indexed_page, is_index_cursor
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import Page, read_page


def index_file(settings: Settings, folder: Path | None = None) -> Path:
    """Return the path of an installation's index; by default in the user's cache folder."""
    scope = hashlib.sha256(f"{settings.bootstrap_servers} {settings.topic_prefix}".encode()).hexdigest()[:16]
    return (folder or cache_folder()) / f"dead-letters-{scope}.db"


def current_page(
    cluster: Cluster, group: str, wanted: DeadLetterFilter, *, before: str | None = None, limit: int = 50
) -> tuple[Page, bool]:
    """Return a page of a group's dead letters, and whether it is from the index.

    The page is from the index if that has exactly the group's records in Kafka, else from Kafka. Texts and headers are
    searched in Kafka, because the index has no stack traces and only 4 KiB of headers.

    Raises:
        IllegalSetting: `before` is not the `older` of a page.
        TopicNotReady: the group has no dead-letter topic.
        KafkaNotReachable: no answer.
    """
    may_be_indexed = wanted.text is None and wanted.header is None and (not before or is_index_cursor(before))
    store = _index_of(cluster.settings) if may_be_indexed else None
    if store is not None:
        with store:
            try:
                if _is_current(cluster, store, group):
                    topic = cluster.names.dead_letter(group)
                    return indexed_page(store, group, topic, wanted, before, limit), True
            except (sqlite3.DatabaseError, IndexDamaged):
                pass  # recreated at this moment
    if before and is_index_cursor(before):
        before = cursor_in_kafka(cluster, group, before)
    return read_page(cluster, group, wanted, before=before, limit=limit), False


def _index_of(settings: Settings) -> DeadLetterStore | None:
    try:
        return DeadLetterStore.reading(index_file(settings))
    except IllegalSetting:  # a user without a home folder, as in some containers, has no index there
        return None


def _is_current(cluster: Cluster, store: DeadLetterStore, group: str) -> bool:
    admin, topics, known = cluster.admin, {cluster.names.dead_letter(group)}, store.progress()
    states = cluster.names.dead_letter_states
    counts = admin.partitions(topics | {states})
    if not topics <= counts.keys():
        return False
    if states in counts:
        counts[states] = 1  # partition 0 has all states, also after partitions were added
    ids, ends = admin.topic_ids(counts), admin.end_offsets(all_partitions(counts))
    has_all = all(
        (read := known.get(where)) is not None and read.topic_id == ids.get(where[0]) and read.next >= end
        for where, end in ends.items()
    )
    # Nobody removes deleted letters from the index while no console runs.
    starts = admin.end_offsets([where for where in ends if where[0] in topics], earliest=True) if has_all else {}
    return has_all and all((first := store.first(*where)) is None or first >= start for where, start in starts.items())
