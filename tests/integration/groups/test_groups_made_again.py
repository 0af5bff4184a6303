"""The GROUPS topic is deleted and made again under processes that follow it, or gets more partitions."""

from __future__ import annotations

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.groups.groups_store import read_groups
from reconsume.operations.groups_file import change_group, remove_group
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]


@pytest.fixture
def here(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    return one


@pytest.mark.parametrize("kept", [b"few", None], ids=["with fewer groups", "empty"])
def test_a_process_that_has_run_for_long_knows_what_a_new_one_knows(here: Installation, kept: bytes | None) -> None:
    names = here.settings.names
    for number in range(5):
        here.produce(names.groups, b'{"retryPaused":true}', key=b"g%d" % number)
    follower = GroupsFollower(here.settings.client_settings(), names.groups, Groups())
    follower.start()
    try:
        wait_until(lambda: follower.groups.is_paused("g4"), "the groups are known")
        here.delete(names.groups)
        wait_until(lambda: not here.admin.partitions([names.groups]), "the topic is gone")
        here.admin.create(names.groups, 1, -1, {"cleanup.policy": "compact"})
        if kept is not None:
            here.produce(names.groups, b"{}", key=kept)
        wanted = set() if kept is None else {kept.decode()}
        wait_until(lambda: set(follower.groups.by_name) == wanted, "only the groups of the new topic are known")
    finally:
        follower.close()


def test_a_group_has_one_record_when_the_topic_got_more_partitions(here: Installation) -> None:
    names, groups = here.settings.names, [f"g{number}" for number in range(10)]
    here.write_groups([SubscriptionGroupConfig(group_name=group) for group in groups])
    here.admin.add_partitions(names.groups, 3)
    for group in groups:
        change_group(here.cluster, group, {"maxWaiting": 7})
    remove_group(here.cluster, "g9", read_groups(here.cluster))
    here.write_groups()
    assert set(here.admin.end_offsets([(names.groups, 1), (names.groups, 2)]).values()) == {0}
    assert {name: one.max_waiting for name, one in read_groups(here.cluster).by_name.items()} == dict.fromkeys(
        groups[:9], 7
    )
