"""docs/guarantees.md names the tests that try to break each promise; they are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@cache
def names(path: Path) -> set[str]:
    """Functions, classes and what is assigned at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            found |= {ast.unparse(target) for target in node.targets}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert test in names(ROOT / file)


def test_each_promise_names_a_test() -> None:
    lines = PAGE.splitlines()
    rows = [line for line, below in pairwise(lines) if line.startswith("| ") and not below.startswith("|---")]
    assert len(rows) > 10
    assert all("`tests/" in row for row in rows)
