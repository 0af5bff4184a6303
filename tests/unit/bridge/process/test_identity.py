"""Names that no two live processes have, and that a process gets again after a restart."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconsume.bridge.process.identity import stable_identity
from reconsume.bridge.writing.exactly_once import transactional_identity
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.testing import InMemoryKafka

HOLD = """
import os, signal, sys
from reconsume.bridge.process.identity import stable_identity
held = stable_identity("scheduler", sys.argv[1])
print(held.name, flush=True)
if len(sys.argv) > 2 and os.fork() == 0:
    print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path / "state"


@contextmanager
def holder(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, *args], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_two_processes_have_two_names_and_the_place_of_one_that_is_killed_is_free_at_once() -> None:
    with holder("a") as (first, name), holder("a") as (_, other):
        assert name != other
        first.kill()
        first.wait()
        with holder("a") as (_, again):
            assert again == name


def test_a_child_that_outlives_its_killed_parent_does_not_keep_its_place() -> None:
    with holder("a", "and fork") as (parent, name):
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            parent.kill()
            parent.wait()
            with stable_identity("scheduler", "a") as identity:
                assert identity.name == name
        finally:
            os.kill(child, signal.SIGKILL)


def test_two_of_one_process_have_two_names_and_who_comes_next_has_the_one_that_is_free() -> None:
    with stable_identity("scheduler", "a") as first, stable_identity("scheduler", "a") as second:
        names = {first.name, second.name}
        assert len(names) == 2
        first.release()
        with stable_identity("scheduler", "a") as third:
            assert third.name == first.name


@pytest.mark.parametrize(("role", "scope"), [("exactly-once", "a"), ("scheduler", "b")])
def test_each_role_and_scope_has_slots_of_its_own(role: str, scope: str) -> None:
    with stable_identity("scheduler", "a") as one, stable_identity(role, scope) as other:
        assert one.name.split("-")[-2] == other.name.split("-")[-2] == "0"
        assert one.name != other.name


def test_the_name_is_unique_where_two_machines_have_one_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stable_identity("scheduler", "a") as here:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another machine"))
        with stable_identity("scheduler", "a") as there:
            assert here.name != there.name


def test_hosts_that_share_a_home_folder_have_slots_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stable_identity("scheduler", "a").release()
    monkeypatch.setattr(socket, "gethostname", lambda: "another host%")
    with stable_identity("scheduler", "a") as there:
        assert re.fullmatch(r"another_host_-0-[0-9a-f]{16}", there.name)


@pytest.mark.parametrize("text", ["", "0123", "no token at all!", "\0" * 16, "0123456789abcdef\n"])
def test_a_file_that_holds_no_token_gets_one(state: Path, text: str) -> None:
    stable_identity("scheduler", "a").release()
    (file,) = (state / "reconsume").iterdir()
    file.write_text(text, encoding="utf-8")
    with stable_identity("scheduler", "a") as identity:
        assert identity.name.endswith(f"-0-{file.read_text(encoding='utf-8')}")
        assert re.fullmatch(r"[0-9a-f]{16}", file.read_text(encoding="utf-8"))


def test_where_no_folder_can_be_written_the_name_is_random_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_folder = tmp_path / "file"
    no_folder.touch()
    for variable in ("XDG_STATE_HOME", "HOME", "TMPDIR"):
        monkeypatch.setenv(variable, str(no_folder))
    first, second = stable_identity("scheduler", "a"), stable_identity("scheduler", "a")
    assert first.name != second.name
    assert "set XDG_STATE_HOME to a folder that can be written" in caplog.text
    first.release()


def test_without_a_state_folder_it_is_in_the_home_folder_and_in_a_pod_in_the_memory_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    scope = str(tmp_path)
    stable_identity("scheduler", scope).release()
    (at_home,) = (tmp_path / ".local" / "state" / "reconsume").iterdir()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    in_memory = Path("/dev/shm") / f"reconsume-{os.getuid()}" / at_home.name
    if not in_memory.parent.parent.is_dir():
        pytest.skip("the system has no /dev/shm")
    try:
        stable_identity("scheduler", scope).release()
        assert in_memory.exists()
    finally:
        in_memory.unlink(missing_ok=True)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (state / "reconsume").mkdir(parents=True)
    os.chown(state / "reconsume", 12345, 12345)
    stable_identity("scheduler", "a").release()
    assert not list((state / "reconsume").iterdir())
    assert list((tmp_path / ".local" / "state" / "reconsume").iterdir())


def test_a_consumers_transactional_id_begins_with_its_client_id_and_is_that_of_its_slot() -> None:
    conf = {"bootstrap.servers": "localhost:9092"}
    with transactional_identity(conf, TopicNames(), "billing", "reconsume-billing") as one:
        assert re.fullmatch(r"reconsume-billing-.*-0-[0-9a-f]{16}", one.name)
        with transactional_identity(conf, TopicNames(), "billing", "reconsume-billing") as another:
            assert re.fullmatch(r"reconsume-billing-.*-1-[0-9a-f]{16}", another.name)
    with transactional_identity(conf, TopicNames(), "billing", "reconsume-billing") as again:
        assert again.name == one.name


def test_the_instance_id_of_a_static_member_is_unique_in_its_group_already(state: Path) -> None:
    conf = {"bootstrap.servers": "localhost:9092", "group.instance.id": "billing-0"}
    with transactional_identity(conf, TopicNames(), "billing", "svc") as identity:
        assert identity.name == "svc-billing-billing-0"
    assert not state.exists()


def test_a_kafka_in_memory_needs_no_slot(state: Path) -> None:
    with InMemoryKafka() as kafka:
        conf = {"bootstrap.servers": kafka.bootstrap_servers}
        names = {transactional_identity(conf, TopicNames(), "billing", "svc").name for _ in range(2)}
    assert len(names) == 2
    assert not state.exists()
