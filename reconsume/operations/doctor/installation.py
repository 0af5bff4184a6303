"""Checks of the installation: topics, settings, groups, workers."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.partitioning import all_partitions, partitions_with_leader
from reconsume.bridge.topics.topic_plan import TopicDifference, TopicPlan, plan_topics, safe_in_sync
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.human_text import counted
from reconsume.delay_levels.wire.allowed_topics import is_allowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY
from reconsume.operations.doctor.inspection import InspectedCluster, TopicState
from reconsume.operations.doctor.report import Report

_JOINING_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.5
_OPEN_SECONDS: Final = 60
"""Longer than any transaction of reconsume: brokers end them after 15 s at most."""
_AGAIN_SECONDS: Final = 2.0
_NOT_OF_A_GROUP: Final = {
    SYSTEM_KEY: "reconsume groups set --delay-levels TABLE",
    ALLOWED_TOPICS_KEY: "any scheduler that runs writes it anew",
}
"""How to mend the records of GROUPS that belong to no group."""


def check_topics(cluster: InspectedCluster, groups: Groups, report: Report) -> None:
    """Compare existing topics with their target state."""
    admin, names, servers = cluster.admin, cluster.names, cluster.settings.bootstrap_servers
    states = admin.states()
    wanted = wanted_topics(TopicMaker(admin, names, cluster.settings.topics, lambda: groups), groups)
    found: dict[str, dict[str, str]] = {}
    for topic in wanted:
        if topic.name in states:
            with report.looking_at(f"settings of {topic.name}"):
                found |= admin.settings([topic.name])
    partitions = {name: state.partitions for name, state in states.items()}
    replicas = {name: state.replicas for name, state in states.items()}
    plan = plan_topics(wanted, partitions, found, replicas)
    before = len(report.findings)
    missing = []
    for one in plan.missing:
        # An invisible topic is missing in every list, and may exist.
        with report.looking_at(f"topic {one.name}"):
            if one.name not in admin.partitions([one.name]):
                missing.append(one.name)
    if missing:
        others = f", and so {counted(len(missing) - 1, 'other is', 'others are')}" if len(missing) > 1 else ""
        report.problem("topics", f"topic {missing[0]} is missing{others}", "reconsume topics apply")
    _check_partitions(plan, report)
    for different in plan.differences:
        what = f"topic {different.topic}: {different.setting} is {different.is_now}, it should be {different.should_be}"
        tell = report.problem if different.breaks else report.warning
        tell("topics", what, different.remedy(servers))
    for name, state in states.items():
        if names.is_ours(name):
            _check_state(cluster, name, state, found.get(name, {}), report)
    _check_targets(cluster, groups, states, report)
    if len(report.findings) == before:
        report.passed.append(f"topics: {len(plan.present)} exist, with the right settings")


def _check_targets(cluster: InspectedCluster, groups: Groups, states: Mapping[str, TopicState], report: Report) -> None:
    """Check whether delayed messages can be written to their topics, as far as replicas are missing."""
    for name in _targets(cluster, groups, (name for name, state in states.items() if state.in_sync < state.replicas)):
        with report.looking_at(f"settings of {name}"):
            _check_state(cluster, name, states[name], cluster.admin.settings([name])[name], report)


def _targets(cluster: InspectedCluster, groups: Groups, topics: Iterable[str]) -> list[str]:
    """Return the topics among these to which schedulers may deliver messages of `allowed_real_topics`."""
    allowed = groups.allowed_real_topics or ()
    return [name for name in topics if not cluster.names.is_ours(name) and is_allowed(name, allowed)]


def _check_partitions(plan: TopicPlan, report: Report) -> None:
    if plan.growing:
        topic, now = plan.growing[0]
        others = f", and {counted(len(plan.growing) - 1, 'other topic lacks', 'other topics lack')} some too"
        what = f"topic {topic.name} has {counted(now, 'partition')} of {topic.partitions}"
        effect = "; without bulk partitions one group's flood delays all others"
        report.warning("topics", what + (others if plan.growing[1:] else "") + effect, "reconsume topics apply")


def _check_state(
    cluster: InspectedCluster, name: str, state: TopicState, found: Mapping[str, str], report: Report
) -> None:
    servers = cluster.settings.bootstrap_servers
    tool = f"--bootstrap-server {servers}"
    needed = int(found.get("min.insync.replicas", "1"))
    if needed > state.replicas:
        possible = str(safe_in_sync(state.replicas))
        report.problem(
            "topics",
            f"topic {name}: min.insync.replicas is {needed}, it has {state.replicas} replicas, so brokers "
            "before Kafka 3.7 refuse all writes, and later ones while any replica is away",
            TopicDifference(name, "min.insync.replicas", str(needed), possible, breaks=True).remedy(servers),
        )
    elif needed > state.in_sync:
        report.problem(
            "topics",
            f"topic {name}: {state.in_sync} of {state.replicas} replicas are in sync, {needed} are needed to write",
            f"start the missing brokers: kafka-topics.sh {tool} --describe --under-min-isr-partitions",
        )
    if cluster.names.is_scheduled(name):
        try:
            cluster.names.delay_ms(name)
        except IllegalName as error:
            report.warning("topics", str(error), f"kafka-topics.sh {tool} --delete --topic {name}")


def check_transactions(cluster: InspectedCluster, groups: Groups, report: Report) -> None:
    """Find partitions that consumers cannot read to the end because of a transaction that was never ended.

    In topics of delayed messages only partitions without a leader are reported: others may have long transactions.
    """
    topics = cluster.admin.topics()
    ours = {name: count for name, count in topics.items() if cluster.names.is_ours(name)}
    partitions, lost = partitions_with_leader(cluster.admin, ours)
    if targets := _targets(cluster, groups, topics):
        lost |= cluster.admin.leaderless(targets)
    _report_leaderless(lost, cluster.settings.bootstrap_servers, report)
    since_ms = int(cluster.clock()) - _OPEN_SECONDS * 1000
    if found := cluster.admin.open_transactions(partitions, since_ms):
        # If this machine's clock is ahead of the brokers', each open transaction looks old; a live one ends soon.
        time.sleep(_AGAIN_SECONDS)
        again = cluster.admin.open_transactions(found, since_ms)
        found = {where: offset for where, offset in found.items() if again.get(where) == offset}
    for (topic, partition), offset in sorted(found.items()):
        report.problem(
            "transactions",
            f"a transaction in {topic}-{partition} has been open for over {_OPEN_SECONDS} s, since offset {offset}: "
            "consumers cannot read past it (Kafka 4.2 and 4.3 may leave one open when a broker is lost, KAFKA-20734)",
            "it may have been committed, so save its records before you abort it, as docs/reliability.md#an-open-"
            "transaction shows; find its producer: kafka-transactions.sh --bootstrap-server "
            f"{cluster.settings.bootstrap_servers} describe-producers --topic {topic} --partition {partition}",
        )
    if not found:
        report.passed.append(f"transactions: no old one is open in {counted(len(partitions), 'partition')}")


def _report_leaderless(lost: Collection[Partition], servers: str, report: Report) -> None:
    if lost:
        topic, partition = min(lost)
        report.problem(
            "topics",
            f"{counted(len(lost), 'partition has', 'partitions have')} no leader, such as {topic}-{partition}: "
            "nothing can be written there or read, and a scheduler that has just written there delivers nothing",
            f"start the broker that has them: kafka-topics.sh --bootstrap-server {servers} "
            "--describe --unavailable-partitions",
        )


def check_groups(groups: Groups, report: Report) -> None:
    """Report unreadable records of the GROUPS topic."""
    before = len(report.findings)
    for key, why in groups.unreadable.items():
        what = f"the GROUPS topic has an unreadable record: {why}; its earlier record or the defaults apply"
        report.problem("groups", what, _NOT_OF_A_GROUP.get(key, f"reconsume groups set {shlex.quote(key)}"))
    for config in groups.by_name.values():
        name, change = config.group_name, f"reconsume groups set {shlex.quote(config.group_name)}"
        if config.retry_queue_nums <= 0:
            report.warning(
                "groups",
                f"group {name}: retryQueueNums is {config.retry_queue_nums}, so messages that fail are dropped",
                f"{change} --retry-queue-nums 1",
            )
        if not config.consume_enable:
            report.warning("groups", f"group {name} may not consume", f"{change} --consume-enable")
        if config.retry_paused:
            report.warning(
                "groups",
                f"group {name}: its retries are paused, so those that are due wait",
                f"{change} --no-retry-paused",
            )
    if len(report.findings) == before:
        report.passed.append(f"groups: {len(groups.by_name)} registered; level table {groups.table}")


def check_workers(cluster: InspectedCluster, report: Report) -> bool:
    """Return whether all partitions of scheduled topics have a worker; a worker that has just started gets 15 s."""
    group = cluster.names.scheduler_group
    names, listed = cluster.names, cluster.admin.topics()
    topics = {topic: count for topic, count in listed.items() if names.is_scheduled(topic) or names.is_parked(topic)}
    scheduled = set(all_partitions(topics))
    deadline = time.monotonic() + _JOINING_SECONDS
    while True:
        members = cluster.admin.members(group)
        left = scheduled - {where for partitions in members.values() for where in partitions}
        if not left or not members or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    if not members:
        report.problem(
            "workers",
            f"no scheduler worker is a member of group {group}: no record is delivered",
            f"reconsume scheduler --bootstrap-servers {cluster.settings.bootstrap_servers}",
        )
        return False
    if left:
        some = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(left)[:3])
        report.problem(
            "workers",
            f"{counted(len(left), 'partition has', 'partitions have')} no worker, such as {some}",
            "restart the workers; they find new topics within 10 s: reconsume scheduler",
        )
        return False
    report.passed.append(f"workers: {len(members)} for {counted(len(scheduled), 'partition')}")
    return True
