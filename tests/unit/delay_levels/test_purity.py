"""The rules are pure: no third-party package, no clock, no environment, nothing read or started."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconsume import delay_levels

PACKAGE = Path(delay_levels.__path__[0])
MODULES = ["reconsume.delay_levels"]
MODULES += [module.name for module in pkgutil.walk_packages(delay_levels.__path__, "reconsume.delay_levels.")]

# What a decision has no business with: clocks, chance, the machine, other threads. Time comes as an argument.
IMPURE = {
    *("asyncio", "datetime", "glob", "http", "io", "locale", "logging", "multiprocessing", "os", "pathlib", "platform"),
    *("queue", "random", "secrets", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile"),
    *("threading", "time", "urllib", "uuid", "warnings", "zoneinfo"),
}
IMPURE_CALLS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}

IMPORT_ALL = """
import importlib, json, sys
seen, armed = [], True
WATCHED = ("open", "os.", "shutil.", "socket.", "subprocess.", "time.", "urllib.", "_thread.")
def watch(event, arguments):
    code = event == "open" and str(arguments[0]).endswith((".py", ".pyc"))
    search = event in ("os.listdir", "os.scandir")
    if armed and event.startswith(WATCHED) and not code and not search:
        seen.append(f"{event} {arguments!r}")
before = set(sys.modules)
sys.addaudithook(watch)
for name in sys.argv[1:]:
    importlib.import_module(name)
armed = False
print(json.dumps({"loaded": sorted(set(sys.modules) - before), "seen": seen}))
"""


@pytest.fixture(scope="module")
def fresh_import() -> dict[str, list[str]]:
    """What importing all rules does in an interpreter of its own; -B, so that it writes no bytecode either."""
    run = subprocess.run(
        [sys.executable, "-B", "-c", IMPORT_ALL, *MODULES],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=PACKAGE.parents[1],
    )
    result: dict[str, list[str]] = json.loads(run.stdout)
    return result


def test_all_rule_modules_are_looked_at() -> None:
    paths = (path.relative_to(PACKAGE.parents[1]).with_suffix("") for path in PACKAGE.rglob("*.py"))
    assert {".".join(path.parts).removesuffix(".__init__") for path in paths} == set(MODULES)
    assert len(MODULES) > 8


def test_importing_the_rules_loads_no_third_party_package(fresh_import: dict[str, list[str]]) -> None:
    foreign = {name for name in fresh_import["loaded"] if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"reconsume", *MODULES}


def test_importing_the_rules_reads_no_file_and_starts_nothing(fresh_import: dict[str, list[str]]) -> None:
    assert fresh_import["seen"] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_a_rule_module_imports_and_calls_nothing_impure(path: Path) -> None:
    imported, called = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
    tops = {name.partition(".")[0] for name in imported}
    assert tops <= set(sys.stdlib_module_names) | {"reconsume"}
    assert all(name.startswith("reconsume.delay_levels") for name in imported if name.startswith("reconsume"))
    assert not tops & IMPURE
    assert not called & IMPURE_CALLS
