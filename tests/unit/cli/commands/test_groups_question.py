"""`groups apply` shows its plan before it asks, also where standard output is for JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.commands import groups_file
from reconsume.cli.common import Here
from reconsume.operations.groups_file import parse_groups_file, plan_groups


@pytest.mark.parametrize("yes", [False, True])
def test_the_plan_is_told_before_the_question_and_json_stays_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], yes: bool
) -> None:
    wanted = parse_groups_file({"groups": {"departures": {}}})
    told: list[str] = []

    def ask(_question: str, **_options: Any) -> bool:
        told.append(capsys.readouterr().err)
        return True

    monkeypatch.setattr(groups_file, "_plan", lambda *_, **__: (wanted, None, plan_groups(wanted, Groups()), []))
    monkeypatch.setattr(groups_file, "confirm", ask)
    monkeypatch.setattr(groups_file, "apply_groups_plan", lambda *_, **__: None)
    groups_file.apply_groups(Here(Cluster(Settings()), as_json=True), None, yes=yes)  # type: ignore[arg-type]
    assert ("+ group departures" in told[0]) is not yes
    assert [one["groupName"] for one in json.loads(capsys.readouterr().out)["added"]] == ["departures"]
