"""PushConsumer on a real Kafka: what the group's configuration decides, and send-backs that fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from reconsume.delay_levels.errors import KafkaRefused, SubscriptionGroupNotExist
from tests.integration.installation import (
    LATER,
    SUCCESS,
    Deliveries,
    Installation,
    Record,
    installation,
    scheduler,
    settings_for,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

CUSTOMIZED = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [60_000, 60_000, 300, 700]}}
EXPONENTIAL = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 200, "max": 500, "multiplier": 2}}
GROUPS = [
    *(SubscriptionGroupConfig(group_name=name, retry_max_times=2) for name in ("two", "two-less", "two-more")),
    SubscriptionGroupConfig(group_name="none", retry_queue_nums=0),
    SubscriptionGroupConfig(group_name="many", retry_queue_nums=3),
    SubscriptionGroupConfig(group_name="customized", retry_max_times=3, group_retry_policy=CUSTOMIZED),
    SubscriptionGroupConfig(group_name="exponential", retry_max_times=3, group_retry_policy=EXPONENTIAL),
    SubscriptionGroupConfig(group_name="disabled", consume_enable=False),
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    """Groups are made with the names above; Kafka's own groups are told apart by the prefix of each run."""
    one = Installation(settings_for(bootstrap_servers))
    groups = [group.model_copy(update={"group_name": one.name(group.group_name)}) for group in GROUPS]
    one.make_topics(groups)
    one.write_groups(groups, auto_create=False)
    with scheduler(one.settings):
        yield one


def always_fails() -> Deliveries:
    return Deliveries(lambda _messages, _context: LATER)


