"""What the commands print that need a Spark or a Kafka of their own; causes and groups are hostile."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count
from reconsume.cli.actions import status
from reconsume.cli.chaos.run import ChaosOptions, ChaosReport
from reconsume.cli.chaos.run import print_report as print_chaos
from reconsume.cli.demo.run import print_report as print_demo
from reconsume.cli.judging.judge import TopicsVerdict
from reconsume.cli.spark.reconcile import print_findings, print_summary, run_line
from reconsume.cli.spark.replay import print_plan, print_result
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, TopicNotReady
from reconsume.operations.quarantine.records import QuarantineCounter
from reconsume.operations.status import Status
from reconsume.spark_connectors.replay import ReplayPlan
from tests.support.hostile import HOSTILE, assert_harmless
from tests.unit.spark_connectors.test_report import finding, summary

CAUSE = "cannot open [/data/in.csv], missing [orders] [red]x[/red]"
DEMO: dict[str, Any] = {
    "produced": 20_000,
    "delivered": 21_998,
    "sent_back": {"3": 1_157, "4": 1},
    "succeeded_after": {"0": 18_843, "1": 3},
    "dead_letters": 1,
    "quarantined": 2,
    "lateness_ms": {"p50": 4},
    "early": 0,
    "lost": 0,
    "duplicates": 0,
}
STATUS = Status(at_ms=0, waiting=[], groups=[], quarantined=Count(0, exact=True))
RECONCILED = {"verdict": "ok", "attempts": 1, "moved": 1, "dead": 1, "waiting": 0, "findings": {}, "report": "/r.html"}


@pytest.mark.parametrize(
    "away", [KafkaNotReachable("no broker answers"), TopicNotReady("no topics")], ids=["away", "starts"]
)
def test_a_status_that_is_watched_outlives_an_outage(
    away: ReconsumeError, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just started may know no topics."""
    answers: list[Status | BaseException] = [STATUS, away, STATUS, KeyboardInterrupt()]

    def collect(_cluster: Cluster, _quarantine: QuarantineCounter | None = None) -> Status:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(status, "collect_status", collect)
    cluster = Cluster(Settings())
    status.watch_status(cluster, as_json=True, rest=lambda _seconds: None)
    printed = capsys.readouterr()
    assert (printed.out.count('"quarantined": 0'), printed.err) == (2, f"error: {away}\n")
    answers.append(away)
    with pytest.raises(type(away)):
        status.watch_status(cluster, as_json=True)
    answers.append(replace(STATUS, leaderless=["reconsume.DELAY.10s-0"]))
    status.show_status(cluster, as_json=False)
    assert "not counted, because no broker leads them: reconsume.DELAY.10s-0" in capsys.readouterr().out


def test_a_status_that_is_watched_reads_on_in_the_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    counters: list[QuarantineCounter | None] = []

    def collect(_cluster: Cluster, quarantine: QuarantineCounter | None = None) -> Status:
        counters.append(quarantine)
        return STATUS

    def rest(_seconds: float) -> None:
        if len(counters) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "collect_status", collect)
    status.watch_status(Cluster(Settings()), as_json=True, rest=rest)
    first, second = counters
    assert isinstance(first, QuarantineCounter)
    assert first is second


def test_the_demo_tells_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_demo(DEMO | {"reconcile": RECONCILED}, as_json=False)
    printed = capsys.readouterr()
    rows = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in printed.out.splitlines() if "│" in line}
    assert (rows["produced"], rows["sent back to level 4 (2s)"], rows["lateness p50"]) == ("20,000", "1", "4 ms")
    assert (rows["succeeded after 0 retries"], rows["succeeded after 1 retry"]) == ("18,843", "3")
    assert "Spark reconciled 1 send-back: 1 delivered again, 1 dead letter, 0 waiting; findings: none" in printed.err
    assert printed.err.endswith("nothing lost, nothing early, nothing twice\n")
    print_demo(DEMO | {"reconcile": None, "lost": 1}, as_json=False)
    assert capsys.readouterr().err == "something is wrong; see above\n"
    print_demo(DEMO | {"reconcile": None}, as_json=True)
    assert json.loads(capsys.readouterr().out) == DEMO | {"reconcile": None}


