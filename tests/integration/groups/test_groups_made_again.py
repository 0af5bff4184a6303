"""The GROUPS topic is deleted and made again under processes that follow it."""

from __future__ import annotations

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
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
        wait_until(lambda: follower.groups.is_paused("g4"), 60, "the groups are known")
        here.delete(names.groups)
        wait_until(lambda: not here.admin.partitions([names.groups]), 60, "the topic is gone")
        here.admin.create(names.groups, 1, -1, {"cleanup.policy": "compact"})
        if kept is not None:
            here.produce(names.groups, b"{}", key=kept)
        wanted = set() if kept is None else {kept.decode()}
        wait_until(lambda: set(follower.groups.by_name) == wanted, 120, "only the groups of the new topic are known")
    finally:
        follower.close()