def fails_on_level_1(_messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    context.delay_level_when_next_consume = 1
    return LATER


def dead_letter(here: Installation, name: str) -> Record:
    return wait_until(lambda: here.dead_letters(here.name(name)), f"the dead letter of {name}")[0]


@pytest.mark.rule("BR-01")
def test_an_unknown_group_does_not_start_where_groups_must_be_registered(here: Installation) -> None:
    consumer = here.consumer(here.name("nobody"), here.topic("nobody"), always_fails())
    with pytest.raises(
        SubscriptionGroupNotExist, match=r"SUBSCRIPTION_GROUP_NOT_EXIST: .*nobody.*reconsume groups set"
    ):
        consumer.start()
    assert not consumer.running
    consumer.shutdown()


@pytest.mark.rule("GP-01")
def test_a_group_that_may_not_consume_does_not_start(here: Installation) -> None:
    consumer = here.consumer(here.name("disabled"), here.topic("disabled"), always_fails())
    with pytest.raises(KafkaRefused, match="its consumeEnable is false"):
        consumer.start()


@pytest.mark.rule("BR-04", "T-16")
def test_a_group_without_retry_queues_drops_what_fails_and_says_so_at_its_start(
    here: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    group, topic = here.name("none"), here.topic("none")
    here.produce(topic, b"1", b"2")
    listener = always_fails()
    with caplog.at_level(logging.WARNING), here.consumer(group, topic, listener, max_reconsume_times=0):
        wait_until(lambda: here.committed(group, topic) == 2, "what failed is committed")
    assert len(listener.batches) == 2
    assert f"group {group} has retryQueueNums 0: failed messages are dropped" in caplog.text
    assert here.waiting(0, group) == here.waiting(1_000, group) == here.dead_letters(group) == []


@pytest.mark.rule("BR-12", "GP-01", "T-01")
def test_the_groups_maximum_holds_unless_the_consumer_has_its_own(here: Installation) -> None:
    maximums = {"two": None, "two-less": 1, "two-more": 3}
    listeners = {name: Deliveries(fails_on_level_1) for name in maximums}
    with ExitStack() as stack:
        for name, maximum in maximums.items():
            here.produce(here.topic(name), b"flight")
            consumer = here.consumer(here.name(name), here.name(name), listeners[name], max_reconsume_times=maximum)
            stack.enter_context(consumer)
        letters = {name: dead_letter(here, name) for name in maximums}
    seen = {name: [times for _, times in listener.seen] for name, listener in listeners.items()}
    assert seen == {"two": [0, 1, 2], "two-less": [0, 1], "two-more": [0, 1, 2, 3]}
    own = {name: letter["MAX_RECONSUME_TIMES"] for name, letter in letters.items()}
    assert own == {"two": None, "two-less": "1", "two-more": "3"}


@pytest.mark.rule("GP-03", "GP-04", "GP-07")
def test_a_group_waits_as_its_own_policy_says(here: Installation) -> None:
    expected = {"customized": [300, 700, 700], "exponential": [200, 400, 500]}
    listeners = {name: always_fails() for name in expected}
    for name in expected:
        here.produce(here.topic(name), b"flight")
    customized, exponential = (here.consumer(here.name(name), here.name(name), listeners[name]) for name in expected)
    with customized, exponential:
        for name in expected:
            assert dead_letter(here, name)["RECONSUME_TIME"] == "4"
    for name, delays in expected.items():
        waits = sorted(
            (record["RECONSUME_TIME"], delay)
            for delay in set(delays)
            for record in here.waiting(delay, here.name(name))
        )
        assert waits == [(str(number), delay) for number, delay in enumerate(delays, start=1)]
        times = [message.kafka.timestamp for message in listeners[name].messages]
        assert all(after - before >= delay for before, after, delay in zip(times, times[1:], delays, strict=False))


@pytest.mark.rule("BR-05", "BR-06")
def test_the_retry_topic_has_the_groups_number_of_partitions_and_keys_keep_theirs(here: Installation) -> None:
    group, topic = here.name("many"), here.topic("many")
    for key in (b"a", b"b", b"c", b"d"):
        here.produce(topic, b"1", b"2", key=key)
    listener = Deliveries(lambda messages, _context: SUCCESS if messages[0].is_retry else LATER)
    with here.consumer(group, topic, listener):
        wait_until(lambda: len(listener.batches) == 16, "all came again")
    assert here.admin.partitions([here.settings.names.retry(group)]) == {here.settings.names.retry(group): 3}
    places: dict[bytes | None, set[int]] = {}
    for message in listener.messages:
        if message.is_retry:
            places.setdefault(message.key, set()).add(message.kafka.partition)
    assert all(len(partitions) == 1 for partitions in places.values())


@pytest.mark.rule("SB-04", "SB-05", "SB-06", "SB-08", "T-07", "HR-05")
def test_a_send_back_that_fails_goes_through_the_inbox_and_keeps_its_wish(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with installation(bootstrap_servers) as here, caplog.at_level(logging.WARNING):
        group, topic = here.name("inbox"), here.topic("inbox")
        wishes = {b"no wish": 0, b"wish": 4, b"never": -1}

        def wishing(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            if messages[0].is_retry:
                return SUCCESS
            context.delay_level_when_next_consume = wishes[messages[0].body or b""]
            return LATER

        listener = Deliveries(wishing)
        # A table of its own whose delay topic somebody deletes.
        with here.consumer(group, topic, listener, delay_levels="7s", max_reconsume_times=5):
            here.delete(here.settings.names.delay(7_000))
            here.produce(topic, b"no wish", b"wish", b"never", key=b"k", headers=[("user", None)])
            wait_until(lambda: len(listener.batches) == 5, "two retries")
            wait_until(lambda: here.committed(group, topic) == 3, "all are committed")
            wait_until(lambda: here.dead_letters(group), "the dead letter")
        retries = {message.body: message for message in listener.messages if message.is_retry}
        assert {body: message.delay_time_level for body, message in retries.items()} == {b"no wish": 3, b"wish": 4}
        for body, message in retries.items():
            assert (message.topic, message.origin.topic, message.origin.partition) == (topic, topic, 0)
            assert (message.key, message.headers, message.reconsume_times) == (b"k", [("user", None)], 1)
            assert message.properties["MAX_RECONSUME_TIMES"] == "5", body
        assert [record.value for record in here.dead_letters(group)] == [b"never"]
    assert "DELAY.7s does not exist; create it: reconsume topics apply; sent through" in caplog.text


@pytest.mark.rule("CC-11", "CC-12", "CC-13", "SB-11", "T-12", "T-15")
def test_when_the_inbox_is_missing_too_the_listener_is_called_again_after_5_s(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    here = Installation(settings_for(bootstrap_servers))
    group, topic = here.name("local"), here.topic("local")
    times: list[float] = []

    def one_fails(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if messages[0].body != b"fails":
            return SUCCESS
        times.append(time.monotonic())
        return LATER

    listener = Deliveries(one_fails)
    with caplog.at_level(logging.WARNING), here.consumer(group, topic, listener, delay_levels="1s 1s 1s 2s"):
        here.delete(here.settings.names.delay(1_000))
        here.produce(topic, b"first", b"fails", b"last")
        wait_until(lambda: "its listener is called again in 5 s" in caplog.text, "the send-back failed both ways")
        wait_until(lambda: here.committed(group, topic) == 1, "the failed one holds the offset")
        # Somebody makes the delay topic, and not the inbox, so a later send-back is acknowledged there.
        here.admin.create(here.settings.names.delay(1_000), 1, -1, {"message.timestamp.type": "LogAppendTime"})
        wait_until(lambda: here.committed(group, topic) == 3, "all are committed")
    assert times[1] - times[0] >= 5
    local = [count for body, count in listener.seen if body == b"fails"]
    assert local == list(range(len(local))), "each local failure is shown to the listener"
    assert [record["RECONSUME_TIME"] for record in here.waiting(1_000, group)] == ["1"], "and is not in the record"
