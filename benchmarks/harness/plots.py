"""Plots of a run as SVG files, written by hand: they need no library."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from benchmarks.harness.registry import RATE
from benchmarks.harness.results import Result, number

__all__ = ["bars", "lines", "plots"]

_COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
_WIDTH, _LEFT, _ROW, _TOP = 860, 380, 22, 40
_HEIGHT, _MARGIN = 420, 60
_PER_SECOND: Final = re.compile(r"^([\d,]+)/s")


def plots(results: Sequence[Result]) -> dict[str, str]:
    """Return the plots by file name; those without a figure are left out."""
    ratios = [one for one in results if one.unit == RATE]
    curves: dict[str, list[tuple[float, float]]] = {}
    for one in results:
        rate = _PER_SECOND.match(one.case) if one.measurement == "lateness" else None
        if rate and one.figure in ("p50", "p99", "p99.9"):
            curves.setdefault(one.figure, []).append((float(rate[1].replace(",", "")), max(one.median, 1.0)))
    found = {}
    if ratios:
        found["ratios.svg"] = bars("Rates as multiples of a loop in the same round (median, min to max)", ratios)
    if curves:
        found["lateness.svg"] = lines("Lateness in ms by records per second (medians)", curves)
    return found


def bars(title: str, results: Sequence[Result]) -> str:
    """Return horizontal bars with a line from minimum to maximum."""
    most = max(max(one.values) for one in results) or 1.0
    scale = (_WIDTH - _LEFT - _MARGIN) / most
    parts = [_text(10, 22, title, "start", 15)]
    for row, one in enumerate(results):
        y = _TOP + row * _ROW
        low, high = _LEFT + min(one.values) * scale, _LEFT + max(one.values) * scale
        parts.append(_text(_LEFT - 8, y + 13, f"{one.measurement}: {one.case}, {one.figure}"[:62], "end"))
        parts.append(
            f'<rect x="{_LEFT}" y="{y + 3}" width="{one.median * scale:.1f}" height="14" fill="{_COLOURS[0]}"/>'
        )
        parts.append(_stroke([(low, y + 10), (high, y + 10)], "#000"))
        parts.append(_text(high + 6, y + 14, number(one.median), "start"))
    if most >= 1:
        bottom = _TOP + len(results) * _ROW
        parts.append(_stroke([(_LEFT + scale, _TOP), (_LEFT + scale, bottom)], "#888"))
    return _svg(_TOP + len(results) * _ROW + 10, parts)


def lines(title: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return lines over two logarithmic axes."""
    points = [point for curve in curves.values() for point in curve]
    (left, right), (low, high) = (_decades(values) for values in zip(*points, strict=True))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - left) / (right - left)
        up = (math.log10(y) - low) / (high - low)
        return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

    parts = [_text(10, 22, title, "start", 15)]
    for decade in range(left, right + 1):
        x, _ = place(10.0**decade, 10.0**low)
        parts += [_stroke([(x, _MARGIN), (x, _HEIGHT - _MARGIN)], "#ddd"), _text(x, _HEIGHT - 40, f"{10**decade:,}")]
    for decade in range(low, high + 1):
        _, y = place(10.0**left, 10.0**decade)
        parts += [_stroke([(_MARGIN, y), (_WIDTH - _MARGIN, y)], "#ddd"), _text(50, y + 4, f"{10**decade:,}", "end")]
    for number_of, (name, curve) in enumerate(curves.items()):
        colour, placed = _COLOURS[number_of % len(_COLOURS)], [place(*point) for point in sorted(curve)]
        parts += [_stroke(placed, colour, 2), _text(placed[-1][0] + 6, placed[-1][1] + 4, name, "start")]
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
    return _svg(_HEIGHT, parts)


def _decades(values: Iterable[float]) -> tuple[int, int]:
    logs = [math.log10(value) for value in values]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return low, max(high, low + 1)


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _stroke(points: Iterable[tuple[float, float]], colour: str, width: int = 1) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _svg(height: float, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>", ""])
