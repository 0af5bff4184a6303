"""The output of a command on a terminal, as SVG without external fonts or files."""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

__all__ = ["screen", "terminal_svg"]

COLUMNS: Final = 100
_CLEAR: Final = "\x1b[H\x1b[2J"
_THEME: Final = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [
        *((72, 79, 88), (248, 81, 73), (63, 185, 80), (210, 153, 34)),
        *((68, 147, 248), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
)
_FORMAT: Final = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
  <!-- made by `make pictures`; do not edit -->
  <style>
    .{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
      font-size: {char_height}px; line-height: {line_height}px; }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">{matrix}</g>
  </g>
</svg>
"""


def screen(command: Sequence[str], env: dict[str, str], seconds: float = 600.0, *, first_screens: int = 0) -> str:
    """Run a command on a terminal and return its last screen, with colours.

    Args:
        command: its words.
        env: its environment.
        seconds: the longest that it may take.
        first_screens: end it after it has drawn so many screens; 0 waits for its end.

    Raises:
        RuntimeError: it failed, or took too long.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, env=env | {"TERM": "xterm-256color"}
    )
    os.close(theirs)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    shown, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        if first_screens and shown.count(_CLEAR) > first_screens:
            process.terminate()
            process.wait()
            return shown.split(_CLEAR)[first_screens].replace("\r", "")
        if not select.select([ours], [], [], 0.2)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            shown += decoder.decode(os.read(ours, 65_536))
        except OSError:  # Linux: the other end is closed
            break
    if process.wait(max(1.0, deadline - time.monotonic())):
        raise RuntimeError(f"{' '.join(command)} failed: {(process.stderr or io.BytesIO()).read().decode()[-2000:]}")
    return shown.rpartition(_CLEAR)[2].replace("\r", "")


def terminal_svg(prompt: str, shown: str) -> str:
    """Return the picture of a terminal with a prompt and the output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.assemble(("$ ", "green"), prompt))
    console.print(Text.from_ansi(shown.strip("\n")))
    text = console.export_svg(title=prompt, theme=_THEME, code_format=_FORMAT, unique_id="terminal")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
