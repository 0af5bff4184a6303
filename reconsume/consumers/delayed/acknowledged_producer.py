"""A producer whose calls return when the brokers have acknowledged the record."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from reconsume.bridge.kafka.lasting_producer import LastingProducer, ProducedRecord
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.delay_levels.errors import IllegalSetting, KafkaNotReachable, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.send_back_copy import Position

logger = SafeLogger(__name__)

_SERVE_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 15.0
"""librdkafka reports within the timeout of the producer; this is for a machine under load."""


class _Sent(ProducedRecord):
    """A message in flight; `stored` is its place after the acknowledgement."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.stored: Future[Position] = Future()

    @property
    def doing(self) -> str:
        """Return the beginning of error messages."""
        return f"sending to {self.topic}"

    def written(self, partition: int, offset: int, stored_ms: int) -> None:
        """Note the acknowledgement."""
        del stored_ms
        self.stored.set_result(Position(self.topic, partition, offset))

    def refused(self, error: ReconsumeError) -> None:
        """Note that the message is not stored, or that the outcome is unknown."""
        self.stored.set_exception(error)


class AcknowledgedProducer:
    """Safe to use from several threads, but not from callbacks of its settings: its own thread calls them.

    A forked child has neither the thread nor the connections, so it cannot use the producer of its parent.

    Guarantees: no exception ends the thread that serves acknowledgements; without it, every `store` would time out.
    Test: tests/unit/consumers/delayed/test_producer_callbacks.py.

    Args:
        settings: librdkafka settings.
        patience_seconds: librdkafka's own timeout of a record.

    Attributes:
        stopping: set by `stop`.
    """

    def __init__(self, settings: Mapping[str, Any], patience_seconds: float) -> None:
        self._producer = LastingProducer(settings)
        self._patience_seconds = patience_seconds
        self._closing = threading.Lock()
        self._is_closed = False
        self._process = os.getpid()
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="reconsume-delay-producer", daemon=True)
        self._thread.start()

    def store(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, str | bytes | None]],
        *,
        or_any: bool = False,
    ) -> Position:
        """Produce a record; return its place.

        When partitions are added, look-ups may know them some seconds before the producer does.

        Args:
            topic: the topic.
            partition: the partition, or `ANY_PARTITION`.
            key: the key.
            value: the value.
            headers: the headers.
            or_any: go to any partition if the producer does not know this one yet; else wait until it does.

        Raises:
            IllegalSetting: as `require_open`.
            TopicNotReady: the topic or the partition does not exist.
            KafkaNotReachable: no acknowledgement in time; the record may have been stored.
            KafkaRefused: the cluster refused.
        """
        sent, end = _Sent(topic), time.monotonic() + self._patience_seconds
        while True:
            self.require_open()
            try:
                self._producer.write(sent, topic, value, key, partition, headers)
            except BufferError:
                self.stopping.wait(_SERVE_SECONDS)
            except TopicNotReady:
                if partition == ANY_PARTITION or time.monotonic() >= end:
                    raise
                if or_any:
                    partition = ANY_PARTITION
                else:
                    self.stopping.wait(_SERVE_SECONDS)
            else:
                break
        try:
            return sent.stored.result(self._patience_seconds + _LATE_SECONDS)
        except TimeoutError:
            raise KafkaNotReachable(f"{sent.doing}: no answer in time; it may have been stored") from None

    @property
    def is_parents(self) -> bool:
        """Return whether this is a forked child of the process that has created the producer."""
        return self._process != os.getpid()

    def require_open(self) -> None:
        """Raise `IllegalSetting` if the producer is closed, in a forked child, or in a callback of its settings."""
        if self.is_parents:
            raise IllegalSetting(
                "this producer was created before a fork, and its connections are the parent's; create a new one in "
                "each process"
            )
        self._require_another_thread()
        if self.stopping.is_set():
            raise IllegalSetting("this producer is closed; create a new one")

    def stop(self) -> None:
        """Take no more records.

        Raises:
            IllegalSetting: a callback of the settings has called.
        """
        self._require_another_thread()
        self.stopping.set()

    def close(self) -> None:
        """Stop, and close the connections; any thread may call this again."""
        self.stop()
        with self._closing:
            self._thread.join()
            if not self._is_closed:  # confluent-kafka refuses to close a producer twice
                self._is_closed = True
                self._producer.close()

    def _require_another_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise IllegalSetting(
                "a callback of conf cannot use its producer, whose acknowledgements wait for the callback; hand the "
                "work to another thread"
            )

    def _serve(self) -> None:
        while not self.stopping.is_set():
            try:
                self._producer.serve(_SERVE_SECONDS)
            except Exception:
                logger.exception("serving acknowledgements failed, trying again")
                self.stopping.wait(_SERVE_SECONDS)
