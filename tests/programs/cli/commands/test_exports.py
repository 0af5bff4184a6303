"""An export that is ended before its end leaves no file that looks complete."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, wait_until

PROGRAM = """
import signal, sys, time
from pathlib import Path
from reconsume.cli.commands import dlq, quarantine
from reconsume.cli.main import main


def never_ending(*_args, **_options):
    Path(sys.argv[-1]).with_suffix(".begun").touch()
    time.sleep(600)
    yield


# A shell starts commands in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
dlq._all = quarantine._matching = never_ending
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["dlq export departures", "quarantine export"])
def test_an_export_that_is_ended_by_a_signal_leaves_no_file(
    tmp_path: Path, number: signal.Signals, command: str
) -> None:
    file = tmp_path / "letters.jsonl"
    arguments = [sys.executable, "-c", PROGRAM, *command.split(), "--file", str(file)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as export:
        try:
            wait_until(file.with_suffix(".begun").exists, "the export has begun")
            assert file.exists()
            export.send_signal(number)
            _, told = export.communicate(timeout=PATIENCE)
        finally:
            export.kill()
    assert (export.returncode, told) == (128 + number, b"")
    assert not file.exists()
