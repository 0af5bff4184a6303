"""Checks the topics of an installation for a worker."""

from __future__ import annotations

from collections.abc import Collection

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.topics.topic_plan import TopicDifference
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, TopicNotReady

logger = SafeLogger(__name__)


class TopicChecks:
    """Checks topics at the start of a worker and at each assignment.

    Args:
        admin: a client that waits for Kafka.
        look_up: a client that gives up soon, for a rebalance.
    """

    def __init__(self, settings: Settings, admin: KafkaAdmin, look_up: KafkaAdmin) -> None:
        self._settings = settings
        self._admin = admin
        self._look_up = look_up

    def check(self) -> None:
        """Raise TopicNotReady for missing topics; create the topic of positions.

        Without GROUPS a worker that starts would deliver to paused groups.
        """
        names = self._settings.names
        needed = (names.send_back, names.delay(0), names.quarantine, names.cancel, names.groups)
        existing = self._admin.partitions(needed)
        missing = [topic for topic in needed if topic not in existing]
        if missing:
            raise TopicNotReady(f"missing topics: {', '.join(missing)}; create them: reconsume topics apply")
        if names.positions not in self._admin.partitions([names.positions]):
            self._make_positions()

    def _make_positions(self) -> None:
        """Add the topic to an installation of an earlier version."""
        maker = TopicMaker(self._admin, self._settings.names, self._settings.topics)
        try:
            maker.make(maker.positions_topic())
        except KafkaRefused as error:
            raise TopicNotReady(
                f"topic {self._settings.names.positions} is missing and this worker may not create it ({error}); "
                "create it: reconsume topics apply"
            ) from error

    def refused(self, topics: Collection[str]) -> dict[str, str]:
        """Return refused delay topics and why: with producers' timestamps they would deliver early or late.

        A retention time that is shorter than the delay is only logged: what it has not deleted yet is delivered.

        Test: tests/integration/scheduler/test_delivery.py.
        """
        refused = {}
        for topic, found in self._found_settings(topics).items():
            self._warn_of_retention(topic, int(found.get("retention.ms", -1)))
            kind = found.get("message.timestamp.type")
            if kind != "LogAppendTime":
                wrong = TopicDifference(topic, "message.timestamp.type", str(kind), "LogAppendTime", breaks=True)
                refused[topic] = (
                    f"its message.timestamp.type is {kind}, so the clocks of its producers would decide when records "
                    f"are due; fix it: {wrong.remedy(self._settings.bootstrap_servers)}, then restart the scheduler "
                    "workers"
                )
        return refused

    def _found_settings(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings of these topics, asked for at once: in a rebalance nothing is delivered.

        Without the right to describe a topic, it is trusted; each record shows the kind of its timestamp.
        """
        found: dict[str, dict[str, str]] = {}
        try:
            try:
                return self._look_up.settings(topics)
            except (KafkaRefused, TopicNotReady):
                for topic in topics:
                    try:
                        found |= self._look_up.settings([topic])
                    except (KafkaRefused, TopicNotReady) as error:
                        logger.warning("settings of %s not checked: %s", topic, error)
        except KafkaNotReachable as error:
            missing = ", ".join(topic for topic in topics if topic not in found)
            logger.warning("settings of %s not checked: %s", missing, error)
        return found

    def _warn_of_retention(self, topic: str, retention_ms: int) -> None:
        """Log that Kafka deletes records of a delay topic before they are due."""
        delay_ms = 0 if self._settings.names.is_parked(topic) else self._settings.names.delay_ms(topic)
        if 0 <= retention_ms < delay_ms:
            logger.error(
                "topic %s keeps records for %d ms and delays them by %d ms; raise retention.ms",
                *(topic, retention_ms, delay_ms),
            )
