"""The plan of a job, with dead letters in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.actions.jobs import plan_row, print_histograms
from reconsume.delay_levels.wire.jobs.job_records import JobSpec
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs import planning
from reconsume.operations.jobs.selection import JobDraft
from tests.unit.console.fake_cluster import NOW, letter

HOURS = 1_500


class _Window:
    """A dead letter in each hour of two months."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def letters(self) -> Iterator[DeadLetterRecord]:
        for hour in range(HOURS):
            yield replace(letter(hour), stored_ms=NOW + hour * 3_600_000)


def test_dead_letters_of_more_than_a_thousand_hours_are_planned_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = JobSpec("resolve", "departures", NOW, "", "", "reconsume.DLQ.departures", "id", {0: (0, HOURS)})
    monkeypatch.setattr(planning, "fix", lambda *_: spec)
    monkeypatch.setattr(planning, "LetterWindow", _Window)
    plan = planning.plan(Cluster(Settings()), JobDraft("resolve", "departures"))
    assert (plan.count, len(plan.hours), {one.number for one in plan.hours}) == (HOURS, HOURS, {1})
    print_histograms(plan)
    assert "2026-11-22T20:00:00.000+00:00" in capsys.readouterr().out
    assert plan_row(plan)["hours"][0] == {"hour": "2026-11-22T20:00:00.000+00:00", "count": 1}
