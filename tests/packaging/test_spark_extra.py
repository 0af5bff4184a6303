"""`pip install '.[cli,spark]'` in an empty environment, with each Spark that it may bring: all read and write Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconsume.cli.broker.java import find_java
from tests.integration.installation import Installation
from tests.spark.histories.dead_letters import replayed, with_dead_letters

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800), pytest.mark.long]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["4.0", "4.1", "4.2"])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of the environment are."""
    folder = tmp_path_factory.mktemp("spark") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, ".[cli,spark]", f"pyspark=={request.param}.*"], check=True, cwd=ROOT)
    return folder / "bin"


def told(programs: Path, one: Installation, *arguments: str, code: int = 0) -> Any:
    """Return what a command prints as JSON; it must end with this exit code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "JDK_JAVA"))} | {
        "RECONSUME_BOOTSTRAP_SERVERS": one.settings.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": one.settings.topic_prefix,
        # The extra brings no Java.
        "JAVA_HOME": str(find_java().resolve().parent.parent),
    }
    command = [str(programs / "reconsume"), *arguments, "-o", "json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == code, run.stderr[-4_000:] + run.stdout[-1_000:]
    return json.loads(run.stdout)


def test_replay_and_reconcile_run(programs: Path, bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 10)
    done = told(programs, one, "replay", "--where", "cause = 'timeout'", "--plan", str(tmp_path / "plan"), "--yes")
    assert (done["sent"], done["report"]) == (5, {"sent": 5})
    assert sum(replayed(one).values()) == 5
    # On a busy machine these commands take longer than a record may be overdue by default.
    check = ("reconcile", "--late", "1h")
    found = told(programs, one, *check, "--report", str(tmp_path / "report.html"), code=1)
    assert found["waiting"] == 5
    assert found["findings"] == {"ORPHAN": 10}, "the dead letters were made by hand, and never sent back"
    assert (tmp_path / "report.html").stat().st_size > 0
    ledger = ("--ledger", str(tmp_path / "ledger"))
    runs = [told(programs, one, *check, *ledger, code=code)["findings"] for code in (1, 0)]
    assert runs == [{"ORPHAN": 10}, {}], "what a run has settled, the next one does not judge again"
