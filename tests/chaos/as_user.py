"""`reconsume chaos` as a user runs it, and what it must show."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.chaos.schedule import say

__all__ = ["run_as_user"]


def run_as_user(seed: int, minutes: float, rate: float) -> dict[str, Any]:
    """Run it and give its report; nothing may be lost, early, twice or wrongly quarantined."""
    command = [sys.executable, "-m", "reconsume", "chaos", "--seed", str(seed), "--minutes", str(minutes)]
    run = subprocess.run([*command, "--rate", str(rate), "-o", "json"], capture_output=True, text=True, check=False)
    say(run.stderr)
    say(run.stdout)
    assert run.stdout, "it printed no report"
    report: dict[str, Any] = json.loads(run.stdout)
    assert (report["lost"], report["early"], report["duplicates"]) == (0, 0, 0), report["examples"]
    assert report["wrongly_quarantined"] == 0, report["examples"]
    assert run.returncode == 0
    assert report["messages"] > 1_000
    assert report["failures"] > report["messages"] / 3
    return report
