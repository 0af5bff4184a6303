"""What holds for every command."""

from __future__ import annotations

from typing import Any

import pytest
from rich.text import Text
from typer.testing import CliRunner

from reconsume.cli.main import app
from reconsume.delay_levels.errors import IllegalSetting
from tests.support.docs.commands import RUN_UNTIL_STOPPED, leaf_commands

COMMANDS = leaf_commands()
PRINT = sorted(COMMANDS.keys() - RUN_UNTIL_STOPPED)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_what_it_does(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"])
    assert done.exit_code == 0
    assert (COMMANDS[name].help or "").strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_of_a_help_text_is_taken_for_markup(name: str) -> None:
    texts = [COMMANDS[name].help or "", *(getattr(one, "help", None) or "" for one in COMMANDS[name].params)]
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("name", PRINT)
def test_each_command_that_prints_takes_json(name: str) -> None:
    [option] = [one for one in COMMANDS[name].params if "--output" in one.opts]
    assert "-o" in option.opts


@pytest.mark.parametrize("name", sorted(RUN_UNTIL_STOPPED))
def test_each_process_logs_json(name: str) -> None:
    assert any("--log-format" in one.opts for one in COMMANDS[name].params)


@pytest.mark.parametrize("name", PRINT)
def test_another_form_is_refused_before_anything_is_done(name: str, tmp_path: Any) -> None:
    needed = {"file": str(tmp_path), "group": "g", "message": "flights/0/0", "why": "x"}
    arguments = [
        needed.get(one.name, "0/0") for one in COMMANDS[name].params if one.required and not one.opts[0].startswith("-")
    ]
    options = [
        word
        for one in COMMANDS[name].params
        if one.required and one.opts[0].startswith("-")
        for word in (one.opts[0], needed[one.name])
    ]
    done = CliRunner().invoke(
        app, [*name.split(), *arguments, *options, "-o", "xml"], env={"RECONSUME_BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    )
    assert isinstance(done.exception, IllegalSetting), done.output
    assert "-o 'xml': use table or json" in str(done.exception)
