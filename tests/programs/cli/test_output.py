"""What a program shows is harmless, also where it ends by an error of its own or cannot encode a character."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.hostile import assert_harmless


@pytest.mark.parametrize(
    "stray",
    [
        "raise ValueError(HOSTILE)",
        "logging.getLogger('reconsume').warning('GROUPS topic: %s', HOSTILE)",
        "t = threading.Thread(target=lambda: int(HOSTILE)); t.start(); t.join()",
    ],
)
def test_tracebacks_and_stray_log_lines_are_harmless(stray: str) -> None:
    program = (
        "import logging, threading; from reconsume.cli.output import make_stray_lines_visible; "
        f"from tests.support.hostile import HOSTILE; make_stray_lines_visible(); {stray}"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert "cannot open" in ran.stderr
    assert_harmless(ran.stderr)


def test_what_a_terminal_cannot_encode_is_a_json_escape() -> None:
    code = "from reconsume.cli.output import *; make_stray_lines_visible(); print_json(['\u00e9 \u4e2d \U0001f6eb'])"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"})
    assert printed.stdout == b'[\n  "\xe9 \\u4e2d \\ud83d\\udeeb"\n]\n'
