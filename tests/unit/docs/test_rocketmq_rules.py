"""docs/rocketmq-rules.md says of each rule where it is tested; this keeps it true."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs" / "rocketmq-rules.md"
DIFFERENCES = ROOT / "docs" / "differences-from-rocketmq.md"
DIFFERS = "[differs](differences-from-rocketmq.md)"

_ID = re.compile(r"\b[A-Z]{1,2}-[0-9]{2}\b")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_IN_CODE = re.compile(r"RocketMQ: ([A-Z]{1,2}-[0-9]{2}(?:(?:, | to )[A-Z]{1,2}-[0-9]{2})*)")


def rows(page: Path) -> list[list[str]]:
    """The cells of all table rows whose first cell holds ids."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if _ID.search(row[0])]


@cache
def marks() -> dict[str, set[tuple[str, str]]]:
    """Which tests name each id: (file, test), read without importing them."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "mark.rule" in text else ():
            for rule in _rule_marks(node):
                found[rule].add((path.relative_to(ROOT).as_posix(), _name(node)))
    return found


def _rule_marks(node: ast.AST) -> list[str]:
    decorators: list[ast.expr] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        decorators = node.decorator_list
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        # A state machine of hypothesis is marked where its test case gets a name.
        decorators = [node.value.func]
    calls = [one for one in decorators if isinstance(one, ast.Call) and ast.unparse(one.func) == "pytest.mark.rule"]
    return [str(ast.literal_eval(argument)) for call in calls for argument in call.args]


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return str(getattr(node, "name", ""))


TABLE = {row[0]: row[-1] for row in rows(RULES)}
DIFFERENT = {one for row in rows(DIFFERENCES) for one in _ID.findall(row[0])}


def test_the_page_and_the_tests_were_found() -> None:
    assert len(TABLE) > 150
    assert len(marks()) > 50
    assert len(DIFFERENT) > 50


def test_no_rule_stands_twice() -> None:
    assert [one for one, count in Counter(row[0] for row in rows(RULES)).items() if count > 1] == []


@pytest.mark.parametrize("rule", TABLE)
def test_a_rule_has_a_test_that_names_it_or_a_row_among_the_differences(rule: str) -> None:
    tests = set(_TEST.findall(TABLE[rule]))
    if TABLE[rule] == DIFFERS:
        assert rule in DIFFERENT, f"{DIFFERENCES.name} must have a row for {rule}, or name a test of it here"
    else:
        assert tests, f"the test column of {rule} must name a test or be {DIFFERS}"
        assert tests <= marks()[rule], f"not marked with {rule}; marked are {sorted(marks()[rule])}"


def test_every_rule_that_a_test_names_is_on_the_page() -> None:
    assert sorted(set(marks()) - set(TABLE)) == []


def test_every_rule_that_the_code_names_is_on_the_page() -> None:
    named = {
        one
        for path in (ROOT / "reconsume").rglob("*.py")
        for group in _IN_CODE.findall(path.read_text(encoding="utf-8"))
        for one in _ID.findall(group)
    }
    assert len(named) > 50
    assert sorted(named - set(TABLE)) == []


def test_every_difference_is_of_a_rule_that_is_on_the_page() -> None:
    # Ids of ordinary messages to retry topics are named among the differences without a test of their own.
    assert sorted(one for one in DIFFERENT - set(TABLE) if not one.startswith("HR-")) == []
