"""`python -m tests.support.docs.reflow [PAGE …]`: break paragraphs that have a line of over 120 characters anew."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.docs.prose import WIDTH, long_lines, pages

__all__ = ["reflowed"]

_ITEM: Final = re.compile(r"^( *)([*-]|\d+\.) +")
_APART: Final = re.compile(r"^( {4}|#|\||>|<!--|!\[|```|\[[^\]]+\]: )")


def reflowed(text: str) -> str:
    """The page with its long paragraphs and list items broken at 120 characters; code and tables stay."""
    return "\n".join(line for block in _blocks(text.split("\n")) for line in _broken(block))


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs and list items; every other line by itself."""
    block: list[str] = []
    is_code = False
    for line in lines:
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        is_in_item = bool(block and _ITEM.match(block[0]) and line.startswith(" ") and not _ITEM.match(line))
        if is_code or is_fence or not line.strip() or (_APART.match(line) and not is_in_item):
            yield from ([block] if block else [])
            yield [line]
            block = []
        elif _ITEM.match(line) and block:
            yield block
            block = [line]
        else:
            block.append(line)
    if block:
        yield block


def _broken(block: list[str]) -> list[str]:
    if max(map(len, block)) <= WIDTH or (len(block) == 1 and _APART.match(block[0])):
        return block
    item = _ITEM.match(block[0])
    indent = " " * (len(item[0]) if item else len(block[0]) - len(block[0].lstrip()))
    first = item[0] if item else indent
    words = " ".join(line.strip() for line in block)[len(item[0].lstrip()) if item else 0 :]
    return textwrap.wrap(
        words, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def main() -> None:
    """Reflow the pages that are named, or all in English that need it."""
    named = [Path(one).resolve() for one in sys.argv[1:]]
    for page in named or [one for one in pages() if "zh-CN" not in one.name]:
        if long_lines(page):
            page.write_text(reflowed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
