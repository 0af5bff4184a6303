"""What is told while a command works may quote anything, such as the name of a file or a line of Ivy's."""

from __future__ import annotations

from io import StringIO

import pytest

from reconsume.cli.progress import progress_bars, working
from tests.support.hostile import HOSTILE


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the test itself: pytest takes standard error back between a fixture and its test."""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def assert_shown(screen: Terminal) -> None:
    text = screen.getvalue()
    assert "missing [orders] [red]x[/red]" in text
    for sequence in ("\x1b]52", "\x1b]0;", "\x1b[2J", "\x9b", "\u202e", "real\rforged", "\x07"):
        assert sequence not in text


def test_lines_are_text_and_never_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with working(f"begins {HOSTILE}") as say:
        say(HOSTILE)
    assert_shown(screen)


def test_bars_have_descriptions_that_are_text_and_never_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with progress_bars() as bars:
        bars.add_task(HOSTILE, total=1)
        bars.refresh()
    assert_shown(screen)


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with working("begins") as say:
        say("on")
    assert screen.getvalue() == ""
