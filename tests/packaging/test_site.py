"""`make site` on a machine that has only Python: the pages, without a broken link, and nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.more

ROOT: Final = Path(__file__).parents[2]
ELSEWHERE: Final = re.compile(
    r"""<(?:script|img|link rel="(?:stylesheet|preconnect)")[^>]*(?:src|href)="(?:https?:)?//"""
)


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = ROOT / "dist" / "site"
    made = subprocess.run(
        ["make", "site", f"SITE={tmp_path / 'environment'}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    pages = {page.relative_to(built).as_posix(): page.read_text(encoding="utf-8") for page in built.rglob("*.html")}
    assert {"index.html", "quick-start.html", "concepts.html", "runbooks/index.html", "changes.html"} <= pages.keys()
    assert [page for page, text in pages.items() if ELSEWHERE.search(text)] == []
    assert [page for page, text in pages.items() if "```" in text] == [], "a block of code was not recognised"
