"""Tests of this folder's parent on several executors, in JVMs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CLUSTER = "local-cluster[3,1,1024]"
TESTS = Path(__file__).parents[1]
ROOT = TESTS.parents[1]


def environment(bootstrap_servers: str, prefix: str = "reconsume.") -> dict[str, str]:
    """Return the environment of a process of its own."""
    kafka = {"RECONSUME_BOOTSTRAP_SERVERS": bootstrap_servers, "RECONSUME_TEST_BOOTSTRAP": bootstrap_servers}
    return os.environ | kafka | {"RECONSUME_TOPIC_PREFIX": prefix, "PYTHONPATH": str(ROOT)}


def require_passing(bootstrap_servers: str, *names: str) -> None:
    """Run these tests on three executors; fail with their output unless all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [str(TESTS / name) for name in names]
    chosen = environment(bootstrap_servers) | {"RECONSUME_TEST_SPARK": CLUSTER}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        chosen.pop(name, None)
    done = subprocess.run(command, env=chosen, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6_000:]
