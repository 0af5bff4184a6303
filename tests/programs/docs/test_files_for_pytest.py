"""The files for pytest that the pages show, each run as a reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import Snippet, pytest_files

FILES = pytest_files()
ROOT = Path(__file__).parents[3]


def test_the_page_on_testing_has_files() -> None:
    assert len([one for one in FILES if one.where.startswith("docs/testing.md")]) >= 2


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.where)
def test_a_file_of_the_pages_passes(file: Snippet, tmp_path: Path) -> None:
    (tmp_path / "test_of_a_page.py").write_text(file.text)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_of_a_page.py"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
