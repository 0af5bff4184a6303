"""A command with Spark that is ended by a signal leaves no files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, wait_until

_WAITS = """
import sys, time
from reconsume.cli.spark import java, {command}

def wait(*_arguments, **_options):
    print(java.own_folder(), flush=True)
    time.sleep(600)

{command}.open_session = wait
{command}.read_committed = {command}._check_topics = lambda *_: {{}}
sys.argv = ["reconsume", "{command}", "-b", "127.0.0.1:9"]
from reconsume.cli.main import main
main()
"""


@pytest.mark.parametrize("command", ["reconcile", "replay"])
def test_a_signal_leaves_no_folder(command: str, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    program = [sys.executable, "-c", _WAITS.format(command=command)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as running:
        assert running.stdout is not None
        folder = Path(running.stdout.readline().decode().strip())
        assert folder.is_dir()
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 128 + signal.SIGTERM
    wait_until(lambda: not list(tmp_path.iterdir()), "the folder is gone")
