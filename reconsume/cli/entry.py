"""The entry point of the command `reconsume`: without the extra `cli` it says so instead of failing."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_NEEDED: Final = {"pyyaml": "yaml", "rich": "rich", "structlog": "structlog", "typer": "typer"}


def main() -> None:
    """Run the command line. Closed standard streams are replaced first, or opened files would get their numbers."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we run
    missing = [package for package, module in _NEEDED.items() if find_spec(module) is None]
    if missing:
        needed = ", ".join(missing)
        sys.stderr.write(f"error: the command line needs {needed}: pip install '.[cli]' in the checkout\n")
        sys.exit(2)
    try:
        from reconsume.cli.main import main as run

        run()
    except KeyboardInterrupt:  # the imports take half a second, and a command of typer catches its own
        sys.exit(128 + signal.SIGINT)
