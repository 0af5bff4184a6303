"""Checks that the letters of a job still exist, and that their group may be used."""

from __future__ import annotations

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import is_another_topic
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import JobSpec


class LettersGone(Exception):
    """The dead letters of a job were deleted with their topic; the message names it."""


def check_target(cluster: Cluster, spec: JobSpec) -> None:
    """Check whether a job can continue.

    Raises:
        LettersGone: its dead-letter topic was deleted.
        IllegalSetting: its group is no longer registered, and groups must be.
    """
    topic = spec.topic
    if not cluster.admin.partitions([topic]):
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
