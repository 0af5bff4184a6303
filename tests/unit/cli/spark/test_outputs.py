"""Outputs of the Spark commands that cannot be written are refused before the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconsume.cli.main import main

NOBODY = "127.0.0.1:9"


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["reconsume", *arguments, "-b", NOBODY])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "Traceback" not in said
    return said


def too_long(tmp_path: Path) -> Path:
    return tmp_path / ("x" * 300)


def below_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file" / "below"


def a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file"


def a_folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize("made", [too_long, below_a_file, a_folder])
def test_a_report_that_cannot_be_written_is_refused_first(
    made: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = str(made(tmp_path))
    said = run(monkeypatch, capsys, "reconcile", "--report", report)
    assert said.startswith(f"error: --report {report}")


def test_the_figures_beside_a_report_are_tried_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").mkdir()
    said = run(monkeypatch, capsys, "reconcile", "--report", str(tmp_path / "report.html"))
    assert "report.json is a folder" in said
    assert [one.name for one in tmp_path.iterdir()] == ["report.json"], "the trial leaves no file"


@pytest.mark.parametrize("made", [too_long, below_a_file, a_file])
@pytest.mark.parametrize(("command", "option"), [("reconcile", "--out"), ("replay", "--plan")])
def test_a_folder_that_cannot_be_written_is_refused_first(
    command: str,
    option: str,
    made: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = str(made(tmp_path))
    said = run(monkeypatch, capsys, command, option, folder)
    assert said.startswith(f"error: {option} {folder}: cannot be written: ")
    assert "name another folder" in said


@pytest.mark.parametrize(
    ("out", "ledger"),
    [
        ("s3a://audit/", "s3a://audit/ledger"),
        ("s3a://audit", "s3a://audit//ledger/2026"),
        ("/data/x/../audit", "/data/audit/ledger"),
        ("file:///data/audit", "/data/audit/ledger"),
    ],
)
def test_tables_never_replace_the_ledger_however_its_folder_is_written(
    out: str, ledger: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--out", out, "--ledger", ledger, "--master", "yarn")
    said = run(monkeypatch, capsys, "reconcile", *arguments)
    assert said.startswith(f"error: --out {out} writes its table 'ledger' over the ledger in {ledger}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lang", "fr"], "--lang 'fr' is unknown; use en or zh"),
        (
            ["--since", "yesterday"],
            "--since 'yesterday': write a time such as 2026-11-22 10:00 (UTC), or an age such as 2h",
        ),
        (["--late", "soon"], "--late 'soon': write a duration such as 30s or 5m"),
        (["--report", "/"], "--report / is a folder; name a file in it"),
        (["--ledger", ""], "the name of a folder is empty"),
        (["--ledger", "x", "--ledger-keep", "0s"], "--ledger-keep 0s: write a longer time"),
        (["--out", ".", "--ledger", "notes/1"], "--out . writes its table 'notes' over the ledger in notes/1"),
        (["--spark-option", "x"], "--spark-option 'x': write KEY=VALUE"),
    ],
)
def test_what_cannot_work_is_said_before_kafka_is_asked(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(monkeypatch, capsys, "reconcile", *arguments)
    assert said.startswith("error: ")
    assert message in said


@pytest.mark.parametrize("rate", ["nan", "0", "-1", "inf"])
def test_an_impossible_rate_is_refused_before_the_plan_is_made(
    rate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(monkeypatch, capsys, "replay", "--plan", str(tmp_path / "plan"), "--rate", rate)
    assert said.startswith("error: rate ")
    assert list(tmp_path.iterdir()) == []
