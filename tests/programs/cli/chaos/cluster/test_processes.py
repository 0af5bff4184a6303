"""Processes under test end with the run, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from reconsume.cli.chaos.cluster.processes import UnderTest
from tests.support.waiting import wait_until

RUN = """
import sys, time
from pathlib import Path
from reconsume.cli.chaos.cluster.processes import UnderTest

waits = "import time; print('runs', flush=True); time.sleep(600)"
one = UnderTest("one", [sys.executable, "-c", waits], Path(sys.argv[1]))
one.start()
print(one.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a process with its parent")
def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        child = psutil.Process(int(run.stdout.readline()))
        wait_until(lambda: (tmp_path / "one.log").read_text() == "runs\n", "it runs")
        run.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it is gone")


def test_it_is_the_program_itself_that_is_killed_and_its_log_that_stays(tmp_path: Path) -> None:
    one = UnderTest("one", [sys.executable, "-c", "import os; print(os.getpid(), flush=True); input()"], tmp_path)
    one.start()
    try:
        wait_until(lambda: one.log.exists() and one.has_ended, "it has ended")
        assert one.log.read_text().startswith(f"{one.pid}\n")
    finally:
        one.kill()


def test_a_process_does_not_read_the_settings_of_the_users_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONSUME_BOOTSTRAP_SERVERS", "production:9092")
    monkeypatch.setenv("RECONSUME_CONFIG", "/etc/reconsume.toml")
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    program = "import os; print(*sorted(name for name in os.environ if name.startswith('RECONSUME_')))"
    one = UnderTest("one", [sys.executable, "-c", program], tmp_path)
    one.start()
    wait_until(lambda: one.has_ended, "the process has ended")
    one.kill()
    assert one.log.read_text() == "RECONSUME_CACHE_DIR\n"
