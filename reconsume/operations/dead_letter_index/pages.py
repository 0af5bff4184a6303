"""Pages of dead letters from the index, in the form of `dead_letters.read_page`."""

from __future__ import annotations

import re
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.resend import DeadLetterInfo
from reconsume.operations.dead_letter_index.letters import IndexedLetter, LetterFilter
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import DeadLetterRecord, Page, find_partitions
from reconsume.operations.record_address import RecordAddress

_CURSOR: Final = re.compile(r"i([0-9]{1,18}):([0-9]{1,10}):([0-9]{1,18})", re.ASCII)


def is_index_cursor(before: str) -> bool:
    """Return whether a cursor is from a page of the index."""
    return before.startswith("i")


def indexed_page(
    store: DeadLetterStore, group: str, topic: str, wanted: DeadLetterFilter, before: str | None, limit: int
) -> Page:
    """Return a page of a group's dead letters, without values, stack traces and headers.

    Args:
        store: the index.
        group: the group.
        topic: its dead-letter topic.
        wanted: the filter; a text is searched in causes and classes, not in stack traces.
        before: `older` of the previous page.
        limit: the size of the page.

    Raises:
        IllegalSetting: `before` is not the `older` of a page.
    """
    key = None if before is None else _parse_cursor(topic, before)
    conditions = LetterFilter.of(group, wanted)
    found = store.find(conditions, limit=limit + 1, before=key)
    records = [_record(one) for one in found[:limit]]
    last = found[limit - 1].key if len(found) > limit else None
    older = None if last is None else f"i{last.stored_ms}:{last.partition}:{last.offset}"
    is_all = before is None and older is None
    matching = len(records) if is_all else store.count(conditions)
    return Page(records, store.count(LetterFilter(group=group)), older, matching)


def cursor_in_kafka(cluster: Cluster, group: str, before: str) -> str:
    """Return the cursor with which `read_page` continues behind a page of the index; both have the same order.

    Raises:
        IllegalSetting: `before` is not the `older` of a page of the index.
        TopicNotReady: the group has no dead-letter topic.
    """
    last, admin = _parse_cursor(cluster.names.dead_letter(group), before), cluster.admin
    partitions = find_partitions(cluster, group)
    # Of letters of the same millisecond, those of lower partitions are older.
    until, behind = (admin.offsets_at(partitions, last.stored_ms + more) for more in (0, 1))
    heads = {where[1]: (behind if where[1] < last.partition else until)[where] for where in partitions}
    return ",".join(f"{number}:{head}" for number, head in (heads | {last.partition: last.offset}).items())


def _parse_cursor(topic: str, before: str) -> DeadLetterKey:
    match = _CURSOR.fullmatch(before)
    if match is None:
        raise IllegalSetting(f"{before[:80]!r} is not the end of a page; leave it out to start with the newest")
    stored_ms, partition, offset = map(int, match.groups())
    return DeadLetterKey(topic, partition, offset, stored_ms)


def _record(one: IndexedLetter) -> DeadLetterRecord:
    letter = DeadLetterInfo(
        group=one.group,
        origin_message_id=one.message_id,
        origin_topic=one.origin_topic,
        attempt=one.attempt,
        cause=one.cause,
        exception_class=one.exception_class,
        stacktrace=None,
        born_ms=one.born_ms,
        first_failure_ms=None,
        replay_id=None,
        replay_times=one.replay_times,
    )
    place = RecordAddress(one.key.partition, one.key.offset)
    return DeadLetterRecord(one.key.topic, place, one.record_key, None, [], one.key.stored_ms, letter, one.state)
