"""The whole examination, from the first connection to a delivered record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from reconsume.operations.doctor.connection import check_connection, check_coordinators, check_versions, versions_of
from reconsume.operations.doctor.inspection import InspectedCluster
from reconsume.operations.doctor.installation import check_groups, check_topics, check_transactions, check_workers
from reconsume.operations.doctor.report import Report
from reconsume.operations.doctor.rights_check import check_rights
from reconsume.operations.doctor.trip import check_clock, send_through
from reconsume.operations.rights import Right


def examine(
    cluster: Cluster, role: str, rights: Callable[[Groups], Sequence[Right]], *, send_record: bool = True
) -> Report:
    """Examine an installation as a client sees it.

    Args:
        cluster: the installation, with the client's settings.
        role: the client's role, for the texts.
        rights: returns the rights that the role needs with these groups.
        send_record: whether to send a test record through the shortest level, to a retry topic without readers.
    """
    report, inspected = Report(), InspectedCluster(cluster.settings, cluster.clock)
    if not check_connection(inspected, report):
        return report
    try:
        _examine(inspected, role, rights, report, send_record=send_record)
    except KafkaNotReachable as error:
        report.problem("connection", str(error), "wait until the brokers answer, then run the doctor again")
    return report


def _examine(
    cluster: InspectedCluster,
    role: str,
    rights: Callable[[Groups], Sequence[Right]],
    report: Report,
    *,
    send_record: bool,
) -> None:
    with report.looking_at("settings of the brokers"):
        broker = cluster.admin.broker_settings()
        check_versions(versions_of(broker), report)
        check_coordinators(broker, cluster.admin.states().get("__consumer_offsets"), report)
    groups = Groups()
    with report.looking_at("the GROUPS topic"):
        if cluster.names.groups in cluster.admin.partitions([cluster.names.groups]):
            groups = read_groups(cluster)
            check_groups(groups, report)
    check_rights(cluster, role, rights(groups), report)
    groups = replace(groups, own_table=cluster.settings.own_table)
    check_topics(cluster, groups, report)
    with report.looking_at("open transactions"):
        check_transactions(cluster, groups, report)
    alive = False
    with report.looking_at("the workers"):
        alive = check_workers(cluster, report)
    if not send_record or not alive:
        report.skipped.append("record and clock: " + ("no worker would deliver it" if send_record else "not wanted"))
        return
    try:
        stamps = send_through(cluster, groups, report)
    except KafkaRefused as error:
        report.skipped.append(f"record and clock: {error}")
    except ReconsumeError as error:
        report.problem("record", str(error), "fix the problem, then run the doctor again")
    else:
        check_clock(stamps, report)
