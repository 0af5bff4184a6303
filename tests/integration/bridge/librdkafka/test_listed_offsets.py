"""First and end offset of a partition while a broker answers one of the two requests with an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, LATEST
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.consumers.drop_in import retry_start
from reconsume.consumers.drop_in.retry_start import RetryStarts
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import Installation, settings_for
from tests.support.brokers.failed_watermarks import FailedWatermarks
from tests.support.brokers.frame_proxy import proxied_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

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
    watermarks.fail(None)
    assert GroupConsumer({}, lambda _settings: consumer).first_and_end((topic, 0), SECONDS) == (0, 3), "it is connected"
    watermarks.fail(EARLIEST)
    errors = []

    def committed(partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, OFFSET_INVALID) for one in partitions]

    def offsets_for_times(partitions: list[TopicPartition], seconds: float) -> list[TopicPartition]:
        try:
            return consumer.offsets_for_times(partitions, seconds)
        except KafkaException as error:
            errors.append(error.args[0].code())
            watermarks.fail(None)
            raise

    starts = RetryStarts(topic, committed, offsets_for_times, consumer.seek, threading.Event())
    [found] = starts.started([TopicPartition(topic, 0)])
    assert found.offset == 0
    assert errors == [KafkaError.KAFKA_STORAGE_ERROR]


@pytest.mark.rule("TN-06")
def test_a_retry_topic_whose_beginning_is_refused_for_long_does_not_start_at_its_end(
    cluster: tuple[ChaosCluster, FailedWatermarks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers return this error shortly after their start; librdkafka then falls back on `auto.offset.reset`."""
    monkeypatch.setattr(retry_start, "_FIRSTS_MS", 500.0)
    watermarks = cluster[1]
    here = Installation(settings_for(cluster[0].direct))
    group, topic = here.name("refused"), here.topic("refused")
    retry = here.settings.names.retry(group)
    here.admin.create(retry, 1, 1, {})
    here.produce(retry, b"retry")
    watermarks.fail(EARLIEST, KafkaError.UNKNOWN_TOPIC_OR_PART)
    conf = {"bootstrap.servers": cluster[0].proxied, "auto.offset.reset": "latest", "enable.auto.commit": False}
    with drop_in(here, group, conf=conf) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)

        def polled() -> int:
            reading.step()
            return len(consumer.assignment())

        wait_until(lambda: polled() == 2, "the assignment")
        before = watermarks.failed

        def failed_again() -> bool:
            reading.step()
            return watermarks.failed >= before + 3

        wait_until(failed_again, "three more errors")
        watermarks.fail(None)
        assert [one.value() for one in reading.until(1)] == [b"retry"]
        assert reading.errors == []
