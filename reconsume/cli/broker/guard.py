"""Runs a command that must not outlive its parent, even if the parent is killed.

`python -m reconsume.cli.broker.guard [--remove FOLDER] COMMAND…`: the parent holds the other end of standard input;
when that closes, or a signal to stop comes, the command gets SIGTERM and after 10 s SIGKILL. The folder is removed
only if the parent is gone. On Linux the command dies with the guard too. Test:
tests/integration/cli/test_local_kafka.py.

`python -m reconsume.cli.broker.guard --exec PARENT COMMAND…` becomes the command, under the same process id: it may be
killed and stopped. On Linux it dies with the thread that started it; other systems lack this.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
from types import FrameType
from typing import Final

_GRACE_SECONDS: Final = 10
_PR_SET_PDEATHSIG: Final = 1
_PARENT_SECONDS: Final = 1.0


def _die_with_parent() -> None:
    """Make Linux kill this process when its parent is killed; other systems lack this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(child: subprocess.Popen[bytes], wake: int) -> bool:
    """Wait for the command's end, the parent's pipe, or a signal that writes to `wake`; True if the parent is gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        parent = os.getppid()
        while child.poll() is None:
            for key, _ in selector.select(_PARENT_SECONDS):
                # SIGCHLD also arrives when the command is only stopped.
                if key.fd == wake and os.read(wake, 1024).strip(b"c"):
                    return False
                if key.fd != wake and not os.read(sys.stdin.fileno(), 1024):
                    return True
            if os.getppid() != parent:  # a fork of the parent may hold the pipe open
                return True
    return False


def main() -> None:
    """Start the command, wait, stop it; exit with its code."""
    command = sys.argv[1:]
    if command[0] == "--exec":
        _die_with_parent()
        if os.getppid() != int(command[1]):
            sys.exit(1)  # the parent died before
        os.execv(command[2], command[2:])  # noqa: S606 - our own command
    folder = command[1] if command[0] == "--remove" else None
    reader, writer = os.pipe()

    def wake(number: int, _frame: FrameType | None) -> None:
        os.write(writer, b"c" if number == signal.SIGCHLD else b"!")

    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(signal_number, wake)
    with subprocess.Popen(
        command if folder is None else command[2:],
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - no thread runs here
    ) as child:
        orphaned = _wait(child, reader)
        child.terminate()
        try:
            child.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
    if orphaned and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


if __name__ == "__main__":
    main()
