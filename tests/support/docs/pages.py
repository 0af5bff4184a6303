"""What a reader of README and docs would copy: programs and command lines.

A block that is fenced as `python` is a complete program that needs a Kafka. `python alone` needs none, and the block
after it is what it prints. `python fragment` is not complete, and `python test` is a file for pytest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "Snippet",
    "blocks",
    "command_lines",
    "named_extras",
    "pages",
    "programs_alone",
    "pytest_files",
    "python_blocks",
]

_ROOT: Final = Path(__file__).parents[3]
_FENCE: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`((?:[\w./]*/)?reconsume(?:\s[^`]*)?)`")
_LINE: Final = re.compile(r"^\s*((?:[\w./]*/)?reconsume\s.*)$", re.MULTILINE)
_INSTALL: Final = re.compile(r"pip install '?\.(?:\[([\w,]+)\])?'?")
_OTHER_PYTHON: Final = frozenset({"alone", "test"})
_NEXT_COMMAND: Final = frozenset({"|", "||", "&&", ";", "&", ">"})


class Snippet(NamedTuple):
    """A piece of a page; `where` is file and line, as editors understand it."""

    where: str
    text: str


def pages() -> list[Path]:
    """README in all languages, and the documentation."""
    return sorted([*_ROOT.glob("README*.md"), *(_ROOT / "docs").rglob("*.md")])


def python_blocks(*, complete: bool) -> list[Snippet]:
    """The complete programs, or the fragments."""
    found = []
    for page in pages():
        for info, where, text in _blocks(page):
            if info[:1] == ["python"] and not _OTHER_PYTHON & {*info} and ("fragment" not in info) == complete:
                found.append(Snippet(where, text))
    return found


def programs_alone() -> list[tuple[Snippet, str]]:
    """The programs that need no Kafka, and what each prints."""
    return [
        (Snippet(where, text), printed)
        for page in pages()
        for (info, where, text), (_, _, printed) in pairwise(_blocks(page))
        if info == ["python", "alone"]
    ]


def pytest_files() -> list[Snippet]:
    """The files for pytest."""
    found = [(info, Snippet(where, text)) for page in pages() for info, where, text in _blocks(page)]
    return [snippet for info, snippet in found if info == ["python", "test"]]


def command_lines() -> list[tuple[str, list[str]]]:
    """The arguments of each `reconsume …` that stands in a shell block, an indented block or in the text."""
    found = []
    for page in pages():
        for where, text in _commands(page):
            words = shlex.split(text, comments=True)
            end = next((at for at, word in enumerate(words) if word in _NEXT_COMMAND), len(words))
            found.append((where, words[1:end]))
    return found


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page that are fenced with this language, such as `sh`."""
    return [text for info, _, text in _blocks(_ROOT / page) if info[:1] == [language]]


def named_extras(page: str) -> str:
    """The extras that the first `pip install` of a page names, comma-separated; none for `pip install .`."""
    found = _INSTALL.search((_ROOT / page).read_text(encoding="utf-8"))
    assert found is not None, f"{page} does not say what to install"
    return found[1] or ""


def _blocks(page: Path) -> Iterator[tuple[list[str], str, str]]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        yield match[1].split(), _where(page, text, match.start()), match[2]


def _commands(page: Path) -> Iterator[tuple[str, str]]:
    text = page.read_text(encoding="utf-8")
    for info, where, block in _blocks(page):
        if info[:1] == ["sh"]:
            for match in _LINE.finditer(block.replace("\\\n", " ")):
                yield where, match[1]
    # Of the same length, so that lines keep their numbers.
    prose = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for pattern in (_INLINE, re.compile(r"^ {4}((?:[\w./]*/)?reconsume\s.*)$", re.MULTILINE)):
        for match in pattern.finditer(prose):
            yield _where(page, prose, match.start()), match[1]


def _where(page: Path, text: str, at: int) -> str:
    return f"{page.relative_to(_ROOT)}:{text.count(chr(10), 0, at) + 1}"
