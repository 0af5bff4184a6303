"""Several executors, in JVMs of their own: what remains when one of them or the driver dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile import ledger_runs, read_ledger
from reconsume.spark_connectors.replay import plan_replay, run_replay
from tests.spark.cluster.executors import CLUSTER, TESTS, environment
from tests.spark.histories.copies import Copy, write
from tests.spark.histories.dead_letters import replayed, with_dead_letters
from tests.spark.histories.lived import Lived
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(5)]


def executors(pid: int) -> list[int]:
    def command(one: int) -> bytes:
        try:
            return Path(f"/proc/{one}/cmdline").read_bytes()
        except OSError:
            return b""

    return [one for one in descendants(pid) if b"CoarseGrainedExecutorBackend" in command(one)]


def descendants(pid: int) -> list[int]:
    """Java starts processes from any of its threads, which are their parents."""
    found = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    for task in tasks:
        try:
            begun = [int(one) for one in (task / "children").read_text().split()]
        except OSError:
            continue
        for one in begun:
            found += [one, *descendants(one)]
    return found


@contextmanager
def started(program: str, bootstrap_servers: str, prefix: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(TESTS / program), *arguments]
    with subprocess.Popen(
        command,
        env=environment(bootstrap_servers, prefix),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            yield run
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


@pytest.mark.parametrize("dies", ["executor", pytest.param("driver", marks=pytest.mark.long)])
def test_reconcile_finds_all_once_though_a_process_dies_in_the_middle(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path, dies: str
) -> None:
    prefix, folder = write(lived.bootstrap_servers, taken), str(tmp_path / "ledger")
    more = (CLUSTER, lived.bootstrap_servers, prefix, folder)
    with started("cluster/run_reconcile.py", lived.bootstrap_servers, prefix, *more) as run:
        assert (run.stdout, run.stdin) != (None, None)
        said: list[str] = []
        assert run.stdout is not None
        for line in run.stdout:
            said.append(line)
            if "judging" in line:
                break
        assert "judging" in said[-1]
        if dies == "driver":
            os.killpg(run.pid, signal.SIGKILL)
        else:
            os.kill(executors(run.pid)[0], signal.SIGKILL)
        assert run.stdin is not None
        if dies == "executor":
            print("go on", file=run.stdin, flush=True)
            told: dict[str, Any] = json.loads(run.stdout.read().splitlines()[-1])
            assert (told["findings"], run.wait(PATIENCE)) == ({}, 0)
    if dies == "driver":
        again = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, ledger=folder)
        assert again.findings.count() == 0
        again.close()
    assert len(ledger_runs(spark, folder)) == 1
    assert read_ledger(spark, folder).count() == len(taken.of("DELAY."))


def test_a_replay_whose_executor_dies_stops_and_the_next_run_sends_the_rest(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 120)
    prefix, lane = one.settings.topic_prefix, one.settings.names.delay(0)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=prefix)
    arguments = ("plan", bootstrap_servers, prefix, str(tmp_path), "10", CLUSTER)
    with started("replay/run_replay.py", bootstrap_servers, prefix, *arguments) as run:
        wait_until(lambda: len(one.read(lane)) >= 20, "the first records are sent")
        for executor in executors(run.pid):
            os.kill(executor, signal.SIGKILL)
        # A chunk that was in the middle stops the run; between two chunks new executors take the place of these.
        wait_until(lambda: run.poll() is not None or len(one.read(lane)) >= 120, "it stops or goes on")
    run_replay(spark, bootstrap_servers, plan, settle_seconds=2)
    assert replayed(one) == {f"flights/0/{number}": 1 for number in range(120)}
