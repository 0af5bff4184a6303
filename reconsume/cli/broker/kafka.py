"""A Kafka broker in one JVM (KRaft, broker and controller together), for development and tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from reconsume.bridge.kafka.clients import make_admin
from reconsume.bridge.kafka.errors import translated
from reconsume.cli.broker.class_archive import ClassArchive
from reconsume.cli.broker.data_folder import (
    CLUSTER_ID,
    BrokerFailed,
    is_formatted,
    note_version,
    require_unused,
    using_folder,
    version_of_data,
)
from reconsume.cli.broker.jars import KAFKA_VERSION, Progress, kafka_jars
from reconsume.cli.broker.java import find_java
from reconsume.cli.broker.ports import free_ports
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["BrokerFailed", "LocalKafka"]

_HOST: Final = "127.0.0.1"
_LOG_CONFIG: Final = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # A heartbeat admits a starting broker.
    "broker.heartbeat.interval.ms": "500",
    # Compaction skips the last segment, and a coordinator reads all segments at its start.
    "transaction.state.log.segment.bytes": "4194304",
    "offsets.topic.segment.bytes": "4194304",
    "log.segment.bytes": "268435456",
    "log.retention.check.interval.ms": "60000",
}
_PORT_TRIES: Final = 5
_BIND_FAILED: Final = re.compile(r"failed to bind to \S*:(\d+)")
_WRITTEN_CLASSES: Final = "classes.jsa"
_ENDED_IN_ORDER: Final = 128 + signal.SIGTERM
_LAST_LINES: Final = 20
_HEAP: Final = ("-Xms64m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")


class _PortTaken(BrokerFailed):
    """A wanted port is taken, or was free a moment ago."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is taken by another program; use another one, or 0 for any")
        self.port = port


