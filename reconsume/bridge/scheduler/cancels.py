"""Which delayed messages were withdrawn: the CANCEL topic, read by every worker in a thread of its own."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from reconsume.bridge.admin import KafkaAdmin, Partition
from reconsume.bridge.clients import make_consumer
from reconsume.bridge.clock import Clock, now_ms
from reconsume.bridge.connections import Connections
from reconsume.bridge.kafka import consumer_settings, headers_of, translate
from reconsume.delay_levels.errors import KafkaNotReachable, MalformedProperty, ReconsumeError
from reconsume.delay_levels.properties import TIMER_DEL_UNIQKEY, TIMER_DELIVER_MS, count_property, text_property
from reconsume.delay_levels.timer import CANCELS_KEPT_MS, LONGEST_DELAY_MS

__all__ = ["HEARD_WITHIN_MS", "CancelledKeys", "CancelsFollower", "CancelsNotRead"]

logger = logging.getLogger(__name__)

HEARD_WITHIN_MS: Final = 1_000
"""A withdrawal that was acknowledged so long before the message is due is always obeyed."""

_POLL_SECONDS: Final = 0.05
_COMPARE_EVERY_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 2.0


class CancelsNotRead(KafkaNotReachable):
    """The worker has not read the CANCEL topic lately, so nobody knows whether this message was withdrawn."""


class CancelledKeys:
    """The withdrawn messages that may still wait; forgotten 7 days after they were due.

    Written by one thread, read by another.
    """

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        self._by_due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, uniq_key: str) -> bool:
        return uniq_key in self._keys

    def learn(self, message: Message, now: float) -> None:
        """Take note of a record of the CANCEL topic; one that is none is reported and ignored."""
        stored_ms, where = message.timestamp()[1], f"topic {message.topic()}, offset {message.offset()}"
        try:
            headers = headers_of(message)
            uniq_key = text_property(headers, TIMER_DEL_UNIQKEY)
            deliver_ms = count_property(headers, TIMER_DELIVER_MS)
        except MalformedProperty as malformed:
            logger.warning("%s is ignored: %s", where, malformed)
            return
        if not uniq_key:
            logger.warning("%s is ignored: no %s", where, TIMER_DEL_UNIQKEY)
            return
        # Without its due moment, or with one that cannot be, it is kept as long as any message may wait.
        longest = stored_ms + LONGEST_DELAY_MS
        self.add(uniq_key, longest if deliver_ms is None else min(deliver_ms, longest), now)

    def add(self, uniq_key: str, deliver_ms: int, now: float) -> None:
        """Take note of a withdrawal, and forget those whose time is long over."""
        if deliver_ms + CANCELS_KEPT_MS > now and uniq_key not in self._keys:
            self._keys[uniq_key] = deliver_ms
            heapq.heappush(self._by_due, (deliver_ms, uniq_key))
        while self._by_due and self._by_due[0][0] + CANCELS_KEPT_MS <= now:
            del self._keys[heapq.heappop(self._by_due)[1]]


class CancelsFollower:
    """Reads the CANCEL topic from its start, then follows it, and knows how fresh its knowledge is.

    Args:
        base: librdkafka's settings for any client.
        topic: the CANCEL topic.
        clock: the time in milliseconds.
    """

    def __init__(self, base: Mapping[str, Any], topic: str, clock: Clock = now_ms) -> None:
        self._base = base
        self._topic = topic
        self._clock = clock
        self._keys = CancelledKeys()
        self._complete_at = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconsume-cancels", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop following; waits for the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __contains__(self, uniq_key: str) -> bool:
        """Whether a message is known to be withdrawn; may be asked before everything was read."""
        return uniq_key in self._keys

    def require(self, due_ms: float) -> None:
        """Return if every withdrawal acknowledged `HEARD_WITHIN_MS` before this moment is known.

        Raises:
            CancelsNotRead: not yet; ask again in a moment.
        """
        if self._complete_at < due_ms - HEARD_WITHIN_MS:
            raise CancelsNotRead(f"topic {self._topic} was not read lately; delayed messages wait until it is")

    def _run(self) -> None:
        admin = KafkaAdmin(self._base, "reconsume-cancels")
        while not self._stop.is_set():
            try:
                self._follow(admin)
            except ReconsumeError as error:
                logger.warning("withdrawn messages cannot be read, delayed messages wait: %s", error)
            except Exception:
                # A follower that died would hold up delayed messages for ever and nobody would know why.
                logger.exception("topic %s cannot be read; trying again", self._topic)
            self._stop.wait(_AGAIN_SECONDS)

    def _follow(self, admin: KafkaAdmin) -> None:
        """Read on until stopped; compare with the topic's end four times a second."""
        partitions = [(self._topic, one) for one in range(admin.partitions([self._topic]).get(self._topic, 0))]
        reached: dict[Partition, int] = dict.fromkeys(partitions, -1)
        settings = {"group.id": self._topic, "enable.partition.eof": True, "fetch.wait.max.ms": 100}
        connections = Connections(consumer_settings(self._base, "reconsume-cancels") | settings)
        consumer = make_consumer(connections.settings)
        compare_at = 0.0
        try:
            consumer.assign([TopicPartition(*where, OFFSET_BEGINNING) for where in partitions])
            while not self._stop.is_set():
                connections.check()
                for message in (consumer.poll(_POLL_SECONDS), *consumer.consume(1_000, 0)):
                    if message is not None:
                        self._take(message, reached)
                if partitions and time.monotonic() >= compare_at:
                    compare_at = time.monotonic() + _COMPARE_EVERY_SECONDS
                    asked_at = self._clock()
                    ends = admin.end_offsets(partitions)
                    if all(reached[where] >= end for where, end in ends.items()):
                        self._complete_at = asked_at
        except KafkaException as error:
            raise translate(error, f"reading topic {self._topic}") from error
        finally:
            consumer.close()

    def _take(self, message: Message, reached: dict[Partition, int]) -> None:
        error, offset = message.error(), message.offset() or 0
        where = (message.topic() or "", message.partition() or 0)
        if error is None:
            self._keys.learn(message, self._clock())
            reached[where] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            reached[where] = offset
        else:
            raise translate(error, f"reading topic {self._topic}")
