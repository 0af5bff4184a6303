"""The demo's end: the command `reconsume reconcile` on the demo's own topics."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from reconsume.cli.common import has_spark
from reconsume.cli.output import tell
from reconsume.cli.progress import working
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["reconcile_in_spark"]


def reconcile_in_spark(bootstrap_servers: str) -> dict[str, Any] | None:
    """The command's figures, and under `report` where its page is; None where Spark is not installed.

    Raises:
        ReconsumeError: the command failed.
    """
    if not has_spark():
        tell("pip install '.[spark]' in the checkout adds a reconciliation to this demo")
        return None
    report = Path(tempfile.mkdtemp(prefix="reconsume-demo-")) / "report.html"
    with working("reconciling with Spark"):
        # A process of its own: what the JVM writes stays out of the demo's output.
        run = subprocess.run(
            [
                *(sys.executable, "-m", "reconsume", "reconcile", "-o", "json", "--report", str(report)),
                *("--bootstrap-servers", bootstrap_servers, "--master", "local[2]"),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        return {**json.loads(run.stdout), "report": str(report)}
    except ValueError:
        raise ReconsumeError(f"the reconciliation failed:\n{run.stderr[-2000:]}") from None
