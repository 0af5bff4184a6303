"""The way out of the command line: foreign text is neither markup nor a control sequence, whatever prints it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from io import StringIO
from pathlib import Path

import pytest
import typer

from reconsume.cli import main as main_module
from reconsume.cli import output
from reconsume.cli.common import confirm
from reconsume.cli.output import Coloured, opened, print_facts
from reconsume.delay_levels.errors import IllegalSetting, KafkaRefused
from reconsume.operations.jobs.letter_files import csv_writer, json_line_writer
from tests.support.hostile import HOSTILE, assert_harmless

SHOWS = "cannot open [/data/in.csv], missing [orders] [red]x[/red]"
PRINTERS: dict[str, Callable[[], None]] = {
    "line": lambda: output.print_line(HOSTILE),
    "tell": lambda: output.tell(HOSTILE),
    "coloured": lambda: output.tell(Coloured(HOSTILE, "red")),
    "error": lambda: output.print_error(KafkaRefused(HOSTILE)),
    "facts": lambda: print_facts({"cause": HOSTILE, "headers": [["name", HOSTILE], [HOSTILE, None]]}),
    "table": lambda: output.print_table("t", ("why",), [[HOSTILE]]),
    "title and column": lambda: output.print_table(HOSTILE, (HOSTILE,), [["x"]]),
    "cell in a colour": lambda: output.print_table("t", None, [["x", Coloured(HOSTILE, "red")]]),
}
JSON_PRINTERS: dict[str, Callable[[], None]] = {
    "document": lambda: output.print_json([{HOSTILE: HOSTILE}]),
    "line": lambda: output.print_json_line([{HOSTILE: HOSTILE}]),
    "list": lambda: output.print_json_list([{HOSTILE: HOSTILE}]),
}


@pytest.mark.parametrize("printer", PRINTERS.values(), ids=PRINTERS.keys())
def test_text_is_shown_whole_and_harmless(printer: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    printer()
    printed = capsys.readouterr()
    assert_harmless(printed.out + printed.err, shows=SHOWS)


@pytest.mark.parametrize("printer", JSON_PRINTERS.values(), ids=JSON_PRINTERS.keys())
def test_json_is_harmless_and_the_same(printer: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    printer()
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert json.loads(printed) == [{HOSTILE: HOSTILE}]


@pytest.mark.parametrize("error", [KafkaRefused(HOSTILE), ValueError(HOSTILE)], ids=["ours", "unexpected"])
def test_an_error_that_ends_a_command_is_harmless(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = typer.Typer()

    @refusing.command()
    def refuse() -> None:
        raise error

    monkeypatch.setattr(main_module, "app", refusing)
    monkeypatch.setattr(sys, "argv", ["reconsume"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr("threading.excepthook", None)
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    assert ended.value.code == 2
    assert_harmless(capsys.readouterr().err, shows=SHOWS)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_question_is_harmless_and_is_no_output_and_no_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    """A program that called the command learns from its exit code that nothing was done."""
    terminal = StringIO(f"{answer}\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    with nullcontext() if answer == "y" else pytest.raises(IllegalSetting, match="nothing was changed"):
        confirm(f"Send dead letters of {HOSTILE} again?", yes=False)
    printed = capsys.readouterr()
    assert printed.out.strip() == ""
    assert_harmless(printed.err, shows=SHOWS)


def test_a_value_of_several_lines_looks_like_no_other_fact(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"cause": "one\nkey             forged", "released": False, "bytes": 1234, "none": None})
    assert capsys.readouterr().out.splitlines() == [
        "cause    one",
        "         key             forged",
        "released no",
        "bytes    1,234",
        "none",
    ]


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(cell: str) -> None:
    out = StringIO(newline="")
    write = csv_writer(out, ("cause", "retries", "value"))
    write({"cause": cell, "retries": -1, "value": {"base64": "AP8="}, "not a column": 1})
    [row] = csv.DictReader(StringIO(out.getvalue(), newline=""))
    assert row["cause"].startswith("'")
    assert (row["retries"], row["value"]) == ("-1", '{"base64": "AP8="}')
    assert_harmless(out.getvalue())


def test_cells_and_json_lines_are_harmless_and_json_is_the_same() -> None:
    table, lines = StringIO(newline=""), StringIO()
    csv_writer(table, ("value",))({"value": HOSTILE})
    json_line_writer(lines)({"value": HOSTILE})
    assert_harmless(table.getvalue(), shows=SHOWS)
    assert_harmless(lines.getvalue())
    assert json.loads(lines.getvalue()) == {"value": HOSTILE}


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    with opened(tmp_path / "new") as out:
        out.write("1")
    with pytest.raises(IllegalSetting, match="name a new file"), opened(tmp_path / "new"):
        pass
    assert (tmp_path / "new").read_text() == "1"


def test_a_file_that_is_not_written_to_its_end_is_removed(tmp_path: Path) -> None:
    def write() -> None:
        with opened(tmp_path / "part") as out:
            out.write("some")
            raise KafkaRefused("no rights")

    with pytest.raises(KafkaRefused):
        write()
    assert list(tmp_path.iterdir()) == []


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "colours", "cleared"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_a_terminal_is_told_what_it_obeys_and_its_user_wants(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colours: bool, cleared: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    output.clear_screen()
    assert (output.has_colours(terminal), terminal.getvalue() != "") == (colours, cleared)
    assert not output.has_colours(StringIO())
