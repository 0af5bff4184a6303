"""Text as a hostile record may hold it, and how harmless output is told from other."""

from __future__ import annotations

import unicodedata

__all__ = ["HOSTILE", "assert_harmless"]

HOSTILE = (
    "cannot open [/data/in.csv], missing [orders] [red]x[/red] [link=https://evil.example]y[/link] "
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\x1b]0;title\x1b\\ real\rforged \u202egpj.exe\u200b\x08\x00\x7f\u2028"
)
"""rich's markup; OSC 52 (the clipboard), CSI, C1, the title; what overwrites, rearranges and hides."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def assert_harmless(output: str, *, shows: str = "") -> None:
    """Nothing that a terminal obeys or hides; and the words in brackets are there, which markup would swallow."""
    found = {one for one in output.replace("\r\n", "\n") if unicodedata.category(one) in _HIDDEN} - {"\n", "\t"}
    assert not found, f"{sorted(found)!r} in {output!r}"
    together = "".join(output.split()).replace("│", "")
    assert "".join(shows.split()) in together, output
