"""`reconsume topics`."""

from __future__ import annotations

import sys
from dataclasses import asdict

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.groups import Groups
from reconsume.bridge.groups_store import read_groups
from reconsume.bridge.settings import Settings
from reconsume.bridge.topics import TopicMaker, TopicPlan, plan_topics, wanted_topics
from reconsume.cli.common import print_json, print_table
from reconsume.delay_levels.levels import DelayLevels

__all__ = ["apply_plan", "make_plan", "show_plan"]


def make_plan(settings: Settings) -> tuple[TopicMaker, TopicPlan]:
    """Compare the topics that should be with those of the cluster."""
    admin = KafkaAdmin(settings.client_settings())
    maker = TopicMaker(admin, settings.names, settings.topics)
    existing = admin.topics()
    groups = read_groups(settings) if settings.names.groups in existing else Groups()
    if settings.message_delay_level is not None:
        table = DelayLevels.parse(settings.message_delay_level)
        groups = Groups(groups.system, groups.by_name, own_table=table)
    wanted = wanted_topics(maker, groups)
    return maker, plan_topics(wanted, existing, admin.settings(one.name for one in wanted if one.name in existing))


def show_plan(plan: TopicPlan, *, as_json: bool) -> None:
    """Print what is missing and what differs."""
    if as_json:
        print_json(
            {
                "missing": [asdict(one) for one in plan.missing],
                "present": plan.present,
                "differences": [asdict(one) | {"remedy": one.remedy} for one in plan.differences],
            }
        )
        return
    if plan.missing:
        rows = [
            (one.name, one.partitions, "default" if one.replication_factor == -1 else one.replication_factor)
            for one in plan.missing
        ]
        print_table("missing topics", ("topic", "partitions", "replicas"), rows)
    for one in plan.differences:
        weight = "BREAKS A GUARANTEE" if one.breaks else "differs"
        sys.stdout.write(
            f"{weight}: {one.topic}: {one.setting} is {one.is_now}, should be {one.should_be}\n  {one.remedy}\n"
        )
    if not plan.missing:
        sys.stdout.write(f"{len(plan.present)} topics are there, none is missing\n")


def apply_plan(maker: TopicMaker, plan: TopicPlan, *, as_json: bool) -> None:
    """Make the missing topics."""
    made = [topic.name for topic in plan.missing if maker.make(topic)]
    if as_json:
        print_json({"made": made})
    else:
        sys.stdout.write(f"made {len(made)} topics\n")
