"""Requests of a transaction that come after it has ended must not count for the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from reconsume.bridge.exactly_once import ExactlyOnceWriter, Failed, OutcomeUnknown
from reconsume.bridge.groups import Groups, SystemConfig
from reconsume.cli.chaos.cluster import Cluster
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.send_back import Position, SendBackRequest, Stored
from tests.integration.drop_in import Reading, drop_in
from tests.integration.installation import LEVELS, Installation, settings_for
from tests.support.late_requests import END_TXN, TXN_OFFSET_COMMIT, LateRequests
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SILENT_SECONDS = 1.0
"""So long it takes a client to see that a connection is of no use; much less than any timeout of ours."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Cluster, LateRequests]]:
    one = Cluster(1)
    (broker,) = one.brokers
    late = LateRequests(broker.proxied, broker.proxy._target, SILENT_SECONDS)
    broker.proxy._loop.close()
    broker.proxy = late  # type: ignore[assignment]
    with one:
        yield one, late


@pytest.mark.parametrize(
    ("kept", "before"),
    [
        pytest.param(END_TXN, TXN_OFFSET_COMMIT, id="the end"),
        pytest.param(TXN_OFFSET_COMMIT, END_TXN, id="the offsets"),
    ],
)
def test_what_comes_late_of_one_transaction_changes_nothing_of_the_next(
    kept: int, before: int, cluster: tuple[Cluster, LateRequests]
) -> None:
    kafka, late = cluster
    here = Installation(settings_for(kafka.direct))
    here.make_topics()
    group, topic = here.name("late"), here.topic("late")
    here.produce(topic, b"0", b"1", b"2")
    settings = settings_for(kafka.proxied).client_settings()
    groups = Groups(SystemConfig(message_delay_level=LEVELS))
    writer = ExactlyOnceWriter(settings, here.settings.names, lambda: groups, group, f"{group}-writer")
    with drop_in(here, group, conf={"enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        Reading(consumer).until(3)
        late.was_late = False
        for offset in range(3):
            if offset == 1:
                late.keep_next(kept, before)
            send_back(writer, Position(topic, 0, offset), consumer.consumer_group_metadata())
        assert late.was_late, "or nothing is shown"
        wait_until(lambda: here.committed(group, topic) == 3, 30, "the last offset is committed")
    writer.close()
    assert sorted(str(record["ORIGIN_MESSAGE_ID"]) for record in here.waiting(1_000, group)) == [
        f"{topic}/0/{offset}" for offset in range(3)
    ]


def send_back(writer: ExactlyOnceWriter, failed: Position, metadata: object) -> None:
    """As the consumers do: what has no answer is looked up, what was undone is written again."""
    request = SendBackRequest(writer._group, [], Stored.first_copy(failed, 0))
    positions = [TopicPartition(failed.topic, failed.partition, failed.offset + 1)]
    while True:
        try:
            writer.send_back([Failed(request, None, b"%d" % failed.offset)], positions, metadata)
        except OutcomeUnknown:
            if writer.was_committed(positions):
                return
        except KafkaNotReachable:
            continue
        else:
            return
