"""Exit codes: 1 is what a command found, 2 is a command that could not run. CronJobs and CI tell them apart."""

from __future__ import annotations

import importlib.util
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
