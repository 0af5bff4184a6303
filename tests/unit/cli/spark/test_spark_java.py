"""The places that the commands with Spark write to, also where little can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pytest

from reconsume.cli.broker.jars import JarSet, JarsNotFound, cached_jars
from reconsume.cli.spark.java import temporary_folder
from reconsume.delay_levels.errors import IllegalSetting

NOWHERE: Final = "/dev/null/reconsume"
"""A folder that not even root can make."""
WANTED: Final = JarSet("jars-1", "some jars", "<ivy-module/>", 1, 1)


def test_with_no_folder_to_write_to_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(IllegalSetting, match="set TMPDIR to one"):
        temporary_folder()


def test_jars_that_are_whole_are_taken_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    folder = tmp_path / WANTED.folder
    folder.mkdir()
    (folder / "files.json").write_text("{}")
    assert cached_jars(Path("no-java"), lambda _line: None, WANTED) == folder
    assert [one.name for one in tmp_path.iterdir()] == [WANTED.folder]


def test_jars_that_have_no_place_are_an_error_that_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", NOWHERE)
    with pytest.raises(JarsNotFound, match=r"set RECONSUME_CACHE_DIR to a folder that has them, or that can be"):
        cached_jars(Path("no-java"), lambda _line: None, WANTED)
