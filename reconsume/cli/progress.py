"""Progress on standard error; the lines may quote foreign text, so none is markup."""

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


class _Description(ProgressColumn):
    """The text before a bar."""

    def render(self, task: Task) -> Text:
        return Text(visible(task.description))


def progress_bars() -> Progress:
    """Make bars with progress, total and elapsed time."""
    columns = (SpinnerColumn(), _Description(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


@contextmanager
def working(begin: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show the current step on a line that disappears; yield the function that changes it."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _line: None
        return
    with console.status(Text(visible(begin))) as status:
        yield lambda line: status.update(Text(visible(line)))
