"""Exit codes of commands whose standard streams are closed, full or not read, or that Ctrl-C ends early."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.waiting import PATIENCE

ROOT: Final = Path(__file__).parents[3]
MAIN: Final = "from reconsume.cli.entry import main; main()"
IMAGE: Final = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT / "deploy" / "image")!r})
runpy.run_module("reconsume_main")
"""
NO_ROOM: Final = "error: the output is not complete: No space left on device; free some space, or write elsewhere"
ONE_RECORD: Final = """
from reconsume.cli.commands import dlq, quarantine
from reconsume.delay_levels.wire.quarantine import Quarantined
from reconsume.delay_levels.wire.resend import DeadLetterInfo
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.record_address import RecordAddress

FIRST, SOURCE = RecordAddress(0, 0), Position("reconsume.DLQ.departures", 0, 0)
letter = DeadLetterRecord(SOURCE.topic, FIRST, None, None, [], 0, DeadLetterInfo.of("departures", SOURCE, []))
record = QuarantineRecord(FIRST, None, None, Quarantined([], "too large", SOURCE, 0), 0, "OPEN")
dlq._all, quarantine._matching = lambda *_: iter([letter]), lambda *_: iter([record])
"""
CUT_SHORT: Final = """
from reconsume.delay_levels.errors import KafkaNotReachable


def cut_short(one):
    yield one
    raise KafkaNotReachable("no answer")


dlq._all, quarantine._matching = lambda *_: cut_short(letter), lambda *_: cut_short(record)
"""


def test_an_output_that_is_not_read_is_no_finding() -> None:
    command = [sys.executable, "-m", "reconsume", "topics", "acls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as unread:
        assert unread.stdout is not None
        assert unread.stderr is not None
        unread.stdout.close()
        assert unread.wait(PATIENCE) == 2
        assert unread.stderr.read() == b""


def at_shell(command: str, program: str = MAIN) -> tuple[int, str]:
    """What a command of a shell ends with and tells to standard error; RECONSUME stands for the program."""
    command = command.replace("RECONSUME", shlex.join([sys.executable, "-c", program]))
    # Unbuffered output would be complete at once.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(["bash", "-c", command], capture_output=True, check=False, env=buffered)
    return ended.returncode, ended.stderr.decode()


def test_a_full_disk_is_an_error_in_one_line() -> None:
    code, told = at_shell("RECONSUME config schema > /dev/full")
    assert (code, told.splitlines()) == (2, [NO_ROOM])


@pytest.mark.parametrize("command", ["dlq export departures", "quarantine export", "quarantine list -o json"])
@pytest.mark.parametrize(("output", "said"), [("> /dev/full", [NO_ROOM]), ("| true; exit ${PIPESTATUS[0]}", [])])
@pytest.mark.parametrize("end", ["", CUT_SHORT], ids=["to its end", "cut short"])
def test_a_list_is_written_before_its_command_ends(command: str, output: str, said: list[str], end: str) -> None:
    code, told = at_shell(f"RECONSUME {command} {output}", ONE_RECORD + end + MAIN)
    assert (code, told.splitlines()) == (2, said)


@pytest.mark.parametrize("program", [MAIN, IMAGE], ids=["the script", "the image with Spark"])
def test_standard_streams_may_be_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the image has its cache there
    assert at_shell("RECONSUME config check <&- >&-", program) == (0, "")
    assert at_shell("RECONSUME config check 2>&-", program) == (0, "")
    for nowhere in ("<&- >&- 2>&-", "2> /dev/full"):
        code, _ = at_shell(f"RECONSUME config check --process nobody {nowhere}", program)
        assert code == 2, nowhere


def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.path.insert(0, {str(tmp_path)!r}); from reconsume.cli.entry import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", program, "status"], capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, b"")
