"""Checks that the letters of a job still exist, and that their group may be used."""

from __future__ import annotations

import threading
from typing import Final

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import is_another_topic
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import JobSpec

_LOOKS: Final = 8
_AGAIN_SECONDS: Final = 1.0


class LettersGone(Exception):
    """The dead letters of a job were deleted with their topic; the message names it."""


def check_target(cluster: Cluster, spec: JobSpec, stop: threading.Event) -> None:
    """Check whether a job can continue; look for a missing topic again, because a broker that starts knows none.

    Args:
        cluster: the installation.
        spec: the definition of the job.
        stop: ends the wait for the topic.

    Raises:
        LettersGone: its dead-letter topic was deleted.
        IllegalSetting: its group is no longer registered, and groups must be.
    """
    topic, looks = spec.topic, 1
    while not cluster.admin.partitions([topic]) and not stop.wait(_AGAIN_SECONDS):
        looks += 1
        if looks <= _LOOKS:
            continue
        raise LettersGone(f"topic {topic} was deleted: the dead letters of this job are gone")
    topic_id = cluster.admin.topic_ids({topic}).get(topic)
    if topic_id is not None and is_another_topic(spec.topic_id, topic_id):
        raise LettersGone(f"topic {topic} was deleted and created again: the dead letters of this job are gone")
    if spec.kind == "resend":
        groups = read_groups(cluster)
        if spec.group not in groups.by_name and not groups.system.auto_create_subscription_group:
            raise IllegalSetting(
                f"group {spec.group!r} is no longer registered; register it (`reconsume groups set`) and resume the "
                "job, or cancel it"
            )
