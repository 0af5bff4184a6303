"""What a JVM is told of an archive of classes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconsume.cli.broker.class_archive import ClassArchive


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "cache" / "kafka-4.3.0"
    folder.mkdir(parents=True)
    return folder


def java(tmp_path: Path, code: int, name: str = "java") -> Path:
    """A program that says so of its own archive."""
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    return program


def written(tmp_path: Path) -> Path:
    """As a JVM leaves it."""
    file = tmp_path / "classes.jsa"
    file.write_bytes(b"classes")
    return file


def test_the_first_writes_and_the_next_ones_read(jars: Path, tmp_path: Path) -> None:
    archive, here = ClassArchive(jars, java(tmp_path, 0)), tmp_path / "classes.jsa"
    assert archive.options() == []
    assert f"-XX:ArchiveClassesAtExit={here}" in archive.options(here)
    archive.keep(written(tmp_path))
    (kept,) = jars.parent.glob("*.jsa")
    for to_write in (None, here):
        assert f"-XX:SharedArchiveFile={kept}" in archive.options(to_write)
    assert not here.exists()


def test_a_java_that_cannot_write_one_is_not_asked_to(jars: Path, tmp_path: Path) -> None:
    assert ClassArchive(jars, java(tmp_path, 1)).options(tmp_path / "classes.jsa") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_gets_none(jars: Path, tmp_path: Path) -> None:
    jars.parent.chmod(0o555)
    assert ClassArchive(jars, java(tmp_path, 0)).options(tmp_path / "classes.jsa") == []


def test_what_cannot_be_kept_is_done_without(jars: Path, tmp_path: Path) -> None:
    archive = ClassArchive(jars, java(tmp_path, 0))
    jars.rmdir()
    jars.parent.rmdir()
    archive.keep(written(tmp_path))
    archive.keep(tmp_path / "was never written")
    assert archive.options() == []


def test_each_java_and_each_set_of_jars_has_its_own(jars: Path, tmp_path: Path) -> None:
    one = java(tmp_path, 0)
    ClassArchive(jars, one).keep(written(tmp_path))
    assert ClassArchive(jars, one).options()
    assert ClassArchive(jars, java(tmp_path, 0, "other")).options() == []
    os.utime(one, ns=(1, 1))
    assert ClassArchive(jars, one).options() == [], "another version in its place"
    os.utime(jars, ns=(1, 1))
    assert ClassArchive(jars, java(tmp_path, 0)).options() == [], "fetched again"
