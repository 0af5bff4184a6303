"""A process ends at a signal, whichever of its threads the kernel gives it to."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

_SIGNALLED = """
import signal, threading
from reconsume.cli.common import stop_at_signals

stop = stop_at_signals()


def hit():
    waits.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


waits = threading.Event()
thread = threading.Thread(target=hit)
thread.start()
threading.Timer(0.2, waits.set).start()
print(stop.wait(TIMEOUT))
"""


@pytest.mark.parametrize("timeout", ["None", "3_600"])
def test_a_signal_that_another_thread_receives_ends_the_wait(timeout: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _SIGNALLED.replace("TIMEOUT", timeout)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


_WAITS = """
from reconsume.cli.common import stop_at_signals

print(stop_at_signals().wait(1.5))
"""


def test_a_wait_without_a_signal_takes_its_time() -> None:
    began = time.monotonic()
    run = subprocess.run([sys.executable, "-c", _WAITS], capture_output=True, text=True, timeout=60, check=True)
    assert (run.stdout, time.monotonic() - began >= 1.5) == ("False\n", True)


_SIGNALLED_AT_THE_END = """
import os, signal, sys
from reconsume.cli.common import stop_at_signals


class Last:  # Python restores the default handlers of signals before it deletes what modules hold
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGNAL):
        kill(pid, number)


last = Last()
stop_at_signals().set()
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_second_signal_does_not_change_how_a_process_ends(number: str) -> None:
    code = _SIGNALLED_AT_THE_END.replace("SIGNAL", number)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "")
