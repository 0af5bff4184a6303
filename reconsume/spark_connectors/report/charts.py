"""Bar charts as inline SVG; their colours come from the page's style sheet, also for print and dark mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 200, 56, 26, 12
_LETTER: Final = 6.5
"""The approximate width of a character in labels."""


def columns(labels: Sequence[str], values: Sequence[int], title: str, *, width: int = _WIDTH) -> str:
    """Draw one bar for each label."""
    return stacked_columns(labels, [("a", title, values)], title, width=width)


def stacked_columns(
    labels: Sequence[str], series: Sequence[tuple[str, str, Sequence[int]]], title: str, *, width: int = _WIDTH
) -> str:
    """Draw bars of several parts.

    Args:
        labels: one for each bar.
        series: for each part, from the bottom up: its style class, its name, and a value for each bar.
        title: the text for screen readers.
        width: the width in units of the drawing.
    """
    totals = [sum(values[number] for _, _, values in series) for number in range(len(labels))]
    top = _nice(max(totals, default=0))
    parts = [_grid(top, width)]
    step = (width - _LEFT - 8) / max(1, len(labels))
    bar = max(1.0, min(48.0, step - 2))
    room = _LETTER * max(map(len, labels), default=0) + 8
    every = math.ceil(room / step)
    for number, label in enumerate(labels):
        x = _LEFT + step * number + (step - bar) / 2
        base = float(_HEIGHT - _BOTTOM)
        for name, shown, values in series:
            high = (_HEIGHT - _BOTTOM - _TOP) * values[number] / top
            if high <= 0:
                continue
            base -= high
            hint = escape(f"{label} · {shown}: {values[number]:,}")
            parts.append(
                f'<rect class="{name}" x="{x:.1f}" y="{base:.1f}" width="{bar:.1f}" height="{high:.1f}" rx="1.5">'
                f"<title>{hint}</title></rect>"
            )
        if number % every == 0:
            middle = min(x + bar / 2, width - _LETTER * len(label) / 2)
            parts.append(
                f'<text class="tick" x="{middle:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(label)}</text>'
            )
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" style="max-width:{width}px" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _grid(top: int, width: int) -> str:
    lines = []
    for part in (0, 0.5, 1):
        value = top * part
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * part
        shown = f"{value:,.0f}" if value == int(value) else ""
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{width - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>'
        )
    return "".join(lines)


def _nice(highest: int) -> int:
    """Return a round number at or above."""
    if highest <= 2:  # noqa: PLR2004 - an axis of whole numbers with a middle
        return 2
    power: int = 10 ** (len(str(highest)) - 1)
    return next(power * factor for factor in (1, 2, 4, 6, 8, 10) if power * factor >= highest)
