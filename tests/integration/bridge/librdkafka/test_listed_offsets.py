"""First and end offset of a partition while a broker answers one of the two requests with an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.consumers.drop_in.retry_start import with_retry_starts
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.integration.installation import Installation, settings_for
from tests.support.brokers.failed_watermarks import FailedWatermarks
from tests.support.brokers.frame_proxy import proxied_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SECONDS = 15.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[ChaosCluster, FailedWatermarks]]:
    with proxied_cluster(FailedWatermarks) as both:
        yield both


@pytest.fixture
def topic(cluster: tuple[ChaosCluster, FailedWatermarks]) -> str:
    here = Installation(settings_for(cluster[0].direct))
    here.make_topics()
    topic = here.topic("flights")
    here.produce(topic, b"0", b"1", b"2")
    return topic


@pytest.fixture
def consumer(cluster: tuple[ChaosCluster, FailedWatermarks]) -> Iterator[Consumer]:
    conf = {"bootstrap.servers": cluster[0].proxied, "group.id": "watermarks", "log_level": 0}
    one = Consumer(conf)
    yield one
    one.close()


@pytest.mark.parametrize("failing", [EARLIEST, LATEST])
def test_an_error_for_one_of_them_is_an_error(
    failing: int, cluster: tuple[ChaosCluster, FailedWatermarks], topic: str, consumer: Consumer
) -> None:
    watermarks = cluster[1]
    asking = GroupConsumer({}, lambda _settings: consumer)
    watermarks.fail(None)
    assert asking.first_and_end((topic, 0), SECONDS) == (0, 3)
    watermarks.fail(failing)
    before = watermarks.failed
    with pytest.raises(KafkaNotReachable, match="Disk error"):
        asking.first_and_end((topic, 0), SECONDS)
    assert watermarks.failed > before


def test_a_retry_topic_does_not_start_at_its_end_then(
    cluster: tuple[ChaosCluster, FailedWatermarks], topic: str, consumer: Consumer
) -> None:
    watermarks = cluster[1]
    watermarks.fail(EARLIEST)
    errors = []

    def committed(partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        if watermarks.failed > before:
            watermarks.fail(None)
        return [TopicPartition(one.topic, one.partition, OFFSET_INVALID) for one in partitions]

    def offsets_for_times(partitions: list[TopicPartition], seconds: float) -> list[TopicPartition]:
        try:
            return consumer.offsets_for_times(partitions, seconds)
        except KafkaException as error:
            errors.append(error.args[0].code())
            raise

    before = watermarks.failed
    [found] = with_retry_starts([TopicPartition(topic, 0)], topic, committed, offsets_for_times, threading.Event())
    assert found.offset == 0
    assert errors == [KafkaError.KAFKA_STORAGE_ERROR]
