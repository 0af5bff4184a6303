"""A retry topic of which one partition has no leader: its only replica is on a broker that is away."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.consumers.drop_in import retry_start
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]


def two_brokers() -> ChaosCluster:
    """Two brokers, of which the first is the only controller: it goes on alone."""
    cluster = ChaosCluster(2)
    properties = [one.kafka._properties for one in cluster.brokers]
    for one in properties:
        one["controller.quorum.voters"] = one["controller.quorum.voters"].split(",")[0]
        one["min.insync.replicas"] = one["transaction.state.log.min.isr"] = "1"
    properties[1]["process.roles"] = "broker"
    properties[1]["listeners"] = properties[1]["listeners"].rpartition(",")[0]
    return cluster


def leaders(admin: AdminClient, topic: str) -> list[int]:
    """The leader of each partition, -1 without one."""
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return [one.leader for _, one in sorted(partitions.items())]


@pytest.mark.rule("TN-06", "T-34")
def test_it_holds_up_no_other_partition_and_its_retries_come_when_the_broker_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_start, "_FIRSTS_MS", 3_000.0)
    with two_brokers() as two:
        here = Installation(settings_for(two.direct))
        group, topic = here.name("leaderless"), here.topic("leaderless")
        retry = here.settings.names.retry(group)
        here.admin.create(retry, 2, 1, {})
        admin = AdminClient(here.settings.client_settings())
        producer = Producer(here.settings.client_settings())
        for partition in range(2):
            producer.produce(retry, f"retry-{partition}", partition=partition)
        assert producer.flush(PATIENCE) == 0
        producer.close()
        lost, away = leaders(admin, retry).index(2), two.brokers[1].kafka
        away.shut_down()
        wait_until(lambda: leaders(admin, retry)[lost] == -1, "the partition has no leader")
        conf = {"auto.offset.reset": "latest", "enable.auto.commit": False}
        with drop_in(here, group, conf=conf) as consumer, caplog.at_level(logging.WARNING):
            consumer.subscribe([topic])
            reading = Reading(consumer)
            assert [message.value() for message in reading.until(1)] == [f"retry-{1 - lost}".encode()]
            assert f"looking where {retry}-{lost} begins: no answer from Kafka" in caplog.text
            with pytest.raises(KafkaNotReachable, match="no leader, or no such topic"):
                GroupConsumer({}, lambda _settings: consumer).first_and_end((retry, lost), 5)
            away.start()
            assert [message.value() for message in reading.until(1)] == [f"retry-{lost}".encode()]
            assert reading.errors == []