def test_chaos_tells_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    recovery = {"faults": 1.0, "max_seconds": 3.0, "max_seconds_after_end": 1.5}
    report = ChaosReport(
        ChaosOptions(7, 1, 1, 200, False),
        [],
        TopicsVerdict(10, 1, 1, 0, 0, 0, 0, [HOSTILE]),
        {"kill [worker]": recovery, "pause": recovery},
        {"pause": {"p99_seconds": 0.25, "median_p99_seconds": 0.125, "max_seconds": 1}},
        ["worker-1"],
        61.2,
        Path("/tmp/logs"),
    )
    print_chaos(report, as_json=False)
    printed = capsys.readouterr().out
    assert_harmless(printed, shows=CAUSE)
    assert "seed 7: 0 faults, 10 messages, 1 failure, 61 s" in printed
    assert "worker-1 has ended by itself, 1 time; see /tmp/logs" in printed
    assert "lost 1, early 0" in printed
    [pause] = [line for line in printed.splitlines() if "pause" in line]
    assert [cell.strip() for cell in pause.split("│")[3:6]] == ["0.250", "0.125", "1.000"]
    assert "kill [worker]" in printed
    print_chaos(report, as_json=True)
    assert json.loads(capsys.readouterr().out)["examples"] == [HOSTILE]


def test_reconcile_tells_its_figures_and_hostile_findings(capsys: pytest.CaptureFixture[str]) -> None:
    group = summary()["groups"][0] | {"group": HOSTILE, "lost": 1}
    figures = summary(findings={"LOST": 1}, groups=[group], attempts=1)
    forged = finding("LOST", group=HOSTILE, origin_message_id=HOSTILE + "\nLATE forged", commands=[HOSTILE])
    print_summary(figures, [forged], Path("/tmp/[red]report[/red].html"))
    printed = capsys.readouterr().out
    assert_harmless(printed, shows=CAUSE)
    assert printed.endswith("1 send-back: 1 finding: something is wrong\n")
    assert "report: /tmp/[red]report[/red].html" in printed
    assert not any(line.startswith("LATE") for line in printed.splitlines())
    print_summary(summary(), [], None)
    printed = capsys.readouterr().out
    assert summary()["groups"][0]["group"] in printed
    assert printed.endswith("every failed message ended in exactly one state\n")
    print_findings([finding("LATE")])
    assert capsys.readouterr().out == "LATE departures flights/0/1 attempt 1\n  kcat -C\n"
    run = run_line(figures | {"dead": 1}, dt.datetime(2026, 11, 21, 8, 30, tzinfo=dt.UTC))
    assert run == "2026-11-21 08:30:00Z 1 send-back: 2 delivered again, 1 dead letter, 0 waiting; LOST 1"


def test_a_replay_tells_its_plan_and_hostile_causes(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ReplayPlan("/tmp/plan", "friday", 0, "true", "retry", "reconsume.", 2, counts={"send": 1, "damaged": 2})
    result = {f"by_{name}": [{name: HOSTILE, "status": "send", "count": 1}] for name in ("cause", "group", "hour")}
    print_plan(plan, result)
    printed = capsys.readouterr().out
    assert_harmless(printed, shows=CAUSE)
    assert "plan friday in /tmp/plan" in printed
    assert "to send, by cause" in printed
    print_result("/tmp/plan", {"sent": 1, "before": 1_000, "report": {"sent": 1_001}})
    printed = capsys.readouterr().out
    assert printed.startswith("sent 1 now, 1,000 before\n")
    assert "1,001" in printed
