"""A group that has as many waiting as it may: new failures are refused and kept, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from reconsume.bridge.groups.groups import parse_group_config
from reconsume.bridge.groups.groups_store import write_group
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from reconsume.consumers.observing.hooks import ConsumeMessageHook, SendMessageBackContext
from reconsume.delay_levels.errors import GroupIsFull
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]


class Refusals(ConsumeMessageHook):
    """Notes send-backs that the limit has refused, and the largest share of it."""

    def __init__(self) -> None:
        self.count = 0
        self.share = 0.0

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        self.count += isinstance(context.error, GroupIsFull)
        self.share = max(self.share, context.waiting_share())


def set_limit(one: Installation, group: str, most: int) -> None:
    write_group(one.cluster, parse_group_config(group, {"maxWaiting": most}))


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_is_refused_is_kept_until_it_succeeds(bootstrap_servers: str, exactly_once: bool) -> None:
    with installation(bootstrap_servers) as one:
        group, topic, is_mended, hook = one.name("full"), one.topic("full"), threading.Event(), Refusals()
        set_limit(one, group, 3)
        one.produce(topic, *(b"%d" % number for number in range(20)))

        def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            return SUCCESS if is_mended.is_set() else LATER

        seen = Deliveries(listener)
        consumer = one.consumer(group, topic, seen, exactly_once=exactly_once, consume_thread_nums=1)
        with consumer.register_consume_message_hook(hook):
            wait_until(lambda: hook.count > 0, "a refusal")
            is_mended.set()
            wait_until(lambda: one.committed(group, topic) == 20, "all are committed")
            sent_back = len({record["ORIGIN_MESSAGE_ID"] for record in one.retries(group)})
            wait_until(lambda: (one.committed(group, one.settings.names.retry(group)) or 0) >= sent_back, "the retries")
        assert hook.share >= 1
        assert {message.body for message in seen.messages} == {b"%d" % number for number in range(20)}
        assert one.dead_letters(group) == []


def test_the_drop_in_tells_who_sends_back(bootstrap_servers: str) -> None:
    with installation(bootstrap_servers) as one:
        group, topic = one.name("full"), one.topic("full")
        retry = one.settings.names.retry(group)
        set_limit(one, group, 5)
        one.admin.create(retry, 1, -1, {})
        one.produce(retry, *[b"unread"] * 5, headers=[("RECONSUME_TIME", b"1"), ("RETRY_TOPIC", topic.encode())])
        one.produce(topic, b"first")
        consumer = drop_in(one, group, conf={"enable.auto.commit": False})
        consumer.subscribe([topic])
        messages = {message.value(): message for message in Reading(consumer).until(6)}

        def is_refused() -> bool:
            try:
                consumer.send_message_back(messages[b"first"])
            except GroupIsFull as error:
                return "reconsume groups set" in str(error)
            return False

        wait_until(is_refused, "the figure to be known")
        consumer.send_message_back(messages[b"unread"])
        set_limit(one, group, 0)
        wait_until(lambda: not is_refused(), "the limit to be lifted")
        consumer.close()
