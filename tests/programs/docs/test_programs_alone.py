"""The programs of the pages that need no Kafka print what the pages say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import Snippet, programs_alone

PROGRAMS = programs_alone()
ROOT = Path(__file__).parents[3]


def test_the_first_screen_has_one_in_each_language() -> None:
    assert {program.where.partition(":")[0] for program, _ in PROGRAMS} >= {"README.md", "README.zh-CN.md"}


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=[program.where for program, _ in PROGRAMS])
def test_a_program_prints_what_its_page_says(program: Snippet, printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.text],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout, run.stderr) == (printed, "")
