"""Archives of loaded Java classes, with which a broker starts in half the time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

_QUIET: Final = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable", "-Xlog:all=error:stderr")
"""Options for a JVM to continue silently if it cannot use or write an archive."""


class ClassArchive:
    """An archive (AppCDS) beside a folder of jars; the first JVM with an orderly end writes it.

    Each Java has its own archive, because it refuses that of another Java.

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
        """Return options for a JVM that reads the archive, or writes it if none exists.

        Args:
            to_write: where a JVM may write it at its end; None if it loads too few classes to be worth it.
        """
        if self._file.exists():
            return [*_QUIET, f"-XX:SharedArchiveFile={self._file}"]
        if to_write is None or not os.access(self._file.parent, os.W_OK) or not self._has_one_of_its_own():
            return []
        return [*_QUIET, f"-XX:ArchiveClassesAtExit={to_write}"]

    def _has_one_of_its_own(self) -> bool:
        """Return whether Java can map its own archive, which ours extends; otherwise it would not start."""
        version = [str(self._java), "-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:on", "-version"]
        return subprocess.run(version, capture_output=True, check=False).returncode == 0

    def keep(self, written: Path) -> None:
        """Keep a complete archive for later starts; without free space nothing is kept."""
        if not written.exists():
            return
        whole = self._file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            shutil.move(written, whole)
            whole.replace(self._file)
