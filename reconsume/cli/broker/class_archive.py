"""Classes that a JVM has loaded once, kept for the next ones: with them a broker starts in half the time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

_QUIET: Final = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable", "-Xlog:all=error:stderr")
"""A JVM that cannot use an archive, or make one, goes on without it and has nothing to say."""


class ClassArchive:
    """An archive beside a folder of jars (AppCDS); the first JVM that ends in order writes it.

    Each Java has its own, because it takes no other one's.

    Args:
        jars: the folder.
        java: the program.
    """

    def __init__(self, jars: Path, java: Path) -> None:
        self._java = java
        program = java.resolve()
        made_of = f"{program} {program.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
        self._file = jars.parent / f"{jars.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"

    def options(self, to_write: Path | None = None) -> list[str]:
        """For a JVM that reads it, or writes it if nobody has.

        Args:
            to_write: where one that ends in order may write it; None if it is too small to be worth it.
        """
        if self._file.exists():
            return [*_QUIET, f"-XX:SharedArchiveFile={self._file}"]
        if to_write is None or not os.access(self._file.parent, os.W_OK) or not self._has_one_of_its_own():
            return []
        return [*_QUIET, f"-XX:ArchiveClassesAtExit={to_write}"]

    def _has_one_of_its_own(self) -> bool:
        """Return whether Java can map its own archive, on which ours builds; otherwise it would not start."""
        version = [str(self._java), "-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:on", "-version"]
        return subprocess.run(version, capture_output=True, check=False).returncode == 0

    def keep(self, written: Path) -> None:
        """For all from now on; only of a JVM that has ended in order. Without room for it nothing is kept."""
        if not written.exists():
            return
        whole = self._file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            shutil.move(written, whole)
            whole.replace(self._file)
