"""Some of the tests on Spark Connect, in a process of their own: one process has sessions of one sort only.

`RECONSUME_TEST_SPARK=connect` runs all of them so, see docs/testing.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parents[1]
TESTS: Final = (
    "reconcile/test_faults.py",
    "replay/test_dialects.py::test_every_family_is_read_into_the_schema",
    "reconcile/test_parallelism.py::test_the_only_partition_of_a_busy_group_is_read_by_several_tasks",
    "test_readers.py::test_several_kinds_in_one_pass",
    "replay/test_runs.py::test_what_the_filter_takes_is_sent_once_and_a_second_run_sends_nothing",
    "replay/test_runs.py::test_a_stream_takes_what_came_since_its_last_run",
)
"""What Spark Connect does in another way: all findings, headers, splits, a function called for each batch, a sink."""


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_reading_reconciling_and_replaying_work_over_spark_connect(bootstrap_servers: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", *(str(HERE / name) for name in TESTS)]
    environment = os.environ | {"RECONSUME_TEST_SPARK": "connect", "RECONSUME_TEST_BOOTSTRAP": bootstrap_servers}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=HERE.parents[1])
    assert run.returncode == 0, run.stdout[-8000:]
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
