from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import PATIENCE, wait_until

HANGS = 'echo $$ > "{here}/hangs"; exec sleep 600'
VERSION = "echo 'openjdk version \"21.0.8\"' >&2"


def make_java(here: Path, when_asked: str, when_run: str) -> None:
    """A Java that does one thing when it is asked for its version and another when it runs Ivy."""
    java = here / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {when_asked}; else {when_run}; fi\n')
    java.chmod(0o755)


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended; its parent has too, so its entry stays until init takes note, which may take minutes.

    Its number may be another process's by then, which `is_running` tells.
    """
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("while_it", ["looks for Java", "fetches Kafka"])
def test_a_signal_before_kafka_is_up_ends_what_is_done_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, while_it: str
) -> None:
    cache = tmp_path / "cache"
    hangs = HANGS.format(here=tmp_path)
    make_java(tmp_path, *((hangs, "false") if while_it == "looks for Java" else (VERSION, hangs)))
    environment = os.environ | {"JAVA_HOME": str(tmp_path), "RECONSUME_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "reconsume", "broker", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as broker:
        marker = tmp_path / "hangs"
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), f"it {while_it}")
        child = psutil.Process(int(marker.read_text()))
        broker.send_signal(number)
        _, told = broker.communicate(timeout=PATIENCE)  # it waits for the child too, which holds the pipe
    assert broker.returncode == 128 + number
    assert b"Traceback" not in told
    wait_until(lambda: is_gone(child), "its child is gone")
    assert [path.name for path in cache.glob("*") if path.is_dir()] == []
