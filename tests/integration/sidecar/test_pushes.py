"""One sidecar process that serves the API and pushes, as a settings file says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.installation import Installation, installation
from tests.integration.push.push_app import app
from tests.integration.sidecars import call
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def test_a_settings_file_has_a_sidecar_push_and_retry(here: Installation, tmp_path: Path) -> None:
    group, topic = here.name("pushed"), here.topic("pushed")
    file, log = tmp_path / "sidecar.yaml", tmp_path / "sidecar.log"
    with app(lambda one, before: {"status": 500 if one.value == "late" and before == 0 else 200}) as flights:
        subscription = {"group": group, "topics": [topic], "url": flights.url}
        settings = {
            "bootstrap_servers": here.settings.bootstrap_servers,
            "topic_prefix": here.settings.topic_prefix,
            "kafka": {"auto.offset.reset": "earliest"},
            "sidecar": {"listen": {"port": 0}},
            "management": {"port": 0},
            "subscriptions": [subscription],
        }
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        command = [sys.executable, "-m", "reconsume", "sidecar", "--config", str(file)]
        with (
            log.open("wb") as out,
            subprocess.Popen(command, stdout=out, stderr=out, env=dict(os.environ)) as process,
        ):
            try:
                served = wait_until(
                    lambda: re.search(r"API: http://(\S+), management: http://(\S+)", log.read_text()),
                    "it serves",
                )
                assert served is not None
                here.produce(topic, b"on time", b"late")
                wait_until(lambda: flights.times("late") == [0, 1], "the late one came again")
                assert flights.times("on time") == [0]
                wait_until(lambda: call(served[2], "GET", "/readyz").status == 200, "it is ready")
                metrics = call(served[2], "GET", "/metrics").body.decode()
                assert f'reconsume_push_deliveries_total{{group="{group}",outcome="retry"}} 1.0' in metrics
                assert call(served[1], "GET", f"/v1/groups/{group}").status == 200
                assert call(served[2], "PUT", "/loglevel", b"debug").body == b"DEBUG\n"
                assert call(served[2], "GET", "/loglevel").body == b"DEBUG\n"
                assert call(served[2], "PUT", "/loglevel", b"loud").status == 400
                assert call(served[2], "PUT", "/livez").status == 405
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0, log.read_text()
            finally:
                process.kill()
    assert here.committed(group, topic) == 2
