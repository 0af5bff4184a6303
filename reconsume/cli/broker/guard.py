"""Run a command that must not outlive its parent, not even one that is killed.

`python -m reconsume.cli.broker.guard COMMAND…`: the parent holds the other end of standard input; when that closes,
or a signal to stop comes, the command gets SIGTERM and after 10 s SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
from types import FrameType
from typing import Final

_GRACE_SECONDS: Final = 10
_PR_SET_PDEATHSIG: Final = 1


def _die_with_guard() -> None:
    """Linux kills the command when even the guard is killed; elsewhere the guard's care must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(child: subprocess.Popen[bytes], wake: int) -> None:
    """Until the command ends, the parent's pipe closes, or a signal writes to `wake`."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while child.poll() is None:
            for key, _ in selector.select():
                if key.fd == wake or not os.read(sys.stdin.fileno(), 1024):
                    return


def main() -> None:
    """Start the command, wait, stop it; exit with its code."""
    reader, writer = os.pipe()

    def wake(_number: int, _frame: FrameType | None) -> None:
        os.write(writer, b"!")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, wake)
    with subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - no thread runs here
    ) as child:
        _wait(child, reader)
        child.terminate()
        try:
            child.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
    sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


if __name__ == "__main__":
    main()
