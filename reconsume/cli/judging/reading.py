"""Feeds the judge with all topics of a run, while they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple, Self

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.bridge.reading.topic_follower import TailReader
from reconsume.cli.judging.judge import PLACE_BITS, Place, Poison, TopicsJudge
from reconsume.cli.processing import PROCESSED_ORIGIN
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.wire.properties import ORIGIN_MESSAGE_ID, RECONSUME_TIME
from reconsume.delay_levels.wire.quarantine import QUARANTINE_REASON

_WAIT_SECONDS: Final = 0.2
_LOOK_EVERY_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 15.0
_PARTITIONS: Final = 64
"""Maximum of partitions of a first topic, so that a place encodes partition and topic."""

Begun = tuple[int, Poison | None]
"""How often a message fails, and its fault in a poisoned group."""


class Workload(NamedTuple):
    """The messages of a run.

    Attributes:
        origins: their first topics, at most four.
        processed: the topic that successful listeners write to.
        begun: describes a record that is the first of a message; None for others.
    """

    origins: Sequence[str]
    processed: str
    begun: Callable[[ReadRecord], Begun | None]


class TopicReader:
    """A thread that follows every topic and feeds the judge; a context manager.

    Args:
        cluster: the cluster, not through proxies.
        workload: the messages of the run.
        say: called when reading has stopped and restarts.
    """

    def __init__(self, cluster: Cluster, workload: Workload, say: Callable[[str], None]) -> None:
        self.judge = TopicsJudge()
        self.lock = threading.Lock()
        self.quiet_since = time.monotonic()
        self._cluster = cluster
        self._names = names = cluster.names
        self._written = names.prefix + "DELAY.", names.prefix + "RETRY.", names.prefix + "DLQ."
        self._workload = workload
        self._say = say
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._next: dict[Partition, int] = {}
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error that has ended the thread."""
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with suppress(KafkaNotReachable):
                    self._follow_until_stalled()
                if not self._stop.is_set():
                    self._say(f"the judge read nothing for {_STALLED_SECONDS:g} s and continues with a new consumer")
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self._failed = error

    def unread(self) -> list[Partition]:
        """Return the partitions with committed records that the judge has not seen.

        Raises:
            ReconsumeError: Kafka does not return their ends.
        """
        ends = self._cluster.admin.end_offsets(self._ours())
        with self.lock:
            return sorted(where for where, end in ends.items() if self._next.get(where, 0) < end)

    def _follow_until_stalled(self) -> None:
        """Follow with one consumer, and replace it after a stall: on a busy machine one stopped reading for good."""
        followed: set[Partition] = set()
        look_at, read_at = 0.0, time.monotonic()
        with closing(TailReader(self._cluster.base, "judge", "judge")) as reader:
            while not self._stop.is_set() and time.monotonic() < read_at + _STALLED_SECONDS:
                if time.monotonic() >= look_at:
                    new: set[Partition] = set()
                    with suppress(ReconsumeError):  # a broker is down, which is expected here
                        new = self._ours() - followed
                    reader.follow({where: self._next.get(where) for where in new})
                    followed |= new
                    look_at = time.monotonic() + _LOOK_EVERY_SECONDS
                if self._take(reader):
                    read_at = time.monotonic()

    def _ours(self) -> set[Partition]:
        ours = (*self._workload.origins, self._workload.processed, self._names.prefix)
        return {where for where in all_partitions(self._cluster.admin.topics()) if where[0].startswith(ours)}

    def _take(self, reader: TailReader) -> bool:
        """Feed the judge; return whether anything was read."""
        records = [ReadRecord.of(one) for one in reader.read(_WAIT_SECONDS) if one.error() is None]
        with self.lock:
            before = dict(self._next)
            for one in records:
                self._tell(one)
                self.quiet_since = time.monotonic()
            for where, offset in reader.reached.items():
                self._next[where] = max(self._next.get(where, 0), offset)
            return bool(records) or before != self._next

    def _tell(self, read: ReadRecord) -> None:
        topic, partition, offset = read[:3]
        if offset < self._next.get(read.where, 0):
            return  # read again after a broker returned; it is still one record
        self._next[read.where] = offset + 1
        headers = dict(read.headers)
        if (begun := self._workload.begun(read)) is not None:
            failures, poison = begun
            self.judge.produced(self._place(topic, partition, offset), failures, read.stored_ms, poison)
        elif topic == self._workload.processed:
            self.judge.processed(self._origin(headers[PROCESSED_ORIGIN]), read.stored_ms)
        elif topic.startswith((*self._written, self._names.quarantine)):
            self._tell_copy(topic, headers, read.stored_ms, f"{topic}-{partition}@{offset}")

    def _tell_copy(self, topic: str, headers: Mapping[str, bytes | None], stored_ms: int, at: str) -> None:
        delay, _, dead_letter = self._written
        place, times = self._origin(headers[ORIGIN_MESSAGE_ID]), int(headers[RECONSUME_TIME] or b"0")
        if topic == self._names.quarantine:
            reason = (headers[QUARANTINE_REASON] or b"").decode()
            self.judge.quarantined(place, times, stored_ms, f"{at}: {reason}")
        elif topic.startswith(delay):
            self.judge.sent_back(place, times, stored_ms, self._names.delay_ms(topic), at)
        else:
            self.judge.moved(place, times, stored_ms, at, dead=topic.startswith(dead_letter))

    def _origin(self, position: bytes | None) -> Place:
        topic, partition, offset = (position or b"").decode().rsplit("/", 2)
        return self._place(topic, int(partition), int(offset))

    def _place(self, topic: str, partition: int, offset: int) -> Place:
        return offset << PLACE_BITS | self._workload.origins.index(topic) * _PARTITIONS + partition
