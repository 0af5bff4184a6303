"""Checks of the connection: all brokers, and the versions of both sides."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from typing import Final

import reconsume
from reconsume.bridge.kafka.clients import client_versions
from reconsume.bridge.kafka.connection_errors import Trouble, nobody_at
from reconsume.delay_levels.human_text import counted
from reconsume.operations.doctor.inspection import InspectedCluster, TopicState
from reconsume.operations.doctor.report import Report

_SOCKET_SECONDS: Final = 3.0
_OLDEST: Final = (2, 5)
"""KIP-447: offsets in a transaction are fenced by the group's generation."""
_NEWER: Final = "4.0 or newer"
_REPLICAS: Final = 3
"""Kafka's own `offsets.topic.replication.factor`."""


def check_connection(cluster: InspectedCluster, report: Report) -> bool:
    """Connect, then try each broker at its advertised address; return False to end the examination."""
    servers, brokers = cluster.settings.bootstrap_servers, cluster.admin.connect()
    if brokers is None or isinstance(brokers, Trouble):
        trouble = brokers or _look(servers)
        report.problem("connection", f"no connection to {servers}: {trouble.what}", trouble.mend)
        return False
    unreachable = [f"{host}:{port}" for host, port in brokers if not _answers(host, port)]
    for address in unreachable:
        report.problem("connection", *nobody_at(address)[:2])
    if not unreachable:
        report.passed.append(f"connection: {counted(len(brokers), 'broker answers', 'brokers answer')}")
    return not unreachable


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), _SOCKET_SECONDS):
            return True
    except OSError:
        return False


def _look(servers: str) -> Trouble:
    """Probe the first address, about which librdkafka reports nothing."""
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    if port.isdecimal() and _answers(host, int(port)):
        return Trouble(
            f"a program listens at {host}:{port}, and does not answer as Kafka does",
            "check the port, and security.protocol: -X security.protocol=SASL_SSL, SASL_PLAINTEXT, SSL or PLAINTEXT",
        )
    return Trouble(
        f"{host}:{port} does not answer at all", f"check the network and firewalls between; try: nc -vz {host} {port}"
    )


def versions_of(broker: Mapping[str, str] | None) -> dict[str, str]:
    """Return the versions of client and broker.

    Args:
        broker: the settings of a broker; None without the right to read them. Only before 4.0 they include Kafka's
            version.
    """
    kafka = "unknown" if broker is None else broker.get("inter.broker.protocol.version", _NEWER)
    return {
        "reconsume": reconsume.__version__,
        "python": platform.python_version(),
        **client_versions(),
        "kafka": kafka,
    }


def check_versions(versions: Mapping[str, str], report: Report) -> None:
    """Report versions that are too old."""
    kafka = versions["kafka"]
    number = tuple(int(part) for part in kafka.partition("-")[0].split(".")[:2] if part.isdigit())
    if len(number) == len(_OLDEST) and number < _OLDEST:
        report.problem(
            "versions",
            f"Kafka {kafka} cannot fence a worker that lost its partitions (KIP-447), so records could be delivered "
            "twice",
            "upgrade the brokers to 2.5 or newer, or set scheduler.delivery=at_least_once",
        )
    else:
        report.passed.append("versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()))


def check_coordinators(broker: Mapping[str, str], offsets: TopicState | None, report: Report) -> None:
    """Report brokers whose start may reset a group's offsets.

    The leader of a partition without other replicas is elected twice at each of its starts. A group coordinator of
    Kafka 4 then may serve the first part of its log only: `CompleteLoad` of `CoordinatorRuntime` does not look at the
    epoch.

    Args:
        broker: the settings of a broker.
        offsets: the topic with the groups' offsets; None if it is not visible, and then the brokers' setting counts.
        report: gets the findings.
    """
    replicas = offsets.replicas if offsets else int(broker.get("offsets.topic.replication.factor", _REPLICAS))
    if versions_of(broker)["kafka"] == _NEWER and replicas == 1:
        report.warning(
            "coordinators",
            "__consumer_offsets has one replica, so a broker of Kafka 4 may serve old offsets of a group for minutes "
            "after its start: running workers restore them, workers that start then deliver records again",
            "give it three (offsets.topic.replication.factor=3 before the first group is created, "
            "kafka-reassign-partitions.sh after), or do not start workers in the minutes after a broker",
        )
