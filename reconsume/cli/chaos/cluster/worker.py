"""A scheduler worker with an adjustable clock: `python -m reconsume.cli.chaos.cluster.worker CLOCK ARGUMENTS…`.

CLOCK is a file with a float of 8 bytes: the seconds by which this process's clock is ahead. The arguments are those of
the command `reconsume`.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

_AHEAD = struct.Struct("d")


def set_ahead(clock: Path, seconds: float) -> None:
    """Set the clock of the processes that use this file; in place, because the file is mapped."""
    with clock.open("r+b" if clock.exists() else "w+b") as file:
        file.write(_AHEAD.pack(seconds))


def run(clock: Path, arguments: list[str]) -> None:
    """Run the program with that clock."""
    right = time.time
    with clock.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)
    time.time = lambda: right() + _AHEAD.unpack_from(ahead)[0]
    # As `python -m reconsume` does: imported with the clock set, however it gets the time.
    sys.argv = ["reconsume", *arguments]
    runpy.run_module("reconsume", run_name="__main__")


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
