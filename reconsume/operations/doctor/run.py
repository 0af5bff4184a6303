"""The examination from the first connection to a record that came through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.operations.doctor.connection import check_connection, check_coordinators, check_versions, versions_of
from reconsume.operations.doctor.inspection import Inspector
from reconsume.operations.doctor.installation import check_groups, check_topics, check_transactions, check_workers
from reconsume.operations.doctor.report import Report
from reconsume.operations.doctor.rights_check import check_rights
from reconsume.operations.doctor.trip import check_clock, send_through
from reconsume.operations.rights import Right

__all__ = ["examine"]


def examine(
    settings: Settings, role: str, rights: Sequence[Right], *, send_record: bool = True, clock: Clock = now_ms
) -> Report:
    """Examine an installation as a client with these settings sees it.

    Args:
        settings: of the client.
        role: what the client is, for the words.
        rights: that the role needs.
        send_record: whether to put a record on the shortest level; it comes to a retry topic that nobody reads.
        clock: of this machine.
    """
    report = Report()
    if not check_connection(settings, report):
        return report
    try:
        _examine(settings, role, rights, report, send_record=send_record, clock=clock)
    except KafkaNotReachable as error:
        report.problem("connection", str(error), "wait until the brokers answer, then run it again")
    return report


def _examine(
    settings: Settings, role: str, rights: Sequence[Right], report: Report, *, send_record: bool, clock: Clock
) -> None:
    admin = Inspector(settings.client_settings(), "reconsume-doctor")
    with report.looking_at("settings of the brokers"):
        broker = admin.broker_settings()
        check_versions(versions_of(broker), report)
        check_coordinators(broker, admin.states().get("__consumer_offsets"), report)
    check_rights(settings, admin, role, rights, report)
    groups = _groups(settings, admin, report)
    check_topics(settings, admin, groups, report)
    with report.looking_at("open transactions"):
        check_transactions(settings, admin, report, clock)
    alive = False
    with report.looking_at("the workers"):
        alive = check_workers(settings, admin, report)
    if not send_record or not alive:
        report.skipped.append("record and clock: " + ("no worker would deliver it" if send_record else "not wanted"))
        return
    try:
        stamps = send_through(settings, admin, groups, report, clock)
    except KafkaRefused as error:
        report.skipped.append(f"record and clock: {error}")
    except ReconsumeError as error:
        report.problem("record", str(error), "mend what is said above, then run it again")
    else:
        check_clock(stamps, report)


def _groups(settings: Settings, admin: Inspector, report: Report) -> Groups:
    groups = Groups()
    with report.looking_at("the GROUPS topic"):
        if settings.names.groups in admin.partitions([settings.names.groups]):
            groups = read_groups(settings)
            check_groups(groups, report)
    own = settings.message_delay_level
    return groups if own is None else replace(groups, own_table=DelayLevels.parse(own))
