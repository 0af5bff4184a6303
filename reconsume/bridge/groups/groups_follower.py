"""A thread that reads the GROUPS topic from its start, then follows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.topic_follower import TailReader, TopicFollower
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError

logger = SafeLogger(__name__)

_POLL_SECONDS: Final = 0.5
_LOOK_AGAIN_SECONDS: Final = 5.0
_COUNT_SECONDS: Final = 30.0
_WARN_SECONDS: Final = 30.0


class GroupsFollower(TopicFollower):
    """Has the latest `Groups`; before Kafka answers, it waits and logs that.

    Guarantees: when the topic was created again or is read again after an error, its content replaces the former groups
    as soon as it is read to its end, so that long-running processes decide as new ones do. While the topic is missing,
    the former groups apply, because starting brokers do not know their topics for a moment.
    Tests: tests/unit/bridge/groups/test_groups_follower.py, tests/integration/groups/test_groups_made_again.py.

    Args:
        base: librdkafka settings that every client uses.
        topic: the GROUPS topic.
        start: the groups before the first record: the explicit settings of this process.
    """

    def __init__(self, base: Mapping[str, Any], topic: str, start: Groups) -> None:
        super().__init__(base, topic, "reconsume-groups", _LOOK_AGAIN_SECONDS, _COUNT_SECONDS)
        self._start = self._groups = start
        self._loaded = threading.Event()
        self._refusal: KafkaRefused | None = None
        self._trouble: KafkaNotReachable | None = None

    @property
    def groups(self) -> Groups:
        """Return the groups as known now."""
        return self._groups

    @property
    def trouble(self) -> KafkaNotReachable | None:
        """Return why Kafka did not answer the last time, None if it did."""
        return self._trouble

    def wait_until_loaded(self, stop: threading.Event, seconds: float = float("inf")) -> bool:
        """Wait until the topic was read to its end once; False after `stop` or `seconds`.

        Every 30 seconds a warning says what is waited for, because a partition without a leader causes no error.

        Raises:
            KafkaRefused: the right to read the topic is missing, so waiting is useless.
        """
        began = time.monotonic()
        warn_after = _WARN_SECONDS
        while not stop.is_set() and (waited := time.monotonic() - began) < seconds:
            if waited >= warn_after:
                logger.warning("topic %s was not read within %.0f s; check that it has a leader", self._topic, waited)
                warn_after += _WARN_SECONDS
            if self._loaded.wait(_POLL_SECONDS):
                return True
            if (refusal := self._refusal) is not None:  # the other thread may forget it meanwhile
                raise refusal
        return False

    def _follow(self, admin: KafkaAdmin) -> None:
        """Read until stopped; the end of each partition shows that all earlier records are known."""
        partitions = admin.partitions([self._topic]).get(self._topic, 0)
        self._refusal = self._trouble = None
        if not partitions:
            # Without a GROUPS topic the defaults apply. The topic may be created later.
            self._loaded.set()
            return
        groups = self._start
        with closing(TailReader(self._base, self._client_id, self._topic)) as reader:
            reader.follow(dict.fromkeys((self._topic, one) for one in range(partitions)))
            while not (self._stop.is_set() or self._has_grown(admin, partitions)):
                for message in reader.read(_POLL_SECONDS):
                    if (error := message.error()) is not None:
                        raise translate(error, f"reading topic {self._topic}")
                    groups = groups.with_record(message.key(), message.value())
                if reader.went_back:
                    raise KafkaNotReachable(f"topic {self._topic} was made again, reading it from its start")
                if not (self._loaded.is_set() and reader.unread):
                    self._groups = groups
                if not reader.unread:
                    self._loaded.set()

    def _failed(self, error: ReconsumeError) -> None:
        if isinstance(error, KafkaNotReachable):
            self._trouble = error
            logger.warning("waiting for Kafka: %s", error)
        else:
            logger.error("settings of groups are unknown: %s", error)
            self._refusal = error if isinstance(error, KafkaRefused) else None
