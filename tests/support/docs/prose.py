"""How prose must not read: turns of phrase that no native technical writer uses, long lines, links to nowhere."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

__all__ = [
    "ROOT",
    "WIDTH",
    "broken_links",
    "docstring_openings",
    "error_texts",
    "indentations",
    "long_lines",
    "openings",
    "pages",
    "phrases",
    "programs",
]

ROOT: Final = Path(__file__).parents[3]
WIDTH: Final = 120
PHRASES: Final = re.compile(
    r"\b((?:is|are) (?:not )?to be (?:seen|had)|parted by|wish(?:es|ed) (?:an?|level)|comes? again|what is none|"
    r"whoever|somebody|is no (?:function|member|terminal|text|number|topic)|for ever|let go of|mends? it|who is no|"
    r"nobody (?:tells|knows|asked|looked|reads|says)|as long as that|what (?:could|cannot|was|is) not|such as it|"
    r"there is no such|say again|stands? for (?:itself|themselves)|has come to|is told of|of which nobody|"
    r"what comes of|its own affair)\b",
    re.IGNORECASE,
)
SYNONYMS: Final = re.compile(
    r"\b(wished level|dead[- ]letter queues?|retry queues? topic|backoff topic|re-?send-?back|delay queue|"
    r"delayed topic)\b",
    re.IGNORECASE,
)
"""Words for things that the glossary names otherwise."""
OPENINGS: Final = re.compile(
    r"(?:^|(?<=[.:;!?] ))(What|Whoever|Who|Nobody|Somebody|Of one|Of a|Of which|As long as that)\b(?![^.?]*\?)"
)
"""At the start of a sentence; questions may begin so."""

_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`]*`")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+?)\s*#*$", re.MULTILINE)


def pages() -> list[Path]:
    """All pages in English and Chinese."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])


def programs() -> list[Path]:
    """All files of the code that people read or whose texts they meet."""
    return sorted(path for folder in ("reconsume", "examples", "deploy") for path in (ROOT / folder).rglob("*.py"))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a page without its blocks of code."""
    text = _FENCE.sub(lambda match: re.sub(r"[^\n]", "", match[0]), page.read_text(encoding="utf-8"))
    yield from enumerate(text.splitlines(), 1)


def long_lines(page: Path) -> list[str]:
    """Lines of prose that are too long; tables and lines of one address are none."""
    return [
        f"{page.relative_to(ROOT)}:{number}: {len(line)} characters"
        for number, line in prose(page)
        if len(line) > WIDTH and not line.startswith(("|", "    ", "!["))
    ]


def indentations(page: Path) -> list[str]:
    """Lines that the site would put outside of their list: it wants four spaces, and a line between code and text."""
    found, before = [], ""
    for number, line in prose(page):
        indent = len(line) - len(line.lstrip(" "))
        begins = not before.strip() or re.match(r"\s+([*-] |\d+\. |```)", line)
        if line.strip() and ((indent % 4 and begins) or re.fullmatch(r"\s+```", before)):
            found.append(f"{page.relative_to(ROOT)}:{number}: {indent} spaces in {line[:80]!r}")
        before = line
    return found


def phrases(path: Path) -> list[str]:
    """Turns of phrase, and words of the wrong name, in a page or a program."""
    if path.suffix == ".md":
        lines = [(number, _CODE.sub("``", line)) for number, line in prose(path)]
    else:
        lines = list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    return [
        f"{path.relative_to(ROOT)}:{number}: {found.group()!r} in {line.strip()[:150]!r}"
        for number, line in lines
        for pattern in (PHRASES, SYNONYMS)
        for found in pattern.finditer(line)
    ]


def openings(path: Path) -> list[str]:
    """Sentences of a page that begin with a clause in place of a subject."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {found.group()!r} in {line.strip()[:150]!r}"
        for number, line in prose(path)
        if not line.startswith(("#", "**"))
        for found in OPENINGS.finditer(line)
    ]


def docstring_openings(program: Path) -> list[str]:
    """Docstrings that begin with a clause in place of a verb or a noun."""
    return [
        f"{program.relative_to(ROOT)}:{node.name if hasattr(node, 'name') else 'module'}: {text.splitlines()[0]!r}"
        for node in ast.walk(ast.parse(program.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        and (text := ast.get_docstring(node))
        and re.match(r"(What|Whatever|Whoever|Whose|Who|Nobody|Somebody|Someone|Of|As)\b", text)
    ]


@cache
def error_texts() -> list[tuple[str, str, str]]:
    """The places, classes and messages of errors that the code raises; values are `…`."""
    found = []
    for path in sorted((ROOT / "reconsume").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = _text(node.exc.args[0])
                if text:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.exc.func), text))
    return found


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) if isinstance(one, ast.Constant) else "…" for one in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return ""


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for match in _HEADING.finditer(text):
        title = _LINK.sub(lambda link: link[0].partition("]")[0][1:], match[1])
        kept = [one for one in title.lower() if one in "-_ " or unicodedata.category(one)[0] in "LMN"]
        slug = "".join(kept).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return frozenset(
        slug if not number else f"{slug}-{number}" for slug, count in found.items() for number in range(count + 1)
    )


def broken_links(page: Path) -> list[str]:
    """Links to files or anchors that are not there."""
    broken = []
    for number, line in prose(page):
        for target in _LINK.findall(line):
            if "://" in target or target.startswith(("mailto:", "<")):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                broken.append(f"{page.relative_to(ROOT)}:{number}: {target}")
    return broken
