"""Each `pip install` that a page, a docstring or an error tells works for a reader who has only a checkout."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
WRITTEN: Final = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md", "reconsume/*", "examples/*", "deploy/*", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if not name.endswith((".gz", ".png"))
)
OURS: Final = re.compile(r"""pip install (?:-\S+ )*['"]?(reconsume|\.(?![\w/]))([^\s'"`]*)""")
EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TOLD: Final = [
    pytest.param(path, match[1], match[2], id=f"{path.relative_to(ROOT)}: {match[0]}")
    for path in WRITTEN
    for match in OURS.finditer(path.read_text(encoding="utf-8"))
]


def test_there_are_such_lines() -> None:
    assert len(TOLD) > 15


@pytest.mark.parametrize(("path", "what", "extras"), TOLD)
def test_what_is_to_be_installed_is_the_checkout_with_extras_that_exist(path: Path, what: str, extras: str) -> None:
    assert what == ".", f"{path}: reconsume is not on PyPI; write pip install '.[…]', in the checkout"
    named = re.fullmatch(r"\[([a-z,]+)\]", extras.replace(",{extra}", ""))
    assert extras.rstrip(".,:;)") == "" or named is not None, f"{path}: {extras} is no list of extras in brackets"
    if named is not None:
        assert set(named[1].split(",")) <= EXTRAS.keys()
