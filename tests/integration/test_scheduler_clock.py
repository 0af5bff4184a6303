"""A worker whose own clock is wrong delivers by the brokers' clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconsume.cli.chaos.worker import set_ahead
from tests.integration.installation import installation, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

DELAY_MS = 1_000


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
@pytest.mark.parametrize("ahead", [40.0, -40.0], ids=["ahead", "behind"])
def test_a_clock_that_is_set_wrong_makes_nothing_early_and_nothing_late(
    bootstrap_servers: str, tmp_path: Path, ahead: float, delivery: str
) -> None:
    settings = settings_for(bootstrap_servers)
    with installation(bootstrap_servers, prefix=settings.topic_prefix) as one:
        pass  # its topics are there, its scheduler is gone
    clock = tmp_path / "clock"
    set_ahead(clock, 0)
    command = [
        *(sys.executable, "-m", "reconsume.cli.chaos.worker", str(clock), "scheduler"),
        *("--instance-id", "wrong", "--bootstrap-servers", bootstrap_servers, "--management", "127.0.0.1:0"),
    ]
    environment = os.environ | {
        "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
        "RECONSUME_SCHEDULER__DELIVERY": delivery,
    }
    group = one.name("g")

    def wait(count: int) -> None:
        one.produce(settings.names.delay(DELAY_MS), b"%d" % count, headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
        wait_until(lambda: len(one.retries(group)) == count, 60, f"delivery {count}")

    with subprocess.Popen(command, env=environment) as worker:
        try:
            wait(1)
            set_ahead(clock, ahead)
            for count in (2, 3):
                wait(count)
        finally:
            worker.kill()
    stored = {record.value: record.timestamp for record in one.waiting(DELAY_MS, group)}
    waited = {record.value: record.timestamp - stored[record.value] for record in one.retries(group)}
    assert min(waited.values()) >= DELAY_MS
    assert max(waited[b"2"], waited[b"3"]) < DELAY_MS + 30_000, "a clock that is 40 s behind made them late"
