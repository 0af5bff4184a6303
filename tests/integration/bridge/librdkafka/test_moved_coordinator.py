"""A group whose coordinator moves between the assignment of partitions and the look-up of their starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.consumers.assigned_partitions import AssignedPartitions
from tests.integration.installation import SUCCESS, Deliveries, Installation, settings_for
from tests.support.brokers.kafka_tools import run_kafka_tool
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.timeout(300)]

OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def two() -> Iterator[ChaosCluster]:
    cluster = ChaosCluster(2)
    for broker in cluster.brokers:
        for name in ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor"):
            broker.kafka._properties[name] = "1"
    with cluster:
        yield cluster


def partition_of(group: str, partitions: int) -> int:
    """The partition with the group's offsets: Java's hash of its name."""
    found = 0
    for character in group:
        found = (31 * found + ord(character)) & 0xFFFFFFFF
    return (found & 0x7FFFFFFF) % partitions


def move_coordinator(here: Installation, group: str, folder: Path) -> None:
    """Move it to the other broker, and return when the old one answers no more for the group."""
    number = partition_of(group, here.admin.partitions([OFFSETS])[OFFSETS])
    [old] = here.admin.replicas()[OFFSETS][number]
    plan = {"version": 1, "partitions": [{"topic": OFFSETS, "partition": number, "replicas": [3 - old]}]}
    (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
    client = Consumer(here.settings.client_settings() | {"group.id": group})

    def has_moved() -> bool:
        try:
            client.committed([TopicPartition("flights", 0)], 10)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.NOT_COORDINATOR)
        return False

    assert not has_moved(), "it knows the coordinator"
    servers = ("--bootstrap-server", here.settings.bootstrap_servers)
    options = ("--reassignment-json-file", str(folder / "plan.json"))
    run_kafka_tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *servers, *options, "--execute")
    wait_until(has_moved, 60, "the coordinator has moved")
    client.close()


def test_a_consumer_whose_partitions_would_never_start_restarts(
    two: ChaosCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Installation(settings_for(two.direct))
    here.make_topics()
    here.write_groups()
    topic, group, moved = here.topic("flights"), here.name("g"), list[Sequence[Partition]]()
    here.produce(topic, b"one", b"two")
    here.admin.commits(group, [(topic, 0)])  # makes the topic of the offsets
    assigned = AssignedPartitions.assigned

    def late(partitions: AssignedPartitions, given: Sequence[Partition]) -> None:
        if not moved and given:
            moved.append(given)
            move_coordinator(here, group, tmp_path)
        assigned(partitions, given)

    monkeypatch.setattr(AssignedPartitions, "assigned", late)
    deliveries = Deliveries(lambda _messages, _context: SUCCESS)
    # A heartbeat would tell librdkafka before that the coordinator has moved; the consumer's close waits for one.
    with here.consumer(group, topic, deliveries, conf={"heartbeat.interval.ms": 20_000}):
        wait_until(lambda: {body for body, _ in deliveries.seen} == {b"one", b"two"}, 180, "all messages")
    assert moved
