"""Pages that are made from the code are those that the code makes now."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconsume.cli.pages import PAGES

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"
