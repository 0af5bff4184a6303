"""`reconsume groups set`, `delete`, `list` and `get`: nothing changes for others without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.single_records import write_records
from reconsume.bridge.process.settings import TopicSettings
from reconsume.cli.commands import groups as commands
from reconsume.cli.commands import groups_file as file_commands
from reconsume.cli.commands.topics import apply_plan, make_plan
from reconsume.cli.main import app
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations import groups_file
from reconsume.operations.groups_file import change_group
from tests.integration.installation import LEVELS, Installation, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


@pytest.fixture
def groups(here: Installation) -> Run:
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": here.settings.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix,
    }

    def run(*arguments: str) -> Result:
        here.write_groups()
        return CliRunner().invoke(app, ["groups", *arguments], env=environment)

    return run


def refused(done: Result) -> str:
    assert isinstance(done.exception, IllegalSetting), done.output
    return str(done.exception)


def table(here: Installation) -> str:
    return read_groups(here.cluster).system.message_delay_level


def test_a_level_table_for_all_is_shown_and_asked_for(groups: Run, here: Installation) -> None:
    asked = groups("set", "--delay-levels", "1s 9s")
    assert refused(asked) == "Change this for all groups? Standard input is not a terminal; pass --yes to continue"
    assert asked.stderr == f"~ for all groups: messageDelayLevel '{LEVELS}' -> '1s 9s'\n"
    assert table(here) == LEVELS
    done = groups("set", "--delay-levels", "1s 9s", "--yes")
    assert done.stderr == asked.stderr
    assert "reconsume topics plan" in done.stdout
    assert table(here) == "1s 9s"


def test_who_says_no_changes_nothing(groups: Run, here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def says_no(_question: str, *, yes: bool) -> None:
        if not yes:
            raise IllegalSetting("nothing was changed")

    monkeypatch.setattr(commands, "confirm", says_no)
    assert refused(groups("set", "--no-auto-create")) == "nothing was changed"
    assert read_groups(here.cluster).system.auto_create_subscription_group
    groups("set", "kept")
    assert refused(groups("delete", "kept")) == "nothing was changed"
    assert "kept" in read_groups(here.cluster).by_name


def test_a_table_that_goes_down_is_warned_of(groups: Run) -> None:
    done = groups("set", "--delay-levels", "1s 30s 10s", "--yes")
    assert "warning: level 3 (10s) is shorter than level 2 (30s)" in done.stderr
    assert "warning" not in groups("set", "--delay-levels", "1s 1s 5s", "--yes").stderr


def test_groups_that_keep_a_policy_of_their_own_are_named(groups: Run) -> None:
    policy = '{"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}}'
    assert groups("set", "own", "--retry-policy", policy).exit_code == 0
    told = groups("set", "--delay-levels", "1s 9s", "--yes").stderr
    assert "groups with a retry policy of their own keep it: own\n" in told
    assert groups("set", "own", "--retry-policy", "null").exit_code == 0
    assert "retry policy of their own" not in groups("set", "--delay-levels", "1s 8s", "--yes").stderr


def test_a_table_that_is_there_already_is_not_asked_for(groups: Run) -> None:
    same = groups("set", "--delay-levels", LEVELS)
    assert (same.exit_code, same.stderr) == (0, "")
    assert same.stdout.endswith("nothing changes\n")
    said = json.loads(groups("set", "--delay-levels", "1s 9s", "--yes", "-o", "json").stdout)
    assert said["changes"] == [{"name": "messageDelayLevel", "is_now": LEVELS, "will_be": "1s 9s"}]


def test_a_group_that_is_new_is_said_to_be(groups: Run) -> None:
    groups("set", "departures")
    new = groups("set", "departrues", "--retry-max-times", "3").stdout
    assert new.startswith("group 'departrues' is new; registered before: ")
    assert "departures" in new
    assert "A typo? reconsume groups delete departrues\n" in new
    assert "is new" not in groups("set", "departrues", "--retry-max-times", "4").stdout
    assert groups("set", "departrues", "--retry-max-times", "5").stdout.startswith(
        "~ group departrues: retryMaxTimes 4 -> 5\n"
    )
    said = json.loads(groups("set", "departrues", "--retry-max-times", "6", "-o", "json").stdout)
    assert (said["is_new"], said["group"]["retryMaxTimes"]) == (False, 6)
    assert said["changes"] == [{"name": "retryMaxTimes", "is_now": 5, "will_be": 6}]
    assert json.loads(groups("set", "another", "-o", "json").stdout)["is_new"]


def test_a_group_is_deleted_and_its_topics_stay(groups: Run, here: Installation) -> None:
    groups("set", "gone")
    topic = here.settings.names.retry("gone")
    here.admin.create(topic, 1, -1, {})
    asked = groups("delete", "gone")
    assert "pass --yes" in refused(asked)
    assert asked.stderr.startswith('- group gone: {"groupName":"gone"')
    assert "its topics stay; as an unknown group it is served with defaults" in asked.stderr
    assert json.loads(groups("delete", "gone", "--yes", "-o", "json").stdout)["deleted"] == "gone"
    assert "gone" not in read_groups(here.cluster).by_name
    assert topic in here.admin.topics()
    assert refused(groups("delete", "gone", "--yes")).startswith("group 'gone' is not registered; registered are: ")


def test_a_record_that_nobody_can_read_is_deleted_too(groups: Run, here: Installation) -> None:
    write_records(here.cluster, here.settings.names.groups, [("unreadable", "no JSON")])
    assert groups("delete", "unreadable", "--yes").exit_code == 0
    assert read_groups(here.cluster).unreadable == {}


def test_options_of_one_group_are_not_taken_for_all(groups: Run) -> None:
    assert "these options apply to one group: name it" in refused(groups("set", "--retry-max-times", "3"))
    assert "leave the group out" in refused(groups("set", "g", "--delay-levels", "1s"))
    assert "name a group, or what to set for all" in refused(groups("set"))


def test_groups_show_their_own_waits(groups: Run) -> None:
    groups("set", "three", "--retry-max-times", "3")
    listed = json.loads(groups("list", "-o", "json").stdout)["groups"]
    assert [one["waits"] for one in listed if one["groupName"] == "three"] == ["1s 2s ×2"]
    [row] = [line for line in groups("list").stdout.splitlines() if "three" in line]
    assert [cell.strip() for cell in row.split("│")[1:7]] == ["three", "3", "1", "", "", "1s 2s ×2"]
    facts = dict(line.split(maxsplit=1) for line in groups("get", "three", "-o", "table").stdout.splitlines())
    assert (facts["waits"], facts["registered"]) == ("1s 2s ×2", "yes")
    assert json.loads(groups("get", "three").stdout)["retryMaxTimes"] == 3


def test_of_two_who_change_a_group_at_once_both_changes_count(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes when the first has read the group, and has not written yet."""
    others = [{"maxWaiting": 7}, {"retryMaxTimes": 3}]
    decided: list[SubscriptionGroupConfig] = []

    def somebody_else(_cluster: object, groups: Groups) -> None:
        decided.append(groups.by_name["shared"])
        if others:
            change_group(here.cluster, "shared", others.pop())

    monkeypatch.setattr(groups_file, "make_parked_topics", somebody_else)
    _, config, changed = change_group(here.cluster, "shared", {"retryPaused": True})
    assert read_groups(here.cluster).by_name["shared"] == config
    assert (config.retry_paused, config.retry_max_times, config.max_waiting) == (True, 3, 7)
    assert [one.name for one in changed] == ["retryPaused"]
    assert len(decided) == 5, "those who were fenced decide again"


