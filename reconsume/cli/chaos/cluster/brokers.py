"""A temporary Kafka of one or three brokers, with a proxy before each."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from reconsume.cli.broker.jars import KAFKA_VERSION, Progress
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_ports
from reconsume.cli.chaos.cluster.proxy import Proxy

_HOST: Final = "127.0.0.1"
_CONTROLLER: Final = "controller"
_FULL_SECONDS: Final = 30.0
_START_SECONDS: Final = 180.0


class Broker:
    """A broker and its proxy.

    Args:
        node: the node id.
        ports: four free ports.
        voters: the controllers of the quorum.
        brokers: number of brokers.
        version: the version of Kafka.
        progress: called with the current download.
        data: a folder for its data and its log, which is kept.

    Attributes:
        direct: the port for clients that are not under test.
        proxied: the port of the proxy.
    """

    def __init__(
        self,
        node: int,
        ports: list[int],
        voters: str,
        brokers: int,
        version: str,
        progress: Progress,
        data: Path | None,
    ) -> None:
        self.direct, behind, controller, self.proxied = ports
        self.proxy = Proxy(self.proxied, behind)
        replicas = str(brokers)
        safe = str(2 if brokers > 1 else 1)
        properties = {
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{_HOST}:{self.direct},PROXIED://{_HOST}:{behind},"
            f"CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{self.direct},PROXIED://{_HOST}:{self.proxied}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "default.replication.factor": replicas,
            "min.insync.replicas": safe,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": safe,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": safe,
            # Rights can be revoked: without a rule everyone has all rights.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            # Controllers of a quorum ask each other for the rules before they have them, so they need names.
            "super.users": f"User:{_CONTROLLER}",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{_CONTROLLER}" password="{_CONTROLLER}" user_{_CONTROLLER}="{_CONTROLLER}";'
            ),
            # A broker that lags briefly on a busy machine is not dead.
            "replica.lag.time.max.ms": "5000",
            # But a killed broker may return only after the end of its last session.
            "broker.session.timeout.ms": "6000",
        }
        self.kafka = LocalKafka(self.direct, data_dir=data, properties=properties, version=version, progress=progress)

    def start(self) -> None:
        """Start the broker, or start it again with its data."""
        self.kafka.start(_START_SECONDS)

    def hang(self) -> None:
        """Freeze the broker; its connections stay (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue after `hang`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if (pid := self.kafka.java_pid) is not None:
            os.kill(pid, number)

    def fill_disk(self) -> None:
        """Make every write fail until the broker ends, as Kafka does when its only disk is full.

        The limit is on the size of files, which needs no file system of its own: Java's writes fail as they do on a
        full disk, with an IOException. A broker that hangs on its way out is killed after 30 s.
        """
        pid = self.kafka.java_pid
        if pid is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        deadline = time.monotonic() + _FULL_SECONDS
        while self.kafka.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.kafka.kill()


class ChaosCluster:
    """One or three brokers; a context manager.

    Args:
        brokers: number of brokers; with three, every topic has three replicas, of which two must be in sync.
        progress: called with the current download.
        folder: a folder for the brokers' data and logs, which stay there; None removes them.
        version: the version of Kafka.
    """

    def __init__(
        self,
        brokers: int,
        progress: Progress = lambda _line: None,
        folder: Path | None = None,
        version: str = KAFKA_VERSION,
    ) -> None:
        self.folders = [folder / f"broker-{node}" for node in range(1, brokers + 1)] if folder is not None else []
        self._stack = ExitStack()
        free = free_ports(4 * brokers)
        ports = {node: free[4 * node - 4 : 4 * node] for node in range(1, brokers + 1)}
        voters = ",".join(f"{node}@{_HOST}:{controller}" for node, (_, _, controller, _) in ports.items())
        self.brokers = [
            Broker(node, four, voters, brokers, version, progress, self.folders[node - 1] if self.folders else None)
            for node, four in ports.items()
        ]

    def __enter__(self) -> Self:
        try:
            for one in self.brokers:
                self._stack.callback(one.kafka.stop)
                self._stack.enter_context(one.proxy)
            # In parallel: none answers before most of them run.
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(Broker.start, self.brokers))
        except BaseException:
            self._stack.close()
            raise
        return self

    def remove_data(self) -> None:
        """Remove the data of ended brokers; their logs stay."""
        for one in self.folders:
            shutil.rmtree(one / "log")

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def direct(self) -> str:
        """The address for the workload and the judge."""
        return ",".join(f"{_HOST}:{one.direct}" for one in self.brokers)

    @property
    def proxied(self) -> str:
        """The address for processes under test, through the proxies."""
        return ",".join(f"{_HOST}:{one.proxied}" for one in self.brokers)
