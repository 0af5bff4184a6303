"""Where the command `reconsume` enters: without the extra `cli` it says so instead of failing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    if find_spec("typer") is None or find_spec("rich") is None:
        sys.stderr.write("error: the command line needs typer and rich: pip install 'reconsume[cli]'\n")
        sys.exit(1)
    from reconsume.cli.main import main as run

    run()
