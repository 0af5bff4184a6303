"""What a rebalance must not leave behind in the member that a partition comes back to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from tests.integration.installation import SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

PROTOCOLS: list[dict[str, Any]] = [{"session.timeout.ms": 6_000}, {"group.protocol": "consumer"}]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.mark.parametrize("conf", PROTOCOLS, ids=["classic", "consumer"])
def test_a_partition_that_went_while_it_was_paused_is_read_when_it_comes_back(
    here: Installation, conf: dict[str, Any]
) -> None:
    name = f"paused-{len(conf.get('group.protocol', ''))}"
    group, topic = here.name(name), here.topic(name, 3)
    for number in range(9):
        here.produce(topic, b"%d" % number, partition=number % 3)
    go = threading.Event()

    def wait(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        assert go.wait(PATIENCE)
        return SUCCESS

    first, second = Deliveries(wait), Deliveries(wait)
    more: dict[str, Any] = {
        "conf": conf,
        "pull_threshold_for_queue": 1,
        "await_termination_when_shutdown": timedelta(0),
    }
    with here.consumer(group, topic, first, **more) as consumer:
        wait_until(lambda: {one.kafka.partition for one in first.messages} == {0, 1, 2}, "the first has all")
        with here.consumer(group, topic, second, **more):
            wait_until(lambda: second.messages, "the second has one of them, which is full here and there")
            # Before the second leaves: the first may read all of the partition as soon as it comes back.
            gone, begun = second.messages[0].kafka.partition, len(first.messages)
        go.set()
        wait_until(lambda: gone in {one.kafka.partition for one in first.messages[begun:]}, "the first reads it again")
        wait_until(lambda: all(here.committed(group, topic, one) == 3 for one in range(3)), "all is committed")
        assert consumer.running
