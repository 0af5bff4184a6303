"""Programs in other languages, made ready as their users would: what they need comes from their own registries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconsume.cli.broker import jars
from reconsume.cli.broker.java import find_java

__all__ = ["EXAMPLES", "example_command"]

EXAMPLES = Path(__file__).parents[3] / "examples" / "sidecar"
_SECONDS = 240


def example_command(language: str, folder: Path) -> list[str]:
    """What starts the example of `examples/sidecar/<language>`; it is built in `folder`. Skips without its tools."""
    return {"java": _java, "go": _go, "node": _node, "python": _python}[language](folder)


def _java(_folder: Path) -> list[str]:
    java = find_java()
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler@" not in modules:
        pytest.skip(f"{java} is no JDK: it has no compiler")
    folder = jars.kafka_jars(java, lambda _line: None, jars.NEWEST_KAFKA_VERSION)
    return [str(java), "-cp", f"{folder}/*", str(EXAMPLES / "java" / "SendBack.java")]


def _go(folder: Path) -> list[str]:
    program = folder / "send_back"
    _run([_tool("go"), "build", "-o", str(program), "."], EXAMPLES / "go")
    return [str(program)]


def _node(folder: Path) -> list[str]:
    there = folder / "node"
    shutil.copytree(EXAMPLES / "node", there, ignore=shutil.ignore_patterns("node_modules"))
    # Without a lock file: it would record where each package came from.
    _run([_tool("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"], there)
    return [_tool("node"), str(there / "send_back.js")]


def _python(_folder: Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / "python" / "send_back.py")]


def _tool(name: str) -> str:
    """On PATH, or from PyPI in the environment of the tests."""
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(beside)]))
    if found is None:
        pytest.skip(f"{name} is neither on PATH nor in {beside}; `make setup` installs it")
    return found


def _run(command: list[str], folder: Path) -> None:
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    made = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