class LocalKafka:
    """A real Kafka that lives as long as the process that started it.

    Args:
        port: the port of the broker; 0 picks a free one.
        data_dir: the folder for its data; None uses a temporary folder that `stop` removes.
        properties: further broker settings, which override ours.
        version: the version of Kafka for a new data folder.
        progress: called with the current download.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        data_dir: Path | None = None,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        progress: Progress = lambda _line: None,
    ) -> None:
        self._wanted_port = port
        self._given_data_dir = data_dir
        self._properties = dict(properties or {})
        self._version = version
        self._progress = progress
        self._guard: subprocess.Popen[bytes] | None = None
        self._ports = (0, 0)
        self._folder = self._jars = Path()
        self._java: Path | None = None
        self._log_start = 0
        self._classes: ClassArchive | None = None
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:<port>`."""
        return f"{_HOST}:{self._ports[0]}"

    @property
    def log_file(self) -> Path:
        """The output of the broker."""
        return self._folder / "broker.log"

    def start(self, deadline_seconds: float = 60) -> None:
        """Download if necessary, format the data folder once, start, and wait until the broker answers.

        Raises:
            JavaNotFound: Java is not installed.
            JarsNotFound: Kafka could not be downloaded.
            BrokerFailed: the port or the data folder is in use, or unusable, or the broker did not start.
        """
        self._java = self._java or find_java()
        restarted = self._ports != (0, 0)
        try:
            if not restarted:
                self._make_folder()
            if self._classes is None:
                self._jars = kafka_jars(self._java, self._progress, version_of_data(self._folder, self._version))
                self._classes = ClassArchive(self._jars, self._java)
            self._start_on(self._ports[0] if restarted else self._wanted_port, deadline_seconds)
        except BaseException:
            self.stop()
            raise

    def _make_folder(self) -> None:
        with using_folder():
            self._folder = self._given_data_dir or Path(tempfile.mkdtemp(prefix="reconsume-kafka-"))
            self._folder.mkdir(parents=True, exist_ok=True)
        if "," in str(self._folder):
            raise BrokerFailed(
                f"Kafka splits the name of its data folder {self._folder} at the comma; name another one"
            )
        require_unused(self._folder)
        if self._given_data_dir is None:
            self._cleanup.callback(shutil.rmtree, self._folder, ignore_errors=True)

    def _start_on(self, fixed: int, deadline_seconds: float) -> None:
        """Start on this port, or for 0 on a free one; several are tried, because another process may take one."""
        for tries_left in reversed(range(_PORT_TRIES)):
            ports = [port for port in free_ports(2) if port != fixed]
            self._ports = (fixed or ports.pop(), ports.pop())
            try:
                self._start(deadline_seconds)
            except _PortTaken as taken:
                self.shut_down()
                if taken.port == fixed or not tries_left:
                    raise
            else:
                return

    def _start(self, deadline_seconds: float) -> None:
        for port in self._ports:
            if _is_taken(port):
                raise _PortTaken(port)
        with using_folder():
            self._write_settings()
        if not is_formatted(self._folder):
            self._format()
        self._launch()
        self._wait_until_it_answers(deadline_seconds)

    def stop(self) -> None:
        """Stop the broker in order and remove its temporary folder."""
        self.shut_down()
        self._cleanup.close()
        self._ports = (0, 0)

    def shut_down(self) -> None:
        """Stop the broker in order and keep its data; `start` continues with them on the same port."""
        if self._guard is not None:
            self._guard.terminate()
            ended = self._guard.wait(timeout=30)
            self._release()
            if self._classes is not None and ended == _ENDED_IN_ORDER:
                self._classes.keep(self._folder / _WRITTEN_CLASSES)

    def kill(self) -> None:
        """Kill the broker at once, like a power cut; its data stay."""
        if self._guard is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait(timeout=30)
            self._release()
            _wait_until_free(self._ports[0])

    def _release(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard = None

    def alive(self) -> bool:
        """Return whether the broker's process runs."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def java_pid(self) -> int | None:
        """Return the process id of the JVM; None if there is none, or without /proc (outside Linux)."""
        if self._guard is None:
            return None
        children = Path(f"/proc/{self._guard.pid}/task/{self._guard.pid}/children")
        found = children.read_text().split() if children.exists() else []
        return int(found[0]) if found else None

    def log_tail(self) -> str:
        """Return the last lines that the broker printed."""
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return "\n".join(text.splitlines()[-_LAST_LINES:])

    def _write_settings(self) -> None:
        broker, controller = self._ports
        settings = _SETTINGS | {
            "listeners": f"PLAINTEXT://{_HOST}:{broker},CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{broker}",
            "controller.quorum.voters": f"1@{_HOST}:{controller}",
            "log.dirs": str(self._folder / "log"),
        }
        # Java reads these files as Latin-1, with the escapes of JSON.
        lines = [f"{name}={json.dumps(value)[1:-1]}" for name, value in (settings | self._properties).items()]
        (self._folder / "server.properties").write_text("\n".join(lines) + "\n")
        (self._folder / "log4j2.properties").write_text(_LOG_CONFIG)

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        log_config = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        is_tool = main_class.endswith("StorageTool")
        options = [*_HEAP, "-XX:TieredStopAtLevel=1"] if is_tool else [*_HEAP]
        if self._classes is not None:
            options += self._classes.options(None if is_tool else self._folder / _WRITTEN_CLASSES)
        return [str(self._java), *options, log_config, "-cp", f"{self._jars}/*", main_class, *arguments]

    def _format(self) -> None:
        settings = str(self._folder / "server.properties")
        run = subprocess.run(
            self._command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", settings),
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise BrokerFailed(f"the data folder {self._folder} could not be formatted:\n{run.stdout}{run.stderr}")
        note_version(self._folder, self._version)

    def _launch(self) -> None:
        command = self._command("kafka.Kafka", str(self._folder / "server.properties"))
        with using_folder(), self.log_file.open("ab") as log:
            # A killed JVM may have left a part of an archive, which must not count as complete.
            (self._folder / _WRITTEN_CLASSES).unlink(missing_ok=True)
            self._log_start = log.tell()
            # A separate session, so that the terminal's Ctrl-C does not reach the JVM and we can stop it in order.
            self._guard = subprocess.Popen(
                [sys.executable, "-P", "-m", "reconsume.cli.broker.guard", *self._when_orphaned(), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _when_orphaned(self) -> list[str]:
        return [] if self._given_data_dir is not None else ["--remove", str(self._folder)]

    def _answers(self) -> bool:
        # A new client for each request: a client that has got a dead address keeps asking there.
        client = make_admin({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "reconnect.backoff.ms": 20})
        with suppress(ReconsumeError), translated("asking the broker"):
            return bool(client.list_topics(timeout=2).brokers)
        return False

    def _wait_until_it_answers(self, deadline_seconds: float) -> None:
        deadline = time.monotonic() + deadline_seconds
        while time.monotonic() < deadline and self.alive():
            if self._answers():
                return
        last = self.log_file.read_bytes()[self._log_start :].decode(errors="replace")
        if not self.alive() and (bind := _BIND_FAILED.search(last)):
            raise _PortTaken(int(bind[1]))
        what = f"did not answer within {deadline_seconds:.0f} s" if self.alive() else "ended while it started"
        raise BrokerFailed(f"Kafka {what}; its last lines:\n{self.log_tail()}")


def _wait_until_free(port: int) -> None:
    """Wait for the port: the guard ends before its JVM, and only the port shows that both are gone."""
    deadline = time.monotonic() + 30
    while _is_taken(port) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_taken(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((_HOST, port)) == 0
