"""A Java for Spark's launcher, and a folder that Java may write to.

    export JAVA_HOME=$(python -m reconsume.cli.spark.java)

prints it for `spark-submit`, if the only Java is that of the extra `broker`.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

from reconsume.bridge.process.environment import cache_folder
from reconsume.cli.broker.java import find_java
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError

_JAVA: Final = """#!/bin/sh
# Spark's launcher asks for jdk.incubator.vector, which this Java lacks and Spark does without.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def use_java() -> Path:
    """Find a Java and make pyspark use it.

    Raises:
        JavaNotFound: no Java of version 17 or newer.
        IllegalSetting: no folder is writable.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java_home(java))
    return java


def java_home(java: Path) -> Path:
    """Return a folder whose `bin/java` starts with Spark's flags, even if the Java lacks a module in them.

    Raises:
        IllegalSetting: no folder is writable.
    """
    home = java.resolve().parent.parent
    if (home / "jmods" / "jdk.incubator.vector.jmod").exists() or _has_vector(home):
        return home
    try:
        return _shim(cache_folder(), java)
    except OSError:
        return _shim(own_folder(), java)


def temporary_folder() -> Path:
    """Return a writable temporary folder: `TMPDIR`, `/tmp` and so on.

    Raises:
        IllegalSetting: no folder is writable.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise IllegalSetting(
            f"Spark needs a writable folder for temporary files; set TMPDIR to one ({error})"
        ) from error


def main() -> None:
    """Print the folder."""
    try:
        java = find_java()
        home = java_home(java)
    except ReconsumeError as error:
        sys.exit(f"error: {error}")
    if home.is_relative_to(temporary_folder()) and not home.is_relative_to(cache_folder()):
        sys.exit(f"error: {cache_folder()} cannot be written: set RECONSUME_CACHE_DIR to a folder that can be")
    sys.stdout.write(f"{home}\n")


def _shim(folder: Path, java: Path) -> Path:
    shim = folder / f"java-for-spark-{pyspark.__version__}" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_name(f"java.{os.getpid()}")
    fresh.write_text(_JAVA.format(java=shlex.quote(str(java.resolve()))))
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    fresh.rename(shim)
    return shim.parent.parent


@cache
def own_folder() -> Path:
    """Return a private folder that is removed with this process."""
    folder = tempfile.mkdtemp(prefix="reconsume-", dir=temporary_folder())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _has_vector(home: Path) -> bool:
    """Return whether the `release` file of a Java lists the vector module."""
    release = home / "release"
    return release.is_file() and "jdk.incubator.vector" in release.read_text(errors="replace")


if __name__ == "__main__":
    main()
