"""The Kafka that tests run on: a given one, else one in Docker, else one on this machine. Never a mock."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from reconsume.cli.broker.jars import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

__all__ = ["KafkaForTests", "PatientKafka", "kafka_bootstrap", "kafka_to_kill", "local_kafka"]

_IMAGE: Final = f"apache/kafka:{NEWEST_KAFKA_VERSION}"
_CONTROLLER_PORT: Final = 29093
_PATIENT: Final = {"broker.session.timeout.ms": "3600000"}
"""A broker whose session ends has no partitions for a moment, although it lives: 4.3 then leaves transactions open for
good (KAFKA-20734), and a client of librdkafka may lose it for good (issue 5301)."""
_PROMPT: Final = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""With KIP-848 a member hears of a rebalance with its next heartbeat, and the broker says how often: 5 s by default."""
_MORTAL: Final = {"broker.session.timeout.ms": "6000"}
"""A broker that was killed may come back when its last session is over; a busy machine may stand still for seconds."""
_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 6 << 30
"""Bytes that are free there, or a broker takes the usual folder."""


class PatientKafka(LocalKafka):
    """A broker that may have to wait for its turn on a busy machine, also when it starts again.

    It keeps its session all the same, unless its properties say otherwise. Where memory has room, its data lie there:
    a broker flushes each change of a topic, and would wait for all others that use the disk.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        data_dir: Path | None = None,
        properties: Mapping[str, str] | None = None,
        version: str = NEWEST_KAFKA_VERSION,
    ) -> None:
        super().__init__(port, data_dir=data_dir, properties={**_PATIENT, **(properties or {})}, version=version)

    def start(self, deadline_seconds: float = 240) -> None:
        super().start(deadline_seconds)

    def _make_folder(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
                patch.setattr(tempfile, "tempdir", str(_MEMORY))
            super()._make_folder()


class KafkaForTests(NamedTuple):
    """Where Kafka is, and why it is that one."""

    bootstrap_servers: str
    note: str


@contextmanager
def kafka_bootstrap() -> Iterator[KafkaForTests]:
    """`RECONSUME_TEST_BOOTSTRAP`, else a container where a Docker engine has the image, else a local broker.

    Raises:
        ReconsumeError: the local broker was needed and did not start.
    """
    if given := os.environ.get("RECONSUME_TEST_BOOTSTRAP"):
        yield KafkaForTests(given, "given by RECONSUME_TEST_BOOTSTRAP")
        return
    with ExitStack() as stack:
        container, address_or_reason = _container()
        if container is not None:
            stack.callback(container.stop)
            wait_until(lambda: _answers(address_or_reason), f"Kafka in {_IMAGE} at {address_or_reason}")
            yield KafkaForTests(address_or_reason, f"{_IMAGE} in Docker")
        else:
            local = stack.enter_context(local_kafka(properties=_PROMPT))
            yield KafkaForTests(local.bootstrap_servers, f"local broker {NEWEST_KAFKA_VERSION}; {address_or_reason}")


@contextmanager
def local_kafka(
    port: int = 0,
    *,
    data_dir: Path | None = None,
    properties: Mapping[str, str] | None = None,
    version: str = NEWEST_KAFKA_VERSION,
) -> Iterator[LocalKafka]:
    """A local broker that is stopped, and its temporary folder removed, even if it never started."""
    kafka = PatientKafka(port, data_dir=data_dir, properties=properties, version=version)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


def kafka_to_kill() -> AbstractContextManager[LocalKafka]:
    """The same for tests that kill it: it may come back soon, and is of a version that ends transactions then."""
    return local_kafka(properties=_MORTAL, version=KAFKA_VERSION)


def _container() -> tuple[DockerContainer | None, str]:
    """A started container and its address, or None and the reason: no engine, or one that cannot provide the image."""
    from docker.errors import DockerException  # type: ignore[import-untyped]  # noqa: PLC0415 - only where needed
    from requests.exceptions import RequestException  # noqa: PLC0415
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415

    # docker-py leaves its socket open when there is no engine, and warnings are errors in the tests.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            DockerClient().client.ping()
            answers = True
        except (DockerException, RequestException, OSError):
            answers = False
        gc.collect()
    if not answers:
        return None, "no Docker engine answers"
    port = free_port()
    try:
        container = DockerContainer(_IMAGE).with_bind_ports(port, port)
        # Where the engine publishes ports: not this machine if DOCKER_HOST names another, or if this is a container.
        host = container.get_docker_client().host()
        address = f"{'127.0.0.1' if host == 'localhost' else host}:{port}"
        for name, value in _container_environment(port, address).items():
            container = container.with_env(name, value)
        return container.start(), address
    except (DockerException, RequestException, OSError) as error:
        return None, f"a Docker engine answers but cannot provide {_IMAGE}: {error}"


def _container_environment(port: int, address: str) -> dict[str, str]:
    """The image maps KAFKA_A_B to a.b; the port outside and inside is one, so the advertised address holds."""
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@localhost:{_CONTROLLER_PORT}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:{_CONTROLLER_PORT}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{address}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        **{f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in (_PATIENT | _PROMPT).items()},
    }


def _answers(address: str) -> bool:
    try:
        return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
