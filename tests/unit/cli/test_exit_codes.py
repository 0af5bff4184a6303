"""Exit codes: 1 is what a command found, 2 is a command that could not run. CronJobs and CI tell them apart."""

from __future__ import annotations

import sys

import pytest

from reconsume.cli.commands import topics
from reconsume.cli.main import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["reconsume", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize(
    "arguments",
    [("reconcile", "--since"), ("reconcile", "--no-such-option"), ("topics", "acls", "--role", "nobody")],
)
def test_a_wrong_command_line_is_an_error(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    assert run(monkeypatch, *arguments) == 2


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
    assert "use UTF-8" in said
    assert "Traceback" not in said
    assert run(monkeypatch, "config", "show", "-X", "client.rack=\u00fc\ud55c\\udcff") == 0


def test_an_unexpected_error_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(topics, "acl_commands", fail)
    assert run(monkeypatch, "topics", "acls") == 2
    assert "RuntimeError: a defect" in capsys.readouterr().err


def test_what_is_well_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "topics", "acls") == 0
