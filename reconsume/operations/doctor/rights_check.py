"""Checks whether this client has the rights of its role, by asking the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reconsume.delay_levels.errors import KafkaRefused
from reconsume.operations.doctor.inspection import InspectedCluster, Inspector
from reconsume.operations.doctor.report import Report
from reconsume.operations.rights import Right, acl_commands

_PROBE: Final = "doctor"


def check_rights(cluster: InspectedCluster, role: str, rights: Sequence[Right], report: Report) -> None:
    """Compare the granted rights with those that the role needs."""
    topics, before = list(cluster.admin.topics()), len(report.findings)
    # The user that the brokers see, as far as the settings show it.
    principal = f"User:{cluster.base.get('sasl.username') or 'ANONYMOUS'}"
    for right in rights:
        lacking = _lacking(cluster, right, topics)
        if lacking:
            name = right.name + ("*" if right.prefixed else "")
            missing = Right(right.resource, right.name, tuple(lacking), right.why, right.prefixed)
            report.problem(
                "rights",
                f"role {role} may not {' and '.join(lacking)} on {right.resource} {name} ({right.why})",
                acl_commands([missing], principal, cluster.settings.bootstrap_servers)[0],
            )
    if len(report.findings) == before:
        report.passed.append(f"rights: all {len(rights)} of role {role}")


def _lacking(cluster: InspectedCluster, right: Right, topics: Iterable[str]) -> list[str]:
    admin = cluster.admin
    if right.resource == "transactional-id":
        name = right.name + _PROBE if right.prefixed else right.name
        return [] if cluster.may_write_transactions(name) else list(right.operations)
    if right.resource == "group":
        granted = admin.rights_on_group(f"{right.name.removesuffix('*')}{_PROBE}" if right.name == "*" else right.name)
        return [one for one in right.operations if one not in granted]
    if right.resource == "cluster":
        return [] if _may_read_settings(admin) else list(right.operations)
    return _lacking_on_topics(admin, right, topics)


def _lacking_on_topics(admin: Inspector, right: Right, topics: Iterable[str]) -> list[str]:
    """Return what is missing on existing topics; the right to create topics is checked without creating one."""
    some = [one for one in topics if one.startswith(right.name)] if right.prefixed else [right.name]
    lacking = set[str]()
    if some:
        for granted in admin.rights_on_topics(some).values():
            lacking.update(one for one in right.operations if one not in granted and one != "Create")
    elif right.prefixed and not admin.may_create(right.name + _PROBE):
        # Without the right to describe them, topics seem missing.
        lacking.update(right.operations)
    if "Create" in right.operations and not admin.may_create(right.name + _PROBE):
        lacking.add("Create")
    return [one for one in right.operations if one in lacking]


def _may_read_settings(admin: Inspector) -> bool:
    """Return whether broker settings are readable, the only right on the cluster of any role, by trying it."""
    try:
        admin.broker_settings()
    except KafkaRefused:
        return False
    return True
