"""Command lines and fragments of the pages: what a reader copies must be understood."""

from __future__ import annotations

import pytest
from typer.main import get_command

from reconsume.cli.main import app
from tests.support.docs.pages import command_lines, python_blocks

LINES = command_lines()
ROOT = get_command(app)


def check(arguments: list[str]) -> None:
    """Walk down to the command and let it parse what is left, without running anything.

    Raises:
        UsageError: no such option, or one without its value; of click.
    """
    command = ROOT
    context = command.context_class(command, info_name="reconsume")
    while (commands := getattr(command, "commands", None)) and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in commands, f"no command {arguments[0]!r}; there are {sorted(commands)}"
        command = commands[arguments[0]]
        context = command.context_class(command, info_name=arguments[0], parent=context)
        arguments = arguments[1:]
    _, left, _ = command.make_parser(context).parse_args(list(arguments))
    assert left == [], "more arguments than it takes"


def test_the_pages_have_commands() -> None:
    assert len(LINES) > 10
    assert any(where.startswith("README.md") and arguments[:1] == ["scheduler"] for where, arguments in LINES)


@pytest.mark.parametrize(("where", "arguments"), LINES, ids=[f"{where} {' '.join(words)}" for where, words in LINES])
def test_a_command_line_of_the_pages_is_understood(where: str, arguments: list[str]) -> None:
    assert where
    check(arguments)


@pytest.mark.parametrize("wrong", [["topic", "apply"], ["status", "--all"], ["status", "more"], ["broker", "--port"]])
def test_a_wrong_command_line_would_be_found(wrong: list[str]) -> None:
    with pytest.raises(Exception, match=r"no command|No such option|more arguments|requires an argument"):
        check(wrong)


def test_fragments_are_python() -> None:
    for fragment in python_blocks(complete=False):
        compile(fragment.text, fragment.where, "exec")
