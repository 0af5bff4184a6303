from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import reconsume.cli.broker.kafka as kafka_module
from reconsume.bridge.process.environment import cache_folder
from reconsume.cli.broker.jars import (
    KAFKA_VERSION,
    NEWEST_KAFKA_VERSION,
    JarsNotFound,
    is_whole,
    kafka_jars,
)
from reconsume.cli.broker.java import find_java
from reconsume.cli.broker.kafka import BrokerFailed, LocalKafka
from reconsume.cli.broker.ports import free_ports
from tests.support.brokers.kafka import local_kafka
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(6), pytest.mark.more]

SOON_BACK = {"broker.session.timeout.ms": "6000"}
"""For a broker that starts again: it waits for the end of its last session if it was ended by force."""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with local_kafka() as kafka:
        yield kafka


def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(PATIENCE) == 0


def read_one(bootstrap_servers: str, topic: str, group: str = "reader") -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = wait_until(lambda: consumer.poll(0.2), f"a record on {topic}")
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def process_runs(process_id: int) -> bool:
    """Whether it runs; one that ended and is not yet collected does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def processes_that_mention(text: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it ended between the look at the folder and the look into it
        if text.encode() in command and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return [found_id for found_id in found if process_runs(found_id)]


def test_it_is_a_real_kafka_with_the_newest_transaction_and_group_protocols(broker: LocalKafka) -> None:
    produce(broker.bootstrap_servers, "real", b"a record")
    assert read_one(broker.bootstrap_servers, "real") == b"a record"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "one"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("real", b"in a transaction")
    producer.commit_transaction(20)


def test_a_taken_port_is_a_clear_error(broker: LocalKafka) -> None:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(BrokerFailed, match=rf"port {port} is taken.*0 for any"), local_kafka(port):
        pass


def holding_a_port(*, listening: bool) -> socket.socket:
    """Held without listening, only Kafka's own attempt to take it tells that it is not free."""
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    if listening:
        one.listen()
    return one


def port_of(one: socket.socket) -> int:
    return int(one.getsockname()[1])


def test_a_port_that_was_named_and_is_taken_before_kafka_has_it_is_a_clear_error() -> None:
    with holding_a_port(listening=False) as held:
        port = port_of(held)
        with pytest.raises(BrokerFailed, match=rf"port {port} is taken.*0 for any"), local_kafka(port):
            pass


def test_a_data_folder_that_another_kafka_has_is_a_clear_error(broker: LocalKafka) -> None:
    folder = broker.log_file.parent
    before = (folder / "server.properties").read_bytes()
    with pytest.raises(BrokerFailed, match="is used by another Kafka; stop it, or name another one"):
        LocalKafka(data_dir=folder).start()
    assert (folder / "server.properties").read_bytes() == before, "the other one's files are left alone"


