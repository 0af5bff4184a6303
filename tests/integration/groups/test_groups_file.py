"""`groups plan` and `apply`, as a pipeline runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.bridge.groups.groups_store import read_groups, write_group
from tests.integration.installation import Installation, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.more]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def one(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


@pytest.fixture
def groups(one: Installation, tmp_path: Path) -> Run:
    def run(command: str, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "groups.yaml"
        file.write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "reconsume", "groups", command, "-f", str(file), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ
            | {
                "RECONSUME_BOOTSTRAP_SERVERS": one.settings.bootstrap_servers,
                "RECONSUME_TOPIC_PREFIX": one.settings.topic_prefix,
            },
        )

    return run


def test_a_file_is_planned_applied_and_then_changes_nothing(groups: Run, one: Installation) -> None:
    text = "groups:\n  departures: {retryQueueNums: 2}\n  arrivals: {retryMaxTimes: 3}\n"
    names = one.settings.names
    plan = groups("plan", text, "-o", "json")
    assert plan.returncode == 1, plan.stderr
    said = json.loads(plan.stdout)
    assert {one["groupName"] for one in said["added"]} == {"departures", "arrivals"}
    assert names.retry("departures") in said["topics"]
    asked = groups("apply", text)
    assert asked.returncode == 2
    assert "pass --yes" in asked.stderr
    assert read_groups(one.cluster).by_name == {}
    assert groups("apply", text, "--yes").returncode == 0
    assert one.admin.partitions([names.retry("departures")]) == {names.retry("departures"): 2}
    assert read_groups(one.cluster).by_name["arrivals"].retry_max_times == 3
    again = groups("plan", text)
    assert (again.returncode, again.stdout) == (0, "nothing changes\n")


def test_a_group_that_is_not_in_the_file_stays_unless_it_is_asked_for(groups: Run, one: Installation) -> None:
    assert groups("apply", "groups: {a: {}, b: {}}", "--yes").returncode == 0
    kept = groups("apply", "groups: {a: {retryMaxTimes: 2}}", "--yes")
    assert "~ group a: retryMaxTimes 16 -> 2" in kept.stdout
    assert "group b is not in the file and stays; --delete removes it" in kept.stdout
    assert read_groups(one.cluster).by_name.keys() == {"a", "b"}
    removed = groups("apply", "groups: {a: {retryMaxTimes: 2}}", "--yes", "--delete")
    assert "- group b" in removed.stdout
    assert read_groups(one.cluster).by_name.keys() == {"a"}
    assert one.settings.names.retry("b") in one.admin.topics()


def test_a_group_that_is_removed_gets_no_topics(groups: Run, one: Installation) -> None:
    added = groups("apply", "{}", "--yes").stdout
    assert f"~ topic {one.settings.names.delay(1_000)}: partitions 1 -> 6" in added
    assert one.admin.topics()[one.settings.names.delay(1_000)] == 6
    write_group(one.cluster, SubscriptionGroupConfig(group_name="gone"))
    prefix = one.settings.topic_prefix
    topics = {topic for topic in one.admin.topics() if topic.startswith(prefix)}
    removed = groups("apply", "{}", "--yes", "--delete")
    assert removed.stdout == "- group gone\napplied\n", removed.stderr
    assert {topic for topic in one.admin.topics() if topic.startswith(prefix)} == topics


def test_a_level_table_that_goes_down_is_warned_of(groups: Run) -> None:
    plan = groups("plan", "system: {messageDelayLevel: 5s 1s}")
    assert "warning: level 2 (1s) is shorter than level 1 (5s)" in plan.stdout


def test_a_wrong_file_says_where(groups: Run) -> None:
    wrong = groups("plan", "groups: {g: {retryMaxTime: 3}}")
    assert wrong.returncode == 2
    assert "groups.yaml: group 'g': unknown retryMaxTime; known here:" in wrong.stderr
    assert "not YAML" in groups("plan", "groups: {g").stderr
    twice = groups("plan", "groups:\n  a: {}\n  a: {}")
    assert twice.returncode == 2
    assert "key 'a' is written twice" in twice.stderr
    assert "line 3" in twice.stderr
    plan = json.loads(groups("plan", "groups:\n  007: {}\n  no: {}", "-o", "json").stdout)
    assert [one["groupName"] for one in plan["added"]] == ["007", "no"]
    assert "Traceback" not in groups("plan", "groups: {a: 2026-99-99}").stderr
