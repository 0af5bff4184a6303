"""PushConsumer with `exactly_once=True` on a real Kafka: a failed message is sent back and done, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
)
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

PROTOCOLS: list[dict[str, Any]] = [{"session.timeout.ms": 6_000}, {"group.protocol": "consumer"}]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def fails_first(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return SUCCESS if messages[0].reconsume_times else LATER


def sent_back(here: Installation, group: str) -> Counter[tuple[bytes | None, str | None]]:
    here.wait_for_marks(here.settings.names.delay(1_000))
    return Counter((record.value, record["RECONSUME_TIME"]) for record in here.waiting(1_000, group))


@pytest.mark.parametrize("conf", PROTOCOLS, ids=["classic", "consumer"])
def test_failures_are_retried_and_successes_committed(here: Installation, conf: dict[str, Any]) -> None:
    name = f"loop-{len(conf.get('group.protocol', ''))}"
    group, topic = here.name(name), here.topic(name, 3)
    bodies = [b"%d" % number for number in range(60)]
    for number, body in enumerate(bodies):
        here.produce(topic, body, partition=number % 3)
    listener = Deliveries(
        lambda messages, _: LATER if int(messages[0].body or b"") % 2 and not messages[0].reconsume_times else SUCCESS
    )
    with here.consumer(group, topic, listener, conf=conf, exactly_once=True):
        wait_until(lambda: len(listener.seen) == 90, "all failed ones have come again")
        wait_until(lambda: [here.committed(group, topic, one) for one in range(3)] == [20] * 3, "committed")
        retry_topic = here.settings.names.retry(group)
        wait_until(lambda: here.finished(group, retry_topic) >= 30, "the retries are committed too")
    odd = [body for body in bodies if int(body) % 2]
    assert Counter(listener.seen) == Counter([(body, 0) for body in bodies] + [(body, 1) for body in odd])
    assert sent_back(here, group) == Counter((body, "1") for body in odd)


@pytest.mark.rule("OR-05")
def test_a_dead_letter_of_an_orderly_listener_and_its_offset_are_one(here: Installation) -> None:
    group, topic = here.name("orderly"), here.topic("orderly")
    here.produce(topic, b"poison", b"after")
    seen: list[tuple[bytes | None, int]] = []

    def listener(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        context.suspend_current_queue_time_millis = 10
        seen.extend((message.body, message.reconsume_times) for message in messages)
        return None if messages[0].body == b"poison" else ConsumeOrderlyStatus.SUCCESS

    consumer = here.consumer(group, topic, fails_first, max_reconsume_times=1, exactly_once=True)
    with consumer.register_message_listener(listener, orderly=True):
        wait_until(lambda: here.committed(group, topic) == 2, "both are done")
        wait_until(lambda: here.dead_letters(group), "the dead letter has been moved")
    assert seen == [(b"poison", 0), (b"poison", 1), (b"after", 0)]
    assert [letter.value for letter in here.dead_letters(group)] == [b"poison"]
