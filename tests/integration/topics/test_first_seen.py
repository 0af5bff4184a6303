"""Topics and partitions that a group sees for the first time after its subscription began, on a real Kafka.

All consumers have the default start, the last offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from reconsume.consumers.subscriptions import repeated_look
from tests.integration.installation import SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(1)]

each_protocol = pytest.mark.parametrize(
    "protocol", [{}, {"group.protocol": "consumer"}], ids=["classic", "group-protocol-consumer"]
)


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(autouse=True)
def _looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """New topics are found within a second."""
    monkeypatch.setattr(repeated_look, "EVERY_SECONDS", 1.0)


def succeeds(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return SUCCESS


def consumer_of(here: Installation, group: str, topic: str, listener: Any, **more: Any) -> PushConsumer:
    consumer = PushConsumer(
        group,
        bootstrap_servers=here.settings.bootstrap_servers,
        topic_prefix=here.settings.topic_prefix,
        **more,
    )
    return consumer.subscribe(topic).register_message_listener(listener)


def add_partition(here: Installation, topic: str, total: int) -> None:
    admin = AdminClient(here.settings.client_settings())  # its answers never come once it is forgotten
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE)
    wait_until(lambda: here.admin.partitions([topic]).get(topic) == total, "the partition is there")


@pytest.mark.parametrize(
    ("protocol", "pattern"),
    [({}, False), ({"group.protocol": "consumer"}, True)],
    ids=["name-classic", "pattern-group-protocol-consumer"],
)
def test_a_topic_that_is_made_after_the_start_is_read_from_its_beginning(
    here: Installation, protocol: dict[str, Any], *, pattern: bool
) -> None:
    name = here.name(f"later{len(protocol)}{pattern}")
    listener = Deliveries(succeeds)
    with consumer_of(here, name, f"^{name}.*" if pattern else name, listener, conf=protocol):
        here.admin.create(name, 2, -1, {})
        here.produce(name, b"0", partition=0)
        here.produce(name, b"1", partition=1)
        wait_until(lambda: len(listener.seen) == 2, "both records")
    assert sorted(listener.seen) == [(b"0", 0), (b"1", 0)]


def test_what_comes_to_a_new_topic_while_no_member_runs_is_not_skipped(here: Installation) -> None:
    """For the next member the topic is an old one, and the last offset would be behind what came."""
    topic = here.name("between")
    listener = Deliveries(succeeds)
    with consumer_of(here, topic, topic, listener):
        here.admin.create(topic, 1, -1, {})
        wait_until(lambda: here.committed(topic, topic) == 0, "its start is committed")
    here.produce(topic, b"between")
    with consumer_of(here, topic, topic, listener):
        wait_until(lambda: listener.seen, "what came between the two")
    assert listener.seen == [(b"between", 0)]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_partition_that_is_added_is_read_from_its_beginning_and_the_others_from_their_end(
    here: Installation, *, exactly_once: bool
) -> None:
    topic = here.topic(f"grows{exactly_once}")
    here.produce(topic, b"old")
    listener = Deliveries(succeeds)
    with consumer_of(here, topic, topic, listener, exactly_once=exactly_once):

        def has_begun() -> bool:
            here.produce(topic, b"now", partition=0)
            return bool(listener.seen)

        wait_until(has_begun, "the consumer has begun")
        add_partition(here, topic, 2)
        here.produce(topic, b"new", partition=1)
        wait_until(lambda: (b"new", 0) in listener.seen, "the record of the new partition")
    assert (b"old", 0) not in listener.seen


@each_protocol
def test_a_topic_that_is_made_again_while_the_consumer_runs_is_read_from_its_beginning(
    here: Installation, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The brokers delete the group's offset with the topic, and records come before the consumer finds the new one."""
    caplog.set_level("INFO")
    topic = here.topic(f"again{len(protocol)}")
    listener = Deliveries(succeeds)
    with consumer_of(here, topic, topic, listener, conf=protocol):

        def has_begun() -> bool:
            here.produce(topic, b"old")
            return bool(listener.seen)

        wait_until(has_begun, "the consumer has begun")
        wait_until(lambda: here.committed(topic, topic), "it has committed")
        here.delete(topic)

        def is_given_up() -> bool:
            """The next assignment follows the last commit. One that came later could hide records of the new topic."""
            told = [one for one in caplog.messages if one.startswith(("revoked: ", "lost: ", "assigned: "))]
            return any(topic in one for one in told if one[0] != "a") and told[-1].startswith("assigned: ")

        wait_until(is_given_up, "it is revoked, and the next assignment is there")
        here.admin.create(topic, 1, -1, {})
        here.produce(topic, b"0", b"1", b"2")
        wait_until(lambda: (b"2", 0) in listener.seen, "the last record of the new topic")
    assert [body for body, _ in listener.seen if body != b"old"] == [b"0", b"1", b"2"]
