"""Reads dead letters of a group, newest first."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.delay_levels.errors import IllegalSetting, RecordNotFound, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.properties import Headers, size_of, user_headers
from reconsume.delay_levels.wire.resend import DeadLetterInfo, short_id, short_key
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.dead_letter_states import StatesReader, state_name
from reconsume.operations.record_address import RecordAddress

_LOOKED_AT: Final = 20_000
"""Maximum of records read for one page."""
_PAGE_BYTES: Final = 32 * 1024 * 1024
"""Maximum of bytes on one page: a record may have a megabyte."""
_THESE_BYTES: Final = 256 * 1024 * 1024
"""Maximum of bytes for letters that are read by their places, in all."""
_GAP: Final = 1_000
"""Between named letters so many others are read, instead of looking for the next one."""
_WINDOWS: Final = (16, 512)
"""Offsets per backward read: the minimum, and the maximum for small records."""
_END_OF_PAGE: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,18})", re.ASCII)
_WINDOW_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A dead letter.

    Attributes:
        headers: all headers in order.
        stored_ms: when it became a dead letter.
        letter: the parsed headers.
        state: its state; None while it is open, or if it was not read.
    """

    topic: str
    place: RecordAddress
    key: bytes | None
    value: bytes | None
    headers: Headers
    stored_ms: int
    letter: DeadLetterInfo
    state: DeadLetterState | None = None

    @property
    def key_of_state(self) -> DeadLetterKey:
        """Its key in the topic of states."""
        return DeadLetterKey(self.topic, *self.place, self.stored_ms)

    @property
    def user_headers(self) -> dict[str, str]:
        """The user's headers as texts by name; the last one of duplicates."""
        last = dict(user_headers(self.headers))
        return {name: value.decode(errors="replace") for name, value in last.items() if value is not None}

    @property
    def at(self) -> tuple[int, int, int]:
        """A sort key by age: of two dead letters of a message, the newer one is greater."""
        return self.stored_ms, self.place.partition, self.place.offset

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return size_of(self.key, self.value, self.headers)


def matches(wanted: DeadLetterFilter, record: DeadLetterRecord) -> bool:
    """Return whether a filter selects a dead letter; its label needs the rules of an index, and is ignored here.

    A filter may be by what a list of the index shows: the short forms of long ids, topics and keys.
    """
    letter, key, origin = record.letter, record.key, record.letter.origin_topic
    told = "\n".join(filter(None, (letter.cause, letter.exception_class, letter.stacktrace)))
    return (
        (wanted.text is None or wanted.text.casefold() in told.casefold())
        and (wanted.key is None or (key is not None and short_key(key) == short_key(wanted.key.encode())))
        and (wanted.message_id is None or short_id(letter.origin_message_id) == short_id(wanted.message_id))
        and (wanted.origin_topic is None or (origin is not None and short_id(origin) == short_id(wanted.origin_topic)))
        and (wanted.header is None or _has_header(record, wanted.header))
        and (wanted.since_ms is None or record.stored_ms >= wanted.since_ms)
        and (wanted.until_ms is None or record.stored_ms < wanted.until_ms)
        and (wanted.state is None or state_name(record.state) == wanted.state)
    )


def _has_header(record: DeadLetterRecord, header: str) -> bool:
    name, _, text = header.partition("=")
    return record.user_headers.get(name) == text


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a group's dead letters.

    Attributes:
        records: newest first.
        looked_at: the number of records read for it; a filter may have dropped most.
        older: the cursor of the next page; None after the first dead letter.
        found: the number of matching letters in all; None if unknown.
    """

    records: list[DeadLetterRecord]
    looked_at: int
    older: str | None
    found: int | None = None


def read_page(
    cluster: Cluster,
    group: str,
    wanted: DeadLetterFilter | None = None,
    *,
    before: str | None = None,
    limit: int = 50,
    takes: Callable[[DeadLetterRecord], bool] = lambda _one: True,
    states: StatesReader | None = None,
) -> Page:
    """Return the newest dead letters, or those older than a page.

    At most 20,000 records are read for one page, fewer if they are large; `older` continues behind them.

    Args:
        cluster: the installation.
        group: the group.
        wanted: the filter; None selects all.
        before: `older` of the previous page.
        limit: the size of the page.
        takes: a further filter.
        states: a reader that later pages share, so that they do not read the states again.

    Raises:
        IllegalSetting: `before` is not the `older` of a page, or the group's name is illegal.
        TopicNotReady: the group has no dead-letter topic.
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    wanted = wanted or DeadLetterFilter()
    topic, partitions = cluster.names.dead_letter(group), find_partitions(cluster, group)
    spans = find_spans(cluster.admin, partitions, wanted)
    heads = {where: end for where, (_, end) in spans.items()}
    for number, offset in _parse_cursor(before).items():
        if (where := (topic, number)) in heads:
            heads[where] = min(heads[where], offset)
    records: list[DeadLetterRecord] = []
    states = states or StatesReader(cluster, wanted=lambda letter: letter.topic == topic)
    looked_at = size = 0
    with RangeReader(cluster.base, f"{cluster.names.prefix}dlq") as reader:
        backwards = [_backwards(reader, group, where, spans[where][0], heads[where]) for where in partitions]
        for one in heapq.merge(*backwards, key=lambda letter: letter.at, reverse=True):
            looked_at += 1
            heads[topic, one.place.partition] = one.place.offset
            record = replace(one, state=states.of(one.key_of_state))
            if matches(wanted, record) and takes(record):
                records.append(record)
                size += record.size
            if len(records) >= limit or looked_at >= _LOOKED_AT or size >= _PAGE_BYTES:
                return Page(records, looked_at, _cursor(spans, heads))
    return Page(records, looked_at, None)


