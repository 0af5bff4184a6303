"""A shell completes commands."""

from __future__ import annotations

import os
import subprocess
import sys

from typer.testing import CliRunner

from reconsume.cli.main import app


def test_a_shell_completes_commands() -> None:
    environment = os.environ | {
        "_RECONSUME_COMPLETE": "complete_bash",
        "COMP_WORDS": "reconsume dlq ",
        "COMP_CWORD": "2",
    }
    program = "import sys; sys.argv = ['reconsume']; from reconsume.cli.entry import main; main()"
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["list", "show", "export", "resend", "resolve", "reopen"], run.stderr
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