@pytest.mark.parametrize("whose", ["broker", "controller"])
def test_a_free_port_that_is_taken_meanwhile_is_exchanged(monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    with holding_a_port(listening=False) as held:
        mine, other = port_of(held), free_ports(1)[0]
        draws = [[other, mine] if whose == "broker" else [mine, other]]
        monkeypatch.setattr(kafka_module, "free_ports", lambda count: draws.pop() if draws else free_ports(count))
        with local_kafka() as kafka:
            assert not kafka.bootstrap_servers.endswith(f":{port_of(held)}")
            produce(kafka.bootstrap_servers, "exchanged", b"a record")
            assert read_one(kafka.bootstrap_servers, "exchanged") == b"a record"


def test_the_search_for_a_free_port_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with holding_a_port(listening=True) as held:
        draws = [[other, port_of(held)] for other in free_ports(6)]
        monkeypatch.setattr(kafka_module, "free_ports", lambda _count: draws.pop())
        with pytest.raises(BrokerFailed, match=f"port {port_of(held)} is taken"), local_kafka():
            pass
    assert len(draws) == 1, "a port for the broker and one for the controller, five times"


def test_a_restart_goes_on_with_the_data_on_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data folder may have any name, and the current one a module of our name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reconsume.py").touch()
    folder = tmp_path / "dätä \\ 数据"
    with local_kafka(data_dir=folder, version=KAFKA_VERSION, properties=SOON_BACK) as kafka:
        assert list(tmp_path.rglob("meta.properties")) == [folder / "log" / "meta.properties"]
        address = kafka.bootstrap_servers
        produce(address, "kept", b"before")
        kafka.shut_down()
        assert not kafka.alive()
        kafka.start()
        assert kafka.bootstrap_servers == address
        assert read_one(address, "kept") == b"before"
        assert list(tmp_path.rglob("meta.properties")) == [folder / "log" / "meta.properties"]
    assert folder.exists(), "a data folder that was given stays"


def test_data_of_a_newer_kafka_are_served_by_that_one(tmp_path: Path) -> None:
    """With its note about the version, and without it."""
    with local_kafka(data_dir=tmp_path, version=NEWEST_KAFKA_VERSION, properties=SOON_BACK) as kafka:
        produce(kafka.bootstrap_servers, "kept", b"before")
    with local_kafka(data_dir=tmp_path, version=KAFKA_VERSION, properties=SOON_BACK) as kafka:
        assert read_one(kafka.bootstrap_servers, "kept") == b"before"
    (tmp_path / "kafka-version").unlink()
    with local_kafka(data_dir=tmp_path, version=KAFKA_VERSION) as kafka:
        assert read_one(kafka.bootstrap_servers, "kept", "second reader") == b"before"


def test_a_broker_that_cannot_start_shows_its_last_lines() -> None:
    with (
        pytest.raises(BrokerFailed, match=r"Invalid value many for configuration num\.partitions"),
        local_kafka(properties={"num.partitions": "many"}),
    ):
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_the_broker_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from reconsume.cli.broker.kafka import LocalKafka\n"
        f"kafka = LocalKafka(data_dir=Path({str(tmp_path)!r})); kafka.start()\n"
        "print('up', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        assert processes_that_mention(f"{tmp_path}/server.properties")
        parent.kill()
        parent.wait(PATIENCE)
        wait_until(lambda: not processes_that_mention(f"{tmp_path}/server.properties"), "broker and guard are gone")


def test_the_command_prints_its_address_and_stops_in_order() -> None:
    code = "from reconsume.cli.broker.command import run_broker; run_broker(0, None)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None
        name, _, address = command.stdout.readline().decode().strip().partition(": ")
        assert name == "bootstrap.servers"
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).brokers
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == 0
    host, _, port = address.partition(":")
    with socket.socket() as client:
        assert client.connect_ex((host, int(port))) != 0, "the broker is gone"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has mapped")
def test_a_broker_that_ended_in_order_leaves_its_classes_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = kafka_jars(find_java(), lambda _line: None)
    (tmp_path / jars.name).symlink_to(jars)
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    with LocalKafka() as kafka:
        kafka.kill()
        assert list(tmp_path.glob("*.jsa")) == [], "nobody knows whether a killed one has written all"
        for _ in range(3):
            kafka.start()
            kafka.shut_down()
            # One that took longer than 10 s to end, on a busy machine, was killed, and leaves none.
            if list(tmp_path.glob("*.jsa")):
                break
        (archive,) = tmp_path.glob("*.jsa")
        size = archive.stat().st_size
        (kafka._folder / "classes.jsa").write_bytes(b"what one left that was killed while it wrote")
        kafka.start()
        assert str(archive) in Path(f"/proc/{kafka.java_pid}/maps").read_text()
        produce(kafka.bootstrap_servers, "flights", b"one")
        assert read_one(kafka.bootstrap_servers, "flights") == b"one"
        kafka.shut_down()
    assert {one.name for one in tmp_path.iterdir()} == {jars.name, archive.name}
    assert archive.stat().st_size == size


@pytest.mark.long
@pytest.mark.parametrize("damage", ["missing", "cut short"])
def test_damaged_jars_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    # Simulated on a copy with Ivy's own cache; a whole download takes 40 s.
    java = find_java()
    whole = kafka_jars(java, lambda _line: None)
    shutil.copytree(cache_folder(), tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    victim = next((tmp_path / whole.name).glob("kafka-clients-*.jar"))
    victim.unlink() if damage == "missing" else os.truncate(victim, 1000)
    jars = kafka_jars(java, lambda _line: None)
    assert is_whole(jars)
    assert victim.stat().st_size == (whole / victim.name).stat().st_size


def test_a_failed_download_shows_what_ivy_said_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONSUME_CACHE_DIR", str(tmp_path))
    # A proxy that refuses: port 9 of this machine.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    with pytest.raises(JarsNotFound, match=r"(?s)run the command again.*Server access error"):
        kafka_jars(find_java(), lambda _line: None)
    assert not list(tmp_path.glob("kafka-*/"))


def test_the_command_says_as_json_where_kafka_is() -> None:
    command = [sys.executable, "-m", "reconsume", "broker", "--port", "0", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        try:
            produce(said["bootstrap.servers"], "said", b"a record")
        finally:
            process.send_signal(signal.SIGTERM)
        rest, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest) == (0, "")
    assert f"log: {said['log']}; stop with Ctrl-C" in told
