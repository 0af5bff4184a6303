"""The commands of the command line, as its own tree has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from reconsume.cli.main import app

__all__ = ["RUN_UNTIL_STOPPED", "leaf_commands"]

RUN_UNTIL_STOPPED = frozenset({"scheduler", "sidecar", "console"})
"""They print nothing but their log, which has `--log-format json`."""


def leaf_commands() -> dict[str, Any]:
    """Each command by the words that name it, such as `dlq list`."""
    return dict(_leaves(get_command(app), ()))


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield " ".join(words), command
    else:
        for name, one in commands.items():
            yield from _leaves(one, (*words, name))
