"""ARCHITECTURE.md is short and has all rooms; the tests that it and docstrings name as proof are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs.test_guarantees import names

ROOT = Path(__file__).parents[3]
CODE = ROOT / "reconsume"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROOF = re.compile(r"\b((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?")
READ = [PAGE, CONTRIBUTING, *(file.read_text(encoding="utf-8") for file in sorted(CODE.rglob("*.py")))]


def rooms() -> set[str]:
    """Packages and rooms that the table names, as paths in `reconsume`."""
    found, package = set[str](), ""
    for bold, room in re.findall(r"^\| (?:\*\*`(\w+)`\*\*|`([\w/]+)/`) \|", PAGE, re.MULTILINE):
        package = bold or package
        found.add(bold or f"{package}/{room}")
    return found


def test_the_page_fits_in_150_lines_of_120_characters() -> None:
    lines = PAGE.splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120


def test_each_package_and_room_has_a_line() -> None:
    folders = {file.parent.relative_to(CODE).as_posix() for file in CODE.rglob("__init__.py")} - {"."}
    assert rooms() == folders


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE + CONTRIBUTING))))
def test_a_file_that_is_named_exists(file: str) -> None:
    assert (CODE / file).is_file() or (ROOT / file).is_file()


@pytest.mark.parametrize(("file", "test"), sorted({found for text in READ for found in PROOF.findall(text)}))
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert (ROOT / file).is_file()
    assert not test or test in names(ROOT / file)
