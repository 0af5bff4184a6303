"""A consumer that finds its group no more begins afresh by itself, and librdkafka tells what that goes by."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from reconsume.bridge.librdkafka.membership import Membership, MembershipLost
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from reconsume.consumers.consume_loop import ConsumeLoop
from tests.integration.installation import Installation, installation
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]

SAID = "reading stopped, restarting the consumer: as if the coordinator were never found"


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.mark.parametrize("keeps", [False, True], ids=["its partitions were taken away", "it has its partitions"])
@pytest.mark.parametrize("more", [{}, {"exactly_once": True}], ids=["plain", "exactly once"])
def test_a_push_consumer_goes_on_with_a_new_one(
    here: Installation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    more: dict[str, Any],
    *,
    keeps: bool,
) -> None:
    """That librdkafka has left it alone is known while the group still takes its partitions for this member's."""
    name, seen, lost = f"lost-{len(more)}-{keeps}", Counter[tuple[bytes | None, int]](), threading.Event()
    group, topic = here.name(name), here.topic(name)

    def check(membership: Membership, *, has_partitions: bool) -> None:
        # Schedulers ask theirs too.
        if membership.settings["group.id"] == group and lost.is_set() and SAID not in caplog.text:
            assert has_partitions == keeps
            raise MembershipLost("as if the coordinator were never found")

    def loses_all(loop: ConsumeLoop) -> None:
        """As librdkafka has it when a session is over."""
        if not keeps and lost.is_set() and SAID not in caplog.text:
            loop.partitions.lost(list(loop.partitions.queues))
        run_once(loop)

    run_once = ConsumeLoop.run_once
    monkeypatch.setattr(Membership, "check", check)
    monkeypatch.setattr(ConsumeLoop, "run_once", loses_all)

    def listen(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        for message in messages:
            seen[message.body, message.reconsume_times] += 1
            if message.body == b"fails" and message.reconsume_times == 0:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        group,
        bootstrap_servers=here.settings.bootstrap_servers,
        topic_prefix=here.settings.topic_prefix,
        conf={"auto.offset.reset": "earliest"},
        **more,
    ).subscribe(topic)
    with consumer.register_message_listener(listen):
        here.produce(topic, b"before")
        wait_until(lambda: seen[b"before", 0], "the first one")
        wait_until(lambda: here.committed(group, topic) == 1, "it is committed")
        lost.set()
        wait_until(lambda: SAID in caplog.text, "it begins afresh")
        here.produce(topic, b"after", b"fails")
        wait_until(lambda: seen[b"fails", 1], "what failed has come again")
        assert consumer.running
    assert dict(seen) == {(b"before", 0): 1, (b"after", 0): 1, (b"fails", 0): 1, (b"fails", 1): 1}


def test_librdkafka_tells_whether_it_is_a_member(here: Installation) -> None:
    group, topic, told = here.name("told"), here.topic("told"), list[str]()
    consumer = PushConsumer(
        group,
        bootstrap_servers=here.settings.bootstrap_servers,
        topic_prefix=here.settings.topic_prefix,
        conf={"statistics.interval.ms": 100, "stats_cb": told.append},
    ).subscribe(topic)
    with consumer.register_message_listener(lambda _messages, _context: ConsumeConcurrentlyStatus.CONSUME_SUCCESS):
        wait_until(lambda: any('"join_state":"steady"' in one.replace(" ", "") for one in told), "it is settled")
    assert any('"state":"up"' in one.replace(" ", "") for one in told)
