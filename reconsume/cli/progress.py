"""What a person sees on standard error while a command works; the lines may quote anything, so none is markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TimeElapsedColumn,
)
from rich.text import Text

from reconsume.delay_levels.human_text import visible

__all__ = ["Progress", "progress_bars", "working"]


class _Description(ProgressColumn):
    """The words before a bar."""

    def render(self, task: Task) -> Text:
        return Text(visible(task.description))


def progress_bars(*, transient: bool = False, quiet: bool = False) -> Progress:
    """Bars with what is done, of how much, since when.

    Args:
        transient: they go away at the end.
        quiet: there are none; neither are there where nobody looks, if they would go away.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), _Description(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    disable = quiet or (transient and not console.is_terminal)
    return Progress(*columns, console=console, transient=transient, disable=disable)


@contextmanager
def working(begin: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that tells what is done now, and goes away; gives the function that changes it."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _line: None
        return
    with console.status(Text(visible(begin))) as status:
        yield lambda line: status.update(Text(visible(line)))
