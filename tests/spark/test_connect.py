"""The same tests on Spark Connect, in a process of their own: one process has sessions of one sort only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = ["test_readers.py", "test_names.py", "test_dialects.py", "test_replay_runs.py"]
NOT_THERE = "killed"
"""Tests that start a Spark of their own."""


@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_readers_and_replays_work_over_spark_connect(bootstrap_servers: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-k", f"not {NOT_THERE}", *(str(HERE / name) for name in TESTS)]
    environment = os.environ | {"RECONSUME_TEST_SPARK": "connect", "RECONSUME_TEST_BOOTSTRAP": bootstrap_servers}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=HERE.parents[1])
    assert run.returncode == 0, run.stdout[-8000:]
    assert " passed" in run.stdout
