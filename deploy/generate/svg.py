"""Boxes, arrows and words as SVG for light and dark pages, without external fonts or files."""

from __future__ import annotations

from html import escape
from typing import Final, Literal

__all__ = ["Drawing", "Kind"]

Kind = Literal["topic", "process", "dead", "frame"]

_ROUND: Final = 70
"""Processes up to this height have round ends."""
_WIDE: Final = 8.4
_MONO: Final = 8.1
_SMALL: Final = 7.0
"""Approximate width of a letter in pixels, by style of text."""

_STYLE: Final = """
    svg { font: 15px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
    .paper { fill: #ffffff; stroke: #d0d7de; }
    .topic { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5; }
    .process { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5; }
    .dead { fill: #ffebe9; stroke: #cf222e; stroke-width: 1.5; }
    .frame { fill: none; stroke: #1a7f37; stroke-width: 1.5; stroke-dasharray: 6 4; }
    text { fill: #1f2328; text-anchor: middle; }
    .mono { font: 13.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
    .note { font-size: 13px; fill: #57606a; }
    .over { font-size: 13px; fill: #57606a; stroke: #ffffff; stroke-width: 5; paint-order: stroke; }
    .arrow { fill: none; stroke: #57606a; stroke-width: 1.8; marker-end: url(#head); }
    .life { stroke: #8c959f; stroke-width: 1.2; stroke-dasharray: 4 4; }
    .head { fill: #57606a; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #30363d; }
      .topic { fill: #0c2d4a; stroke: #4493f8; }
      .process { fill: #161b22; stroke: #9198a1; }
      .dead { fill: #3c1618; stroke: #f85149; }
      .frame { stroke: #3fb950; }
      text { fill: #f0f6fc; }
      .note { fill: #9198a1; }
      .over { fill: #9198a1; stroke: #0d1117; }
      .arrow { stroke: #9198a1; }
      .life { stroke: #656c76; }
      .head { fill: #9198a1; }
    }
"""


class Drawing:
    """One picture; everything is placed by hand, and text that leaves its box is an error.

    Args:
        title: what a reader who cannot see it is told first.
        told: the same in sentences.
        width: pixels.
        height: pixels.
    """

    def __init__(self, title: str, told: str, width: int, height: int) -> None:
        self._title, self._told = title, told
        self._width, self._height = width, height
        self._parts: list[str] = []

    def box(self, kind: Kind, x: int, y: int, width: int, height: int, *lines: str) -> None:
        """Draw a box with lines of text; a line with a dot inside a word is a topic, one in brackets a note.

        Raises:
            ValueError: a line is wider than the box.
        """
        radius = height // 2 if kind == "process" and height <= _ROUND else 8
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{min(radius, 32)}"/>'
        )
        first = y + height / 2 - 10.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            style = "note" if line.startswith("(") else "mono" if "." in line.strip(".") and " " not in line else ""
            shown = line.strip("()") if style == "note" else line
            self._text(shown, x + width / 2, first + 21 * number, style, width)

    def note(self, x: int, y: int, *lines: str, style: str = "note") -> None:
        """Write words beside the boxes."""
        for number, line in enumerate(lines):
            self._text(line, x, y + 17 * number, style, self._width)

    def arrow(self, path: str) -> None:
        """Draw an arrow along an SVG path."""
        self._parts.append(f'<path class="arrow" d="{path}"/>')

    def life(self, x: int, top: int, bottom: int) -> None:
        """Draw the life line of a sequence."""
        self._parts.append(f'<path class="life" d="M{x} {top}V{bottom}"/>')

    def text(self) -> str:
        """Return the file."""
        body = "\n  ".join(self._parts)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" role="img" \
aria-labelledby="title desc">
  <!-- made by `make docs` from deploy/generate/drawings.py; do not edit -->
  <title id="title">{escape(self._title)}</title>
  <desc id="desc">{escape(self._told)}</desc>
  <style>{_STYLE}  </style>
  <defs>
    <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
      <path class="head" d="M0 0 10 5 0 10z"/>
    </marker>
  </defs>
  <rect class="paper" x="1" y="1" width="{self._width - 2}" height="{self._height - 2}" rx="12"/>
  {body}
</svg>
"""

    def _text(self, text: str, x: float, y: float, style: str, room: int) -> None:
        letters = {"mono": _MONO, "note": _SMALL, "over": _SMALL}.get(style, _WIDE)
        if len(text) * letters > room:
            raise ValueError(f"{text!r} needs {len(text) * letters:.0f} pixels and has {room}")
        kind = f' class="{style}"' if style else ""
        self._parts.append(f'<text{kind} x="{x:g}" y="{y:g}">{escape(text)}</text>')
