"""What a group may do, by its SubscriptionGroupConfig."""

from __future__ import annotations

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.consumers.sending.retry_topic import check_group_consumes
from reconsume.delay_levels.errors import KafkaRefused


def groups(**config: bool) -> Groups:
    return Groups(by_name={"g": SubscriptionGroupConfig(group_name="g", **config)})


@pytest.mark.parametrize(
    ("config", "broadcasting", "refused"),
    [
        ({}, False, None),
        ({}, True, None),
        ({"consume_enable": False}, False, "consumeEnable is false"),
        ({"consume_enable": False}, True, "consumeEnable is false"),
        ({"consume_broadcast_enable": False}, False, None),
        ({"consume_broadcast_enable": False}, True, "consumeBroadcastEnable is false.*--consume-broadcast-enable"),
    ],
)
def test_a_group_consumes_as_it_is_allowed_to(config: dict[str, bool], broadcasting: bool, refused: str | None) -> None:
    if refused is None:
        check_group_consumes("g", groups(**config), broadcasting=broadcasting)
    else:
        with pytest.raises(KafkaRefused, match=refused):
            check_group_consumes("g", groups(**config), broadcasting=broadcasting)
