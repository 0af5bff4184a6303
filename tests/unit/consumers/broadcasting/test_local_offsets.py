"""The offsets file of a broadcasting consumer."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.partitioning import NO_ID
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets, offsets_directory
from reconsume.delay_levels.errors import OffsetStoreUnusable
from reconsume.delay_levels.progress.metadata import encode_progress

HERE, THERE = ("flights", 0), ("trains", 12)
POINT = Commit(7, encode_progress(7, [9], {8: 2}))

FORK = """
import os, pathlib, sys
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets
held = LocalOffsets.open(pathlib.Path(sys.argv[1]))
if os.fork() == 0:
    if sys.argv[2] == "closed":
        held.close()
    print("forked", flush=True)
sys.stdin.read()
"""


@pytest.mark.rule("BP-02")
def test_what_was_saved_is_there_in_the_next_life_beside_what_was_saved_before(tmp_path: Path) -> None:
    first = LocalOffsets.open(tmp_path / "new" / "a")
    assert first.get(*HERE) is None
    first.save({HERE: Commit(1, ""), THERE: Commit(2, "")})
    first.save({HERE: POINT})
    first.close()
    second = LocalOffsets.open(tmp_path / "new" / "a")
    assert (second.get(*HERE), second.get(*THERE)) == (POINT, Commit(2, ""))
    assert second.topics() == {"flights", "trains"}
    second.close()


@pytest.mark.parametrize(
    ("ids", "recreated"), [(("1", "2"), {"flights"}), ((NO_ID, "2"), set()), (("1", NO_ID), set()), (("1", "1"), set())]
)
def test_a_topic_with_another_id_was_recreated_and_one_that_gets_an_id_was_not(
    tmp_path: Path, ids: tuple[str, str], recreated: set[str]
) -> None:
    offsets = LocalOffsets.open(tmp_path)
    offsets.save({HERE: POINT}, {"flights": ids[0]})
    assert offsets.recreated({"flights": ids[1]}) == recreated
    offsets.save({}, {"flights": ids[1]})
    assert ("flights" in offsets.topics()) == (not recreated)
    offsets.close()


def test_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    first = LocalOffsets.open(tmp_path)
    in_child = os.dup(first._lock_file.fileno())
    first.close()
    first.close()
    LocalOffsets.open(tmp_path).close()
    os.close(in_child)


@pytest.mark.parametrize("in_child", ["open", "closed"])
def test_a_forked_child_neither_releases_it_nor_keeps_it_when_its_parent_is_killed(
    tmp_path: Path, in_child: str
) -> None:
    command = [sys.executable, "-c", FORK, str(tmp_path), in_child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forked\n"
        with pytest.raises(OffsetStoreUnusable, match="another broadcasting consumer uses"):
            LocalOffsets.open(tmp_path)
        parent.kill()
        parent.wait()
        LocalOffsets.open(tmp_path).close()


def test_only_one_has_it_until_it_is_closed(tmp_path: Path) -> None:
    first = LocalOffsets.open(tmp_path)
    with pytest.raises(OffsetStoreUnusable, match=r"another broadcasting consumer uses .*its own client\.id"):
        LocalOffsets.open(tmp_path)
    first.close()
    LocalOffsets.open(tmp_path).close()


GOOD = {"offset": 1, "metadata": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 2, "offsets": {}}',
        '{"version": 1, "offsets": []}',
        '{"version": 1, "offsets": {}, "ids": []}',
        '{"version": 1, "offsets": {}, "ids": {"flights": 1}}',
        json.dumps({"version": 1, "offsets": {"flights": {"0": 1}}}),
        json.dumps({"version": 1, "offsets": {"flights": {"zero": GOOD}}}),
        *(
            json.dumps({"version": 1, "offsets": {"flights": {"0": GOOD | wrong}}})
            for wrong in (
                {"offset": -1},
                {"offset": "1"},
                {"offset": True},
                {"metadata": None},
                {"metadata": "done1:!"},
            )
        ),
    ],
)
def test_what_is_no_offsets_file_is_an_error_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(text)
    for _ in range(2):
        with pytest.raises(OffsetStoreUnusable, match=r"offsets\.json is damaged: .*or delete the file to start"):
            LocalOffsets.open(tmp_path)
    assert file.read_text() == text
    file.unlink()
    LocalOffsets.open(tmp_path).close()


def test_a_file_that_was_half_written_beside_it_changes_nothing(tmp_path: Path) -> None:
    first = LocalOffsets.open(tmp_path)
    first.save({HERE: POINT})
    first.close()
    (tmp_path / "offsets.new").write_text('{"vers')
    second = LocalOffsets.open(tmp_path)
    assert second.get(*HERE) == POINT
    second.close()


def test_a_save_that_fails_keeps_the_file_before_it_and_says_so(tmp_path: Path) -> None:
    offsets = LocalOffsets.open(tmp_path)
    offsets.save({HERE: Commit(1, "")})
    (tmp_path / "offsets.new").mkdir()
    with pytest.raises(OffsetStoreUnusable, match="offsets cannot be saved in "):
        offsets.save({HERE: Commit(2, "")})
    assert offsets.get(*HERE) == Commit(1, "")
    (tmp_path / "offsets.new").rmdir()
    offsets.save({HERE: Commit(3, "")})
    assert offsets.get(*HERE) == Commit(3, "")
    offsets.close()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OffsetStoreUnusable, match=r"offsets cannot be stored in .*set offset_store"):
        LocalOffsets.open(tmp_path / "file" / "a")


def test_the_directory_is_that_of_the_cluster_the_client_and_the_group() -> None:
    by_default = offsets_directory(None, "kX-1", "client", "departures")
    assert by_default == Path.home() / ".reconsume" / "offsets" / "kX-1" / "client" / "departures"


@pytest.mark.parametrize("name", ["..", "../..", "a/b", "/etc", "a\\b", "groß"])
def test_no_name_leads_out_of_the_directory(name: str) -> None:
    directory = offsets_directory(Path("store"), "cluster", name, name)
    assert directory.parts[:2] == ("store", "cluster")
    assert len(directory.parts) == 4
    assert os.path.normpath(directory) == str(directory)


def test_a_user_without_a_home_is_told_to_name_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container with an arbitrary user id has it."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(OffsetStoreUnusable, match="this user has no home folder for offsets; set offset_store"):
        offsets_directory(None, "cluster", "client", "group")
