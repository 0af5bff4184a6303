"""`reconsume doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.cli.output import print_json, print_line
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import counted
from reconsume.operations.doctor.report import Report
from reconsume.operations.doctor.run import examine
from reconsume.operations.rights import Right, Role, rights_of, role_named


def run_doctor(
    cluster: Cluster, role_name: str, *, group: str | None, topics: Sequence[str], send_record: bool, as_json: bool
) -> bool:
    """Examine the installation and print the result; return whether there is no problem."""
    role = role_named(role_name)
    if role in (Role.CONSUMER, Role.SIDECAR) and group is None:
        raise IllegalSetting(f"--role {role.value} needs --group")

    def rights(groups: Groups) -> list[Right]:
        known = groups.by_name.get(group or "")
        return rights_of(
            role,
            cluster.names,
            group=group or "",
            topics=topics,
            max_waiting=known is not None and bool(known.max_waiting),
            allowed_real_topics=cluster.settings.allowed_real_topics,
        )

    report = examine(cluster, role.value, rights, send_record=send_record)
    if as_json:
        print_json({"healthy": report.healthy, **asdict(report)})
    else:
        _print(report)
    return report.healthy


def _print(report: Report) -> None:
    for line in report.passed:
        print_line(f"ok       {line}")
    for line in report.skipped:
        print_line(f"skipped  {line}")
    for one in report.findings:
        print_line(f"{one.weight.upper():<8} {one.check}: {one.what}\n         fix: {one.mend}")
    problems = sum(one.weight == "problem" for one in report.findings)
    warnings = len(report.findings) - problems
    print_line(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
