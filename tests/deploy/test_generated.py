"""What is generated under deploy/ is current."""

from __future__ import annotations

from deploy.generate.__main__ import stale


def test_generated_files_are_current() -> None:
    assert stale() == [], "run: python -m deploy.generate"
