"""Downloads of jars: through the proxy of the environment, and with no process left by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from reconsume.cli.broker.children import child_process
from reconsume.cli.broker.jars import JarSet, JarsNotFound, cached_jars
from reconsume.delay_levels.errors import IllegalSetting

WANTED: Final = JarSet("jars-1", "some jars", "<ivy-module/>", 1, 1)
VARIABLES: Final = ("https_proxy", "http_proxy", "all_proxy", "no_proxy")
TELLS: Final = """#!/bin/sh
for argument do case "$argument" in @*) echo "options:"; cat "${argument#@}";; esac; done
echo "arguments: $*"
exit 1
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that prints its options and fails."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path / "cache"))
    java = tmp_path / "java"
    java.write_text(TELLS)
    java.chmod(0o755)
    return java


def failed(java: Path) -> str:
    with pytest.raises(JarsNotFound) as found:
        cached_jars(java, lambda _line: None, WANTED)
    return str(found.value)


def test_java_gets_the_proxy_of_the_environment_and_its_error_names_it(
    java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:s%40cret@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "corp.example, .lan")
    said = failed(java)
    assert "from Maven Central through the proxy proxy.example:3128 (https_proxy); run" in said
    for option in (
        '"-Dhttps.proxyHost=proxy.example"',
        '"-Dhttps.proxyPort=3128"',
        '"-Dhttp.proxyUser=me"',
        '"-Dhttp.proxyPassword=s@cret"',
        '"-Dhttp.nonProxyHosts=localhost|127.*|[::1]|corp.example|*.corp.example|lan|*.lan"',
    ):
        assert option in said
    [arguments] = [line for line in said.splitlines() if "arguments: " in line]
    assert "cret" not in arguments, "a command line shows the password to all users"


@pytest.mark.parametrize("variables", [{}, {"https_proxy": "http://proxy.example", "no_proxy": "*"}])
def test_without_a_proxy_java_gets_none(java: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = failed(java)
    assert "without a proxy" in said
    assert "-Dhttp" not in said


@pytest.mark.parametrize("text", ["socks5://me:secret@proxy:1", "http://", "http://proxy:many", "http://[::1"])
def test_what_is_no_proxy_is_refused_by_the_name_of_its_variable(
    java: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("https_proxy", text)
    with pytest.raises(IllegalSetting, match="https_proxy names no HTTP proxy; write http://HOST:PORT") as found:
        cached_jars(java, lambda _line: None, WANTED)
    assert "secret" not in str(found.value)


def test_a_signal_while_a_child_starts_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def interrupted(process: subprocess.Popen[str], *arguments: Any) -> None:
        execute(process, *arguments)
        started.append(process.pid)
        os.kill(os.getpid(), signal.SIGTERM)

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", interrupted)
    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit), child_process([sys.executable, "-c", "import time; time.sleep(600)"]):
            pytest.fail("the signal comes before the block")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not psutil.pid_exists(started[0])
