"""`groups plan` and `apply`: the plan comes before the question, and delay topics get missing partitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.kafka.admin import ClusterFacts
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings, TopicSettings
from reconsume.bridge.topics.topic_plan import TopicPlan
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.cli.commands import groups, groups_file
from reconsume.cli.common import Here
from reconsume.operations.groups_file import parse_groups_file, plan_groups


@pytest.mark.parametrize("yes", [False, True])
def test_the_plan_is_told_before_the_question_and_json_stays_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], yes: bool
) -> None:
    wanted = parse_groups_file({"groups": {"departures": {}}})
    told: list[str] = []

    def ask(_question: str, **_options: Any) -> None:
        told.append(capsys.readouterr().err)

    monkeypatch.setattr(
        groups_file, "_plan", lambda *_, **__: (wanted, None, plan_groups(wanted, Groups()), TopicPlan())
    )
    monkeypatch.setattr(groups_file, "confirm", ask)
    monkeypatch.setattr(groups_file, "apply_groups_plan", lambda *_, **__: None)
    groups_file.apply_groups(Here(Cluster(Settings()), as_json=True), None, yes=yes)  # type: ignore[arg-type]
    assert ("+ group departures" in told[0]) is not yes
    assert [one["groupName"] for one in json.loads(capsys.readouterr().out)["added"]] == ["departures"]


class Admin:
    """A cluster whose topics have one partition each."""

    def __init__(self) -> None:
        self.grown: dict[str, int] = {}
        self.existing = {one.name: 1 for one in wanted_topics(self._maker(), Groups())}

    def _maker(self) -> TopicMaker:
        return TopicMaker(self, Settings().names, TopicSettings())  # type: ignore[arg-type]

    def facts(self) -> ClusterFacts:
        return ClusterFacts(1, 1, 1_000_000)

    def topics(self) -> dict[str, int]:
        return self.existing

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.grown[topic] = partitions


def test_delay_topics_get_missing_partitions_before_their_number_is_published(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Writers go by the published number: with fewer partitions there is no room for floods."""
    admin, file = Admin(), tmp_path / "groups.yaml"
    file.write_text("groups: {}")
    settings = Settings(topics=TopicSettings(delay_partitions=2, bulk_partitions=1))
    cluster = Cluster(settings)
    monkeypatch.setitem(cluster.__dict__, "admin", admin)
    published: list[dict[str, int]] = []
    monkeypatch.setattr(groups_file, "read_groups", lambda _cluster: Groups())
    monkeypatch.setattr(groups_file, "apply_groups_plan", lambda *_, **__: published.append(dict(admin.grown)))
    lanes = {name: 3 for name in admin.existing if name.startswith(settings.names.prefix + "DELAY.")}
    with pytest.raises(typer.Exit):
        groups_file.show_groups_plan(Here(cluster, as_json=False), file)
    assert f"~ topic {min(lanes)}: partitions 1 -> 3" in capsys.readouterr().out
    groups_file.apply_groups(Here(cluster, as_json=True), file, yes=True)
    assert published == [lanes]
    assert {"name": min(lanes), "partitions_now": 1, "partitions": 3} in json.loads(capsys.readouterr().out)["growing"]


def test_partitions_that_are_missing_alone_are_a_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    admin, file, cluster = Admin(), tmp_path / "groups.yaml", Cluster(Settings())
    file.write_text("groups: {}")
    monkeypatch.setitem(cluster.__dict__, "admin", admin)
    monkeypatch.setattr(groups_file, "read_groups", lambda _cluster: Groups())
    with pytest.raises(typer.Exit) as ended:
        groups_file.show_groups_plan(Here(cluster, as_json=False), file)
    assert ended.value.exit_code == 1
    assert "nothing changes" not in capsys.readouterr().out
    groups_file.apply_groups(Here(cluster, as_json=False), file, yes=True)
    assert admin.grown


def test_all_groups_settings_are_written_anew_if_their_record_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor names this command; the record before it has the same values until compaction."""
    known = Groups().with_record(b"%SYS%", b'{"messageDelayLevel": "1m 5m"}')
    written: list[str] = []

    def write(_cluster: Cluster, change: Callable[[SystemConfig], SystemConfig]) -> SystemConfig:
        written.append(change(known.system).message_delay_level)
        return known.system

    monkeypatch.setattr(groups, "change_system", write)
    for now, expected in ((known, []), (known.with_record(b"%SYS%", b"{"), ["1m 5m"])):
        monkeypatch.setattr(groups, "read_groups", lambda _cluster, now=now: now)
        groups._set_system(Here(Cluster(Settings()), as_json=True), {"messageDelayLevel": "1m 5m"}, yes=True)
        assert written == expected