def read_one(cluster: Cluster, group: str, place: RecordAddress) -> DeadLetterRecord:
    """Return the dead letter at this place.

    Raises:
        RecordNotFound: no dead letter is at this place.
        TopicNotReady: the group has no dead-letter topic.
    """
    [one] = read_these(cluster, group, [place])
    key = one.key_of_state
    return replace(one, state=StatesReader(cluster, wanted=key.__eq__).of(key))


def find_partitions(cluster: Cluster, group: str) -> list[Partition]:
    """Return the partitions of the group's dead-letter topic.

    Raises:
        TopicNotReady: the group has no dead-letter topic.
    """
    topic = cluster.names.dead_letter(group)
    if not (found := all_partitions(cluster.admin.partitions([topic]))):
        raise TopicNotReady(
            f"group {group!r} has no dead-letter topic ({topic}): it has no dead letters yet, or the name is "
            "misspelled; `reconsume status` shows the groups"
        )
    return found


def find_spans(
    admin: KafkaAdmin, partitions: Collection[Partition], wanted: DeadLetterFilter
) -> dict[Partition, tuple[int, int]]:
    """Return the offsets of the wanted time; the brokers' timestamps increase with the offset."""
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions)
    if wanted.since_ms is not None:
        starts |= admin.offsets_at(partitions, wanted.since_ms)
    if wanted.until_ms is not None:
        ends |= admin.offsets_at(partitions, wanted.until_ms)
    return {where: (starts[where], max(starts[where], ends[where])) for where in partitions}


def _backwards(reader: RangeReader, group: str, where: Partition, start: int, end: int) -> Iterator[DeadLetterRecord]:
    """Yield records newest first, in larger windows if records are small, because a window is in memory."""
    fewest, most = _WINDOWS
    width = fewest
    while end > start:
        begin = max(start, end - width)
        window = [record_of(group, one) for one in reader.records({where: (begin, end)})]
        width = min(most, 2 * width) if sum(one.size for one in window) < _WINDOW_BYTES else fewest
        end = begin
        while window:
            yield window.pop()


def read_these(cluster: Cluster, group: str, places: Collection[RecordAddress]) -> list[DeadLetterRecord]:
    """Return the letters at these places, in order.

    Raises:
        IllegalSetting: together they are too large for the memory.
        RecordNotFound: one does not exist.
        TopicNotReady: the group has no dead-letter topic.
    """
    admin, partitions = cluster.admin, find_partitions(cluster, group)
    wanted = set(places)
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions)
    runs = [
        {where: (max(first, starts[where]), min(behind, ends[where]))}
        for where in partitions
        for first, behind in _runs([one.offset for one in wanted if one.partition == where[1]])
    ]
    found: dict[RecordAddress, DeadLetterRecord] = {}
    size = 0
    with RangeReader(cluster.base, f"{cluster.names.prefix}dlq") as reader:
        for read in chain.from_iterable(map(reader.records, runs)):
            place = RecordAddress(read.partition, read.offset)
            if place in wanted:
                found[place] = record_of(group, read)
                size += found[place].size
            if size > _THESE_BYTES:
                raise IllegalSetting(
                    f"the named dead letters of group {group!r} have more than {_THESE_BYTES >> 20} MiB; name "
                    "fewer, or use `reconsume dlq resolve --all`"
                )
    require_letters(group, wanted - found.keys())
    return [found[place] for place in sorted(found)]


def _runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return spans with all offsets, and without long gaps between them."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and offset - found[-1][1] < _GAP:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


def require_letters(group: str, missing: Collection[RecordAddress]) -> None:
    """Raise if requested records are not dead letters.

    Raises:
        RecordNotFound: the message names the first of them.
    """
    if missing:
        others = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise RecordNotFound(
            f"{min(missing)} of group {group!r} is not a dead letter{others}; `reconsume dlq list` shows which exist"
        )


def record_of(group: str, read: ReadRecord) -> DeadLetterRecord:
    """Read a record of the group's dead-letter topic."""
    letter = DeadLetterInfo.of(group, Position(*read[:3]), read.headers)
    place = RecordAddress(read.partition, read.offset)
    return DeadLetterRecord(read.topic, place, read.key, read.value, read.headers, read.stored_ms, letter)


def _cursor(spans: Mapping[Partition, tuple[int, int]], heads: Mapping[Partition, int]) -> str | None:
    """Return the cursor of the next page; None if nothing follows."""
    if all(heads[where] <= start for where, (start, _) in spans.items()):
        return None
    return ",".join(f"{partition}:{heads[topic, partition]}" for topic, partition in sorted(spans))


def _parse_cursor(text: str | None) -> dict[int, int]:
    found = {}
    for part in (text or "").split(",") if text else ():
        if (match := _END_OF_PAGE.fullmatch(part)) is None:
            raise IllegalSetting(
                f"{(text or '')[:80]!r} is not the end of a page; leave it out to start with the newest"
            )
        found[int(match[1])] = int(match[2])
    return found
