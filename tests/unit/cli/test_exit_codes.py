"""Exit codes: 1 is what a command found, 2 is a command that could not run. CronJobs and CI tell them apart."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from reconsume.cli.commands import topics
from reconsume.cli.main import main

ROOT: Final = Path(__file__).parents[3]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["reconsume", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize(
    "arguments",
    [
        ("reconcile", "--since"),
        ("reconcile", "--no-such-option"),
        ("topics", "acls", "--role", "nobody"),
        ("replay", "--max-replays", "0"),
    ],
)
def test_a_wrong_command_line_is_an_error(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.setattr("reconsume.cli.spark.replay.replay", lambda *_, **__: None)
    assert run(monkeypatch, *arguments) == 2


@pytest.mark.parametrize("option", ["--minutes", "--rate"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e300", "0"])
def test_numbers_that_chaos_cannot_use_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    monkeypatch.setattr("reconsume.cli.chaos.run.chaos", lambda *_, **__: True)
    assert run(monkeypatch, "chaos", option, value) == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("command", ["broker --data", "console --index-folder"])
def test_a_folder_without_a_name_is_refused_and_not_taken_for_the_current_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr("reconsume.cli.broker.command.run_broker", lambda *_, **__: None)
    monkeypatch.setattr("reconsume.cli.actions.processes.run_console", lambda *_, **__: None)
    assert run(monkeypatch, *command.split(), "") == 2
    said = capsys.readouterr().err
    assert command.split()[1] in said
    assert "the name is empty" in said
    assert run(monkeypatch, *command.split(), ".") == 0


def test_an_error_of_ours_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert run(monkeypatch, "reconcile", "--config", f"{tmp_path}/none.toml") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "-b", "\udcff:9092"),
        ("dlq", "list", "departures", "--key", "\udcff"),
        ("quarantine", "resolve", "0/1", "--why", "\udcff", "--yes"),
        ("quarantine", "release", "0/1", "--header", "A=\udcff", "--yes"),
    ],
)
def test_arguments_that_are_no_text_are_refused_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert "must be text that UTF-8 can hold" in said
    assert "Traceback" not in said
    assert run(monkeypatch, "config", "show", "-X", "client.rack=\u00fc\ud55c\\udcff") == 0


def test_an_output_that_is_not_read_is_no_finding() -> None:
    command = [sys.executable, "-m", "reconsume", "topics", "acls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as unread:
        assert unread.stdout is not None
        assert unread.stderr is not None
        unread.stdout.close()
        assert unread.wait(60) == 2
        assert unread.stderr.read() == b""


def test_a_question_without_an_answer_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise EOFError

    monkeypatch.setattr(topics, "acl_commands", ask)
    assert run(monkeypatch, "topics", "acls") == 2


def test_an_unexpected_error_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(topics, "acl_commands", fail)
    assert run(monkeypatch, "topics", "acls") == 2
    assert "RuntimeError: a defect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "module", "said"),
    [
        ("sidecar", "uvloop", "this command needs uvloop: pip install '.[cli,sidecar]' in the checkout"),
        ("chaos --sidecar", "uvloop", "--sidecar needs uvloop: pip install '.[cli,sidecar]' in the checkout"),
        ("console", "jinja2", "this command needs jinja2: pip install '.[cli,console]' in the checkout"),
        ("reconcile", "pyspark", "this command needs pyspark: pip install '.[cli,spark]' in the checkout"),
    ],
)
def test_a_missing_module_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, module: str, said: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else found(name))
    assert run(monkeypatch, *arguments.split()) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


def test_what_is_well_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "topics", "acls") == 0


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