def while_asked(monkeypatch: pytest.MonkeyPatch, module: object, change: Callable[[], object]) -> None:
    """Somebody else changes something while a person thinks about the question."""

    def confirm(_question: str, *, yes: bool) -> None:
        assert not yes
        change()

    monkeypatch.setattr(module, "confirm", confirm)


def test_a_table_and_a_switch_of_two_people_both_count(
    groups: Run, here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_asked(monkeypatch, commands, lambda: here.write_groups(auto_create=False))
    assert groups("set", "--delay-levels", "1s 9s").exit_code == 0
    # Kafka acknowledges a commit before readers of committed records see it.
    wait_until(lambda: read_groups(here.cluster).system.message_delay_level == "1s 9s", "the commit")
    assert read_groups(here.cluster).system.auto_create_subscription_group is False


def test_topic_settings_and_a_table_of_two_people_both_count(groups: Run, here: Installation) -> None:
    cluster = Cluster(here.settings.model_copy(update={"topics": TopicSettings(retention_days=8)}))
    here.write_groups()
    plan = make_plan(cluster)
    assert groups("set", "--delay-levels", "1s 9s", "--yes").exit_code == 0
    apply_plan(cluster, plan, as_json=True)
    system = read_groups(here.cluster).system
    assert system.topic_settings is not None
    assert (system.message_delay_level, system.topic_settings.retention_days) == ("1s 9s", 8)


def test_a_group_that_somebody_changes_before_its_deletion_stays(
    groups: Run, here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups("set", "wanted")
    while_asked(monkeypatch, commands, lambda: change_group(here.cluster, "wanted", {"maxWaiting": 7}))
    assert refused(groups("delete", "wanted")).startswith("group 'wanted' was changed meanwhile; nothing was deleted")
    assert read_groups(here.cluster).by_name["wanted"].max_waiting == 7


def test_a_file_overwrites_nothing_that_its_plan_has_not_shown(
    groups: Run, here: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text("groups: {listed: {retryMaxTimes: 3}}")
    while_asked(monkeypatch, file_commands, lambda: change_group(here.cluster, "listed", {"retryMaxTimes": 9}))
    assert "groups were changed meanwhile" in refused(groups("apply", "-f", str(file)))
    assert read_groups(here.cluster).by_name["listed"].retry_max_times == 9
    paused = {"retryPaused": True}
    while_asked(monkeypatch, file_commands, lambda: change_group(here.cluster, "listed", paused))
    assert groups("apply", "-f", str(file)).exit_code == 0
    listed = read_groups(here.cluster).by_name["listed"]
    assert (listed.retry_max_times, listed.retry_paused) == (3, True)


@pytest.mark.parametrize(("delivery", "records"), [("transactional", 2), ("at_least_once", 1)])
def test_groups_are_changed_without_transactions_where_schedulers_have_none(
    here: Installation, groups: Run, monkeypatch: pytest.MonkeyPatch, delivery: str, records: int
) -> None:
    """The end of a transaction takes an offset, too."""
    where = here.cluster.names.groups, 0

    def end(*, uncommitted: bool = True) -> int:
        return here.cluster.admin.end_offsets([where], uncommitted=uncommitted)[where]

    def no_transaction_is_open() -> bool:
        return end(uncommitted=False) == end()

    groups("list")
    wait_until(no_transaction_is_open)
    before = end()
    monkeypatch.setenv("RECONSUME_SCHEDULER__DELIVERY", delivery)
    monkeypatch.setattr(here, "write_groups", lambda: None)
    done = groups("set", "departures", "--retry-max-times", "5")
    assert done.exit_code == 0, done.output
    wait_until(no_transaction_is_open)
    assert end() - before == records
    assert read_groups(here.cluster).by_name["departures"].retry_max_times == 5
