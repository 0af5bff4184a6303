"""How a worker joins its group."""

from __future__ import annotations

import pytest

from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.bridge.scheduler.service import SchedulerService


@pytest.mark.parametrize("static", [True, False])
def test_a_worker_is_a_static_member_unless_the_setting_says_otherwise(static: bool) -> None:
    scheduler = SchedulerSettings(instance_id="one", static_membership=static, session_timeout_ms=9_000)
    settings = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9", scheduler=scheduler))._consumer_settings()
    assert settings.get("group.instance.id") == ("reconsume-scheduler-one" if static else None)
    assert (settings["session.timeout.ms"], settings["heartbeat.interval.ms"]) == (9_000, 1_000)
