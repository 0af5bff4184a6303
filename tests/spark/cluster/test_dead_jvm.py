"""A Spark whose process is killed in the middle: one error, an exit code, no hang."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLED = """
import os, signal, sys
from reconsume.cli.spark import {command}

def dies(spark, *_arguments, **_options):
    session = getattr(spark, "spark", spark)
    os.kill(session._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
    session.range(10).count()

{patches}
sys.argv = ["reconsume", *{arguments!r}, "-b", "127.0.0.1:9", "--master", "local[1]"]
from reconsume.cli.main import main
main()
"""
PATCHES = {
    "reconcile": "reconcile.read_committed = lambda _settings: {}; reconcile.reconcile = dies",
    "replay": "replay._check_topics = lambda *_: {}; replay.open_plan = dies",
}


@pytest.mark.parametrize("command", list(PATCHES))
def test_the_error_says_that_spark_ended_and_what_to_do(command: str, tmp_path: Path) -> None:
    program = KILLED.format(command=command, patches=PATCHES[command], arguments=[command])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "Spark's process ended, as by kill -9 or without memory; run it again" in done.stderr
    assert not list(tmp_path.glob("reconsume-*"))
