"""Assigned partitions that librdkafka never starts, because the coordinator refused to say where (its issue 5586)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from tests.integration.installation import SUCCESS, Deliveries, Installation, scheduler, settings_for
from tests.support.brokers.frame_proxy import proxied_cluster
from tests.support.brokers.refused_offsets import RefusedOffsets
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

REFUSED = "Failed to fetch committed offset"


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[ChaosCluster, RefusedOffsets]]:
    with proxied_cluster(RefusedOffsets) as both:
        yield both


@pytest.fixture
def here(cluster: tuple[ChaosCluster, RefusedOffsets]) -> Installation:
    one = Installation(settings_for(cluster[0].proxied))
    one.make_topics()
    one.write_groups()
    return one


@pytest.fixture
def coordinator(cluster: tuple[ChaosCluster, RefusedOffsets]) -> Iterator[RefusedOffsets]:
    yield cluster[1]
    cluster[1].refuses = False


def test_a_push_consumer_reads_them_with_a_new_client(
    here: Installation, coordinator: RefusedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    topic = here.topic("flights")
    here.produce(topic, b"one", b"two")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    coordinator.refuses = True
    with here.consumer(here.name("g"), topic, listener):
        wait_until(lambda: REFUSED in caplog.text, "the refused look-up")
        coordinator.refuses = False
        wait_until(lambda: {body for body, _ in listener.seen} == {b"one", b"two"}, "all messages")


def test_a_scheduler_reads_them_with_a_new_client(
    here: Installation, coordinator: RefusedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    group = here.name("g")
    here.produce(here.settings.names.delay(1_000), b"due", headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
    coordinator.refuses = True
    with scheduler(here.settings):
        wait_until(lambda: REFUSED in caplog.text, "the refused look-up")
        coordinator.refuses = False
        wait_until(lambda: here.retries(group), "the retry")
