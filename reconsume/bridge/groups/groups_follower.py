"""Read the GROUPS topic from its start, then follow it, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused

__all__ = ["GroupsFollower"]

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.5
_LOOK_AGAIN_SECONDS: Final = 5.0


class GroupsFollower:
    """Always has the latest `Groups`; a process that starts before Kafka waits for it and says so.

    Args:
        base: librdkafka's settings for any client.
        topic: the GROUPS topic.
        start: what holds before the first record: the explicit settings of this process.
    """

    def __init__(self, base: Mapping[str, Any], topic: str, start: Groups) -> None:
        self._base = base
        self._topic = topic
        self._groups = start
        self._stop = threading.Event()
        self._loaded = threading.Event()
        self._refusal: KafkaRefused | None = None
        self._trouble: KafkaNotReachable | None = None
        self._thread = threading.Thread(target=self._run, name="reconsume-groups", daemon=True)

    @property
    def groups(self) -> Groups:
        """The groups as far as they are known now."""
        return self._groups

    @property
    def trouble(self) -> KafkaNotReachable | None:
        """Why Kafka did not answer the last time, where it did not."""
        return self._trouble

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def wait_until_loaded(self, stop: threading.Event) -> bool:
        """Wait until the topic was read to its end once; False if `stop` came first.

        Raises:
            KafkaRefused: it may not be read; to wait would help nobody.
        """
        while not stop.is_set():
            if self._loaded.wait(_POLL_SECONDS):
                return True
            if self._refusal is not None:
                raise self._refusal
        return False

    def close(self) -> None:
        """Stop following; waits for the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        admin = KafkaAdmin(self._base, "reconsume-groups")
        while not self._stop.is_set():
            try:
                partitions = admin.partitions([self._topic]).get(self._topic, 0)
                self._refusal = self._trouble = None
                if partitions:
                    self._follow(partitions)
                else:
                    # No GROUPS topic: everything has its default. It may be made later.
                    self._loaded.set()
            except KafkaNotReachable as error:
                self._trouble = error
                logger.warning("waiting for Kafka: %s", error)
            except KafkaRefused as error:
                logger.error("the groups are not known: %s", error)  # noqa: TRY400 - the message says it all
                self._refusal = error
            except Exception:
                # A follower that died would leave the process with old settings and nobody would know.
                logger.exception("the GROUPS topic %s cannot be read; trying again", self._topic)
            self._stop.wait(_LOOK_AGAIN_SECONDS)

    def _follow(self, partitions: int) -> None:
        """Read on until stopped; the end of each partition tells that what was there at start is known."""
        unread = set(range(partitions))
        # It joins no group; but librdkafka asks for the coordinator, and that needs a right to a name.
        settings = {"group.id": self._topic, "enable.partition.eof": True, "fetch.wait.max.ms": 100}
        connections = Connections(consumer_settings(self._base, "reconsume-groups") | settings)
        consumer = make_consumer(connections.settings)
        try:
            consumer.assign([TopicPartition(self._topic, one, OFFSET_BEGINNING) for one in unread])
            while not self._stop.is_set():
                connections.check()
                message = consumer.poll(_POLL_SECONDS)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._groups = self._groups.with_record(message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                    if not unread:
                        self._loaded.set()
                else:
                    raise translate(error, f"reading topic {self._topic}")
        except KafkaException as error:
            raise translate(error, f"reading topic {self._topic}") from error
        finally:
            consumer.close()
