"""The programs of the sidecar's pages are the examples that the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = {
    "java": "java/SendBack.java",
    "go": "go/main.go",
    "node": "node/send_back.js",
    "python": "python/send_back.py",
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_page_shows_the_example(language: str) -> None:
    page = (ROOT / "docs" / f"sidecar-{language}.md").read_text(encoding="utf-8")
    program = (ROOT / "examples" / "sidecar" / PROGRAMS[language]).read_text(encoding="utf-8")
    assert f"\n{program}```\n" in page
