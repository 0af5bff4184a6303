"""An in-memory Kafka with a manual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from types import NoneType
from typing import Any, Final, Self

from reconsume.bridge.groups.groups import (
    Groups,
    SubscriptionGroupConfig,
    SystemConfig,
    check_names,
    parse_group_config,
)
from reconsume.bridge.groups.groups_store import write_allowed_topics, write_group
from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.clients import IN_MEMORY, forget, serve
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.topics.topics import TopicMaker, install
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_range, check_types, checked_headers, of_type, texts
from reconsume.delay_levels.progress.done_ahead import decode_done
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.wire.allowed_topics import decode_allowed, encode_allowed
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames
from reconsume.delay_levels.wire.properties import (
    DELAY,
    REAL_TOPIC,
    RECONSUME_TIME,
    TAGS,
    TIMER_DELIVER_MS,
    Header,
    count_property,
    text_property,
    user_headers,
)
from reconsume.testing.clock import FakeClock, moment
from reconsume.testing.cluster import InMemoryCluster, StoredRecord, Unwritten
from reconsume.testing.producer import InMemoryProducer, as_bytes, as_headers
from reconsume.testing.scheduler import SteppedScheduler
from reconsume.testing.steps import Call, InMemoryClients

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NUMBERS: Final = count(1)
_MOST_PARTITIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Record:
    """A stored record.

    Attributes:
        headers: all headers, those of reconsume too.
        timestamp: the time of writing, or of creation, as the topic is configured.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: datetime

    def __getitem__(self, name: str) -> str | None:
        """Return a header as text, such as `record["RECONSUME_TIME"]`; None if it is missing."""
        return text_property(self.headers, name)

    @property
    def user_headers(self) -> list[Header]:
        """Return the headers as they were produced."""
        return user_headers(self.headers)

    @property
    def reconsume_times(self) -> int:
        """Return how often the message was sent back."""
        return count_property(self.headers, RECONSUME_TIME) or 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A record that waits on a delay topic.

    Attributes:
        target: `%RETRY%<group>`, `%DLQ%<group>`, or the topic of a delayed message.
        level: of the level table; 0 for a dead letter, None for a delayed message without a level.
        due: when it leaves its current lane.
        record: the stored record.
    """

    target: str
    level: int | None
    due: datetime
    record: Record


class InMemoryKafka:
    """An in-memory Kafka with reconsume's topics, a scheduler, and a clock that only the test advances.

    Consumers and producers of `reconsume` use it if you pass them its `bootstrap_servers`. Make a new one for each test
    and use it in one thread, as a context manager.

    Args:
        message_delay_level: the level table of the installation.
        allowed_real_topics: the schedulers' setting: regular expressions of the topics that delayed messages may go to.
        topic_prefix: the prefix of the installation's topics.
        start: the first time of the clock, with a time zone.

    Attributes:
        bootstrap_servers: an address that works only in this process, until `close`.
    """

    def __init__(
        self,
        *,
        message_delay_level: str = DEFAULT_LEVEL_TABLE,
        allowed_real_topics: Sequence[str] = (),
        topic_prefix: str = "reconsume.",
        start: datetime = _START,
    ) -> None:
        check_types(locals(), message_delay_level=str, topic_prefix=str, start=datetime)
        if start.tzinfo is None:
            raise IllegalSetting(f"start {start} has no time zone; use one, as in datetime(2026, 1, 1, tzinfo=UTC)")
        # Checked first, because the models below would wrap these errors in one of pydantic.
        DelayLevels.parse(message_delay_level)
        TopicNames(topic_prefix)
        allowed = decode_allowed(encode_allowed(texts(allowed_real_topics, "allowed_real_topics")).encode())
        self.bootstrap_servers = f"kafka-{next(_NUMBERS)}{IN_MEMORY}"
        self._settings = Settings(
            bootstrap_servers=self.bootstrap_servers, topic_prefix=topic_prefix, allowed_real_topics=list(allowed)
        )
        self._names = self._settings.names
        self._clock = FakeClock(start)
        self._cluster = InMemoryCluster(self._clock, lambda topic: not topic.startswith(topic_prefix))
        self._clients = InMemoryClients(self._cluster, self._clock)
        self._steps = self._clients.steps
        self._groups_read = (0, Groups())
        self._is_closed = False
        serve(self.bootstrap_servers, self._clients)
        self._handle = Cluster(self._settings)
        install(self._handle, SystemConfig(message_delay_level=message_delay_level))
        write_allowed_topics(self._handle)
        self._scheduler = SteppedScheduler(self._handle, self._cluster, self._groups)
        self.settle()

    def _groups(self) -> Groups:
        read, groups = self._groups_read
        records = self._cluster.records(self._names.groups)
        for _, one in records[read:]:
            groups = groups.with_record(one.key, one.value)
        self._groups_read = (len(records), groups)
        return groups

    @property
    def now(self) -> datetime:
        """Return the time of the clock, in UTC."""
        return self._clock.now

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic. Without this, the first subscription or write creates it with one partition.

        Raises:
            IllegalSetting: the topic exists, or an argument is invalid.
        """
        self._names.kafka_topic(topic)
        check_range("partitions", partitions, 1, _MOST_PARTITIONS)
        if not self._cluster.create(topic, partitions):
            raise IllegalSetting(
                f"topic {topic!r} exists already; create it before a consumer subscribes or a record is produced"
            )

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
        tags: str | None = None,
        partition: int = ANY_PARTITION,
    ) -> Record:
        """Write a record to a topic; consumers read it in the next `settle` or `advance`.

        Raises:
            IllegalSetting: the partition or reconsume's topic does not exist, or an argument is invalid.
        """
        self._require_open()
        self._names.kafka_topic(topic)
        text = (str, bytes, NoneType)
        check_types(locals(), value=text, key=text, tags=(str, NoneType))
        check_range("partition", partition, ANY_PARTITION, _MOST_PARTITIONS)
        pairs = checked_headers(headers.items() if isinstance(headers, Mapping) else headers)
        given = as_headers(pairs) + (() if tags is None else ((TAGS, tags.encode()),))
        record = Unwritten(topic, partition, as_bytes(key), as_bytes(value), given)
        if (error := self._cluster.check(record)) is not None:
            raise IllegalSetting(f"producing to {topic!r}: {error.str()}")
        number, stored = self._cluster.append(record)
        return _record((topic, number), stored)

    def producer(self) -> InMemoryProducer:
        """Return a `confluent_kafka.Producer` for code under test that needs one."""
        return self._clients.producer({})

    def set_group(self, group: str, **fields: Any) -> None:
        """Register a group, or change these fields of it: `set_group("departures", retryMaxTimes=3)`.

        Raises:
            IllegalSetting: an unknown or invalid field.
        """
        self._require_open()
        self._names.retry(group)
        known = self._groups().by_name.get(group)
        before = {} if known is None else known.fields()
        check_names(f"group {group!r}", fields, SubscriptionGroupConfig.names())
        write_group(self._handle, parse_group_config(group, before | fields))
        self._make_lanes()
        self.settle()

    def _make_lanes(self) -> None:
        """Create the delay topics of the groups' own policies, as `reconsume topics apply` does."""
        maker = TopicMaker(self._handle.admin, self._names, self._settings.topics, self._groups)
        groups = self._groups()
        for one in groups.by_name.values():
            for delay_ms in one.policy(groups.table).distinct_delays_ms():
                maker.make(maker.delay_topic(delay_ms))

    def settle(self) -> list[Call]:
        """Process everything that is possible now; return the calls of listeners that this caused."""
        self._require_open()
        before = len(self._steps.calls)
        self._steps.until_quiet(self._scheduler.step)
        return self._steps.calls[before:]

    def advance(self, by: timedelta) -> list[Call]:
        """Advance the clock from one due moment to the next; return the calls of listeners.

        Raises:
            IllegalSetting: `by` is negative, and the clock never goes back; or it goes beyond the year 9999.
        """
        of_type(by, "by", timedelta)
        if by < timedelta(0):
            raise IllegalSetting(f"advance: {by} is negative; use a positive timedelta")
        end_ms = self._clock.now_ms + by / timedelta(milliseconds=1)
        try:
            moment(end_ms)
        except OverflowError:
            raise IllegalSetting(f"advance: {by} goes beyond the year 9999; use a shorter timedelta") from None
        before = len(self._steps.calls)
        self.settle()
        while (due := self._next_due_ms()) is not None and due <= end_ms:
            self._clock.now_ms = max(self._clock.now_ms, due)
            self.settle()
        self._clock.now_ms = end_ms
        self.settle()
        return self._steps.calls[before:]

    def _next_due_ms(self) -> float | None:
        dues = (self._scheduler.next_due_ms(), self._steps.next_due_ms())
        return min((due for due in dues if due is not None), default=None)

    def calls(self, group: str | None = None) -> list[Call]:
        """Return all calls of listeners so far, for one group or for all, in order."""
        check_types(locals(), group=(str, NoneType))
        return [call for call in self._steps.calls if group in (None, call.group)]

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic in the order of writing; empty if the topic does not exist."""
        return [_record(where, one) for where, one in self._cluster.records(of_type(topic, "topic", str))]

    def retries(self, group: str) -> list[Record]:
        """Return all records of the group's retry topic."""
        return self.records(self._names.retry(group))

    def dead_letters(self, group: str) -> list[Record]:
        """Return the records of the group's dead-letter topic."""
        return self.records(self._names.dead_letter(group))

    def quarantined(self) -> list[Record]:
        """Return the undeliverable records; `record["QUARANTINE_REASON"]` gives the reason."""
        return self.records(self._names.quarantine)

    def waiting(self, group: str | None = None) -> list[Waiting]:
        """Return the records that wait on delay topics, for one group or for all, the earliest due first."""
        check_types(locals(), group=(str, NoneType))
        found = [
            self._waiting(where, one)
            for topic in list(self._cluster.topics)
            if self._names.is_scheduled(topic) and topic != self._names.send_back
            for where, one in self._cluster.records(topic)
            if self._is_open(where, one.offset)
        ]
        targets = None if group is None else (RETRY_PREFIX + group, DLQ_PREFIX + group)
        return sorted((one for one in found if targets is None or one.target in targets), key=lambda one: one.due)

    def _is_open(self, where: Partition, offset: int) -> bool:
        at = self._cluster.group(self._scheduler.group).offsets.get(where, Commit(0, ""))
        return offset >= at.offset and offset not in decode_done(at.offset, at.metadata)

    def _waiting(self, where: Partition, one: StoredRecord) -> Waiting:
        due_ms = one.timestamp[1] + self._names.delay_ms(where[0])
        if where[0] == self._names.delay(0):
            due_ms = max(due_ms, count_property(one.headers, TIMER_DELIVER_MS) or 0)
        return Waiting(
            text_property(one.headers, REAL_TOPIC) or "",
            count_property(one.headers, DELAY),
            moment(due_ms),
            _record(where, one),
        )

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """Return the committed offset of a group, None without one."""
        check_types(locals(), group=str, topic=str, partition=int)
        at = self._cluster.group(group).offsets.get((topic, partition))
        return None if at is None else at.offset

    def close(self) -> None:
        """Shut down the running consumers; records can still be read, and the address is invalid."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._steps.close()
        finally:
            self._scheduler.close()
            forget(self.bootstrap_servers)

    def _require_open(self) -> None:
        if self._is_closed:
            raise IllegalSetting("this InMemoryKafka is closed; make a new one for each test")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _record(where: Partition, one: StoredRecord) -> Record:
    return Record(*where, one.offset, one.key, one.value, one.headers, moment(one.timestamp[1]))
