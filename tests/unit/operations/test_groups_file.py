"""Groups as a file, compared with what is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig, parse_group_config
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.process.yaml_text import parse_yaml
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations import groups_file
from reconsume.operations.groups_file import Change, change_groups, parse_groups_file, plan_groups

FILE = """
system: {messageDelayLevel: 1s 5s}
defaults: {retryMaxTimes: 5}
groups:
  departures: {retryQueueNums: 4}
  arrivals: {retryMaxTimes: 3}
  42:
"""


def registered(*configs: SubscriptionGroupConfig, system: SystemConfig | None = None) -> Groups:
    return Groups(system or SystemConfig(), {one.group_name: one for one in configs})


def test_defaults_hold_where_a_group_says_nothing_else() -> None:
    file = parse_groups_file(parse_yaml(FILE))
    assert {name: (one.retry_max_times, one.retry_queue_nums) for name, one in file.groups.items()} == {
        "departures": (5, 4),
        "arrivals": (3, 1),
        "42": (5, 1),
    }


def test_a_plan_adds_changes_and_removes_nothing() -> None:
    old = SubscriptionGroupConfig(group_name="old")
    departures = SubscriptionGroupConfig(group_name="departures", retry_max_times=16, retry_queue_nums=4)
    plan = plan_groups(parse_groups_file(parse_yaml(FILE)), registered(old, departures))
    assert [one.group_name for one in plan.added] == ["arrivals", "42"]
    assert plan.changed == {"departures": [Change("retryMaxTimes", 16, 5)]}
    assert plan.unlisted == ["old"]
    assert [change.name for change in plan.system] == ["messageDelayLevel"]
    assert plan.wanted.by_name.keys() == {"old", "departures", "arrivals", "42"}
    assert not plan.is_empty(delete=False)


def test_an_unreadable_record_is_written_anew_though_its_earlier_one_has_the_same_values() -> None:
    """Compaction removes the earlier one."""
    file = parse_groups_file({"system": {"messageDelayLevel": "1m 5m"}, "groups": {"g": {"retryMaxTimes": 3}}})
    known = Groups().with_record(b"%SYS%", b'{"messageDelayLevel": "1m 5m"}').with_record(b"g", b'{"retryMaxTimes": 3}')
    assert plan_groups(file, known).is_empty(delete=True)
    plan = plan_groups(file, known.with_record(b"%SYS%", b"{").with_record(b"g", b"{"))
    assert Change("messageDelayLevel", None, "1m 5m") in plan.system
    assert Change("retryMaxTimes", None, 3) in plan.changed["g"]
    assert plan.wanted.table == known.table


def test_what_was_applied_changes_nothing_and_keeps_what_newer_versions_stored() -> None:
    file = parse_groups_file({"groups": {"g": {"retryMaxTimes": 3}}})
    known = parse_group_config("g", '{"retryMaxTimes": 3, "brokerId": 7}')
    assert plan_groups(file, registered(known)).is_empty(delete=True)
    changed = plan_groups(parse_groups_file({"groups": {"g": {"retryMaxTimes": 4}}}), registered(known))
    assert '"brokerId":7' in changed.wanted.by_name["g"].to_json()


def test_a_removal_counts_only_when_it_is_asked_for() -> None:
    plan = plan_groups(parse_groups_file({}), registered(SubscriptionGroupConfig(group_name="old")))
    assert plan.is_empty(delete=False)
    assert not plan.is_empty(delete=True)


def test_a_group_that_is_removed_wants_no_topics() -> None:
    file, old = parse_groups_file({"groups": {"new": {}}}), registered(SubscriptionGroupConfig(group_name="old"))
    assert plan_groups(file, old).wanted.by_name.keys() == {"old", "new"}
    assert plan_groups(file, old, delete=True).wanted.by_name.keys() == {"new"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["g"], "the file must hold names and values"),
        ({"group": {}}, "the file: unknown group; known here: system, defaults, groups"),
        ({"groups": {"g": {"retryMaxTime": 3}}}, "group 'g': unknown retryMaxTime; known here: consumeEnable"),
        ({"groups": {"g": {"retryMaxTimes": "many"}}}, "group 'g': retryMaxTimes"),
        ({"groups": {"g": {"groupName": "h"}}}, "group 'g': unknown groupName"),
        ({"groups": {"": {}}}, "the consumer group is blank"),
        ({"groups": {"g": 3}}, "group 'g' must hold names and values, not 3"),
        ({"defaults": {"x": 1}}, "defaults: unknown x"),
        ({"system": {"messageDelayLevel": "soon"}}, "messageDelayLevel"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(value: Any, said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        parse_groups_file(value)


def test_a_change_replaces_the_former_record_when_the_topic_got_more_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[NewRecord] = []

    def write(_cluster: Cluster, _id: str, _doing: str, decide: Callable[[], Iterable[NewRecord]]) -> None:
        written.extend(decide())

    monkeypatch.setattr(Cluster, "require", lambda _self, topic: topic)
    monkeypatch.setattr(groups_file, "read_groups", lambda _cluster, **_: Groups())
    monkeypatch.setattr(groups_file, "write_exclusively", write)
    change_groups(Cluster(Settings(bootstrap_servers="127.0.0.1:9")), lambda _groups: {"g": "{}", "removed": None})
    assert [(one.key, one.value, one.partition) for one in written] == [(b"g", b"{}", 0), (b"removed", None, 0)]
