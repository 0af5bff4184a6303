"""A send-back through the inbox for a level whose topic is missing: the brokers must not make it by themselves."""

from __future__ import annotations

import pytest

from reconsume.delay_levels.rules.levels import DelayLevels
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


def test_the_scheduler_makes_it_with_the_clock_of_the_brokers(bootstrap_servers: str) -> None:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    # This worker alone has a level more, and nobody has made its topic.
    settings = one.settings.model_copy(update={"message_delay_level": f"{LEVELS} 7m"})
    names, group = one.settings.names, one.name("g")
    lane = names.delay(DelayLevels.parse("7m").delay_ms(1))
    wish = [
        ("REAL_TOPIC", f"%RETRY%{group}".encode()),
        ("RETRY_TOPIC", b"flights"),
        ("DELAY_LEVEL_WHEN_NEXT_CONSUME", b"5"),
    ]
    one.produce(names.send_back, b"v", headers=wish)
    with scheduler(settings):
        wait_until(lambda: lane in one.admin.topics() and one.read(lane), "it waits on the lane")
    assert one.admin.settings([lane])[lane]["message.timestamp.type"] == "LogAppendTime"
    assert len(one.read(lane)) == 1
    assert one.read(names.quarantine) == []
