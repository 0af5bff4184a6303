"""Publishes which topics the schedulers deliver delayed messages to."""

from __future__ import annotations

import threading
from typing import Final

from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.groups.groups_store import write_allowed_topics
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY

logger = SafeLogger(__name__)

_AGAIN_SECONDS: Final = 5.0


def publish_allowed_topics(settings: Settings, follower: GroupsFollower, stop: threading.Event) -> None:
    """Write this worker's `allowed_real_topics` to the GROUPS topic, unless the topic has the same value.

    After the start only if the topic has no readable one, as after it was created again: with different settings the
    last worker counts, and workers do not overwrite each other forever.
    """
    cluster = Cluster(settings)
    own, is_published, is_reported = tuple(settings.allowed_real_topics), False, False
    while not stop.is_set():
        try:
            if not follower.wait_until_loaded(stop):
                return
            groups = follower.groups
            known = None if ALLOWED_TOPICS_KEY in groups.unreadable else groups.allowed_real_topics
            if known is None or not (is_published or known == own):
                write_allowed_topics(cluster)
            is_published, is_reported = True, False
        except (KafkaNotReachable, TopicNotReady) as error:
            if not is_reported:
                logger.warning("allowed_real_topics not published yet: %s", error)
            is_reported = True
        except ReconsumeError as error:
            logger.warning(
                "allowed_real_topics is not published, so senders cannot refuse topics that are not allowed: %s",
                error,
            )
            return
        except Exception:
            # Without this thread senders would go by the value of an earlier worker.
            logger.exception("allowed_real_topics not published yet")
        stop.wait(_AGAIN_SECONDS)
