"""Requests of a transaction that come after it has ended must not count for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, TransactionalWriter, WriterBroken
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed, OutcomeUnknown
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import LEVELS, Installation, settings_for
from tests.support.batches import batch_of
from tests.support.brokers.frame_proxy import proxied_cluster
from tests.support.brokers.late_requests import END_TXN, TXN_OFFSET_COMMIT, LateRequests
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[ChaosCluster, LateRequests]]:
    # No broker is killed here. That of 3.9 forgets the offsets of a transaction when it refuses late ones.
    with proxied_cluster(LateRequests) as both:
        yield both


@pytest.fixture
def here(cluster: tuple[ChaosCluster, LateRequests]) -> Installation:
    one = Installation(settings_for(cluster[0].direct))
    one.make_topics()
    return one


Write = Callable[[Position, Consumer], None]
"""Write a copy of the record there, whose value is its offset, and commit the offset after it: once."""


def consumers_way(here: Installation, conf: Mapping[str, Any], group: str) -> tuple[Write, str]:
    """As consumers do: what has no answer is looked up, what was undone is written again."""
    groups = Groups(SystemConfig(message_delay_level=LEVELS))
    writer = ExactlyOnceWriter(conf, here.settings.names, lambda: groups, group, f"{group}-writer")

    def write(failed: Position, consumer: Consumer) -> None:
        request = SendBackRequest(group, [], Stored.first_copy(failed, 0))
        offsets = {(failed.topic, failed.partition): Commit(failed.offset + 1, "")}
        metadata = consumer.consumer_group_metadata()
        while True:
            try:
                writer.send_back([Failed(request, None, b"%d" % failed.offset)], offsets, metadata)
            except OutcomeUnknown:
                if writer.was_committed(offsets):
                    return
            except KafkaNotReachable:
                continue
            else:
                return

    return write, here.settings.names.delay(1_000)


def schedulers_way(here: Installation, conf: Mapping[str, Any], group: str) -> tuple[Write, str]:
    """As workers do: a batch that was aborted is written again, after worse a new one starts at what is committed."""
    target, writers = here.topic(f"target-{group}"), [TransactionalWriter(conf, group, 10_000)]
    writers[0].start()

    def write(due: Position, consumer: Consumer) -> None:
        delivery = Delivery(target, -1, None, b"%d" % due.offset, [], "delivered", group)
        member = GroupConsumer({}, lambda _settings: consumer)
        offsets = {(due.topic, due.partition): Commit(due.offset + 1, "")}
        while here.committed(group, due.topic) != due.offset + 1:
            try:
                writers[-1].write(batch_of([delivery], offsets), member)
            except BatchAborted:
                continue
            except WriterBroken:
                writers.append(TransactionalWriter(conf, group, 10_000))
                writers[-1].start()
            else:
                return

    return write, target


@pytest.mark.parametrize("way", [consumers_way, schedulers_way])
@pytest.mark.parametrize(
    ("kept", "before"),
    [
        pytest.param(END_TXN, TXN_OFFSET_COMMIT, id="the end"),
        pytest.param(TXN_OFFSET_COMMIT, END_TXN, id="the offsets"),
    ],
)
def test_what_comes_late_of_one_transaction_changes_nothing_of_the_next(
    kept: int,
    before: int,
    way: Callable[[Installation, Mapping[str, Any], str], tuple[Write, str]],
    here: Installation,
    cluster: tuple[ChaosCluster, LateRequests],
) -> None:
    kafka, late = cluster
    group, topic = here.name("late"), here.topic("late")
    here.produce(topic, b"0", b"1", b"2")
    write, target = way(here, settings_for(kafka.proxied).client_settings(), group)
    with drop_in(here, group, conf={"enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        Reading(consumer).until(3)  # the first one on a new broker, which makes the topic of the offsets
        late.was_late = False
        for offset in range(3):
            if offset == 1:
                late.keep_next(kept, before)
            write(Position(topic, 0, offset), consumer)
        assert late.was_late, "or nothing is shown"
        wait_until(lambda: here.committed(group, topic) == 3, "the last offset is committed")
    here.wait_for_marks(target)
    assert sorted(record.value or b"" for record in here.read(target)) == [b"0", b"1", b"2"]
