"""DelayProducer: on a level, at a moment, withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import murmur2

from reconsume.consumers import MessageQueue
from reconsume.delay_levels.errors import IllegalSetting, TopicNotAllowed
from reconsume.delay_levels.wire.properties import Header, is_ours
from tests.contract.worlds import World

HEADERS: list[Header] = [("b", b"1"), ("a", None), ("b", b"\xff\x00"), ("b", b"1")]


@pytest.mark.rule("DP-02", "DP-03", "DP-05")
def test_a_message_waits_on_its_level_and_comes_out_as_it_went_in(world: World) -> None:
    topic, producer = world.topic("level", 4), world.delay_producer()
    sent = producer.send(topic, b"\x00v", key=b"k", headers=HEADERS, tags="late", keys="k1 k2", delay_level=99)
    assert sent.stored.topic == world.names.delay(2_000), "99 is cut to the highest level"
    (one,) = world.until(lambda: world.read(topic), "the message")
    (waited,) = [record for record in world.read(sent.stored.topic) if record["UNIQ_KEY"] == sent.msg_id]
    assert (one.key, one.value, one.partition) == (b"k", b"\x00v", murmur2(b"k", 4))
    assert [header for header in one.headers if not is_ours(header[0])][: len(HEADERS)] == HEADERS
    shown = {name: one[name] for name in ("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "TIMER_DELIVER_MS")}
    assert shown == {"TAGS": "late", "KEYS": "k1 k2", "UNIQ_KEY": sent.msg_id, "DELAY": "4", "TIMER_DELIVER_MS": None}
    assert one["REAL_TOPIC"] == topic
    assert one.timestamp - waited.timestamp >= 2_000


@pytest.mark.parametrize("delay_ms", [-1, 0, 300, 2_499, 5_250])
def test_a_message_comes_at_its_moment_and_never_early(world: World, delay_ms: int) -> None:
    topic = world.topic(f"moment-{delay_ms}")
    due = world.now() + timedelta(milliseconds=delay_ms)
    world.delay_producer().send(topic, b"v", deliver_at=due)
    (one,) = world.until(lambda: world.read(topic), "the message")
    assert one["TIMER_DELIVER_MS"] == str(-int(-due.timestamp() * 1000 // 1))
    assert world.now() >= due
    assert one.timestamp + 1 >= due.timestamp() * 1000


def test_messages_overtake_each_other_by_their_moments(world: World) -> None:
    topic = world.topic("overtakes")
    producer = world.delay_producer()
    producer.send(topic, b"first")  # which connects
    for seconds in (11, 3, 7):
        producer.send(topic, b"%d" % seconds, delay=timedelta(seconds=seconds))
    producer.send(topic, b"now")
    world.until(lambda: len(world.read(topic)) == 5, "all five")
    assert [record.value for record in world.read(topic)] == [b"first", b"now", b"3", b"7", b"11"]


@pytest.mark.rule("TM-13", "TM-14", "TM-15")
def test_a_message_that_is_withdrawn_does_not_come_and_the_others_do(world: World) -> None:
    topic, producer = world.topic("withdrawn"), world.delay_producer()
    another = world.delay_producer()
    another.cancel(f"{round(world.now().timestamp() * 1000) + 60_000:012X}" + "0" * 20)
    producer.send(topic, b"now")  # both are connected
    another.cancel(producer.send(topic, b"level", delay_level=4).msg_id)
    ids = [producer.send(topic, b"%d" % n, delay=timedelta(seconds=10)).msg_id for n in range(6)]
    for one in (ids[0], ids[2], ids[4]):
        another.cancel(one)
    producer.send(topic, b"last", delay=timedelta(seconds=11))
    world.until(lambda: b"last" in [one.value for one in world.read(topic)], "the last one")
    assert sorted(one.value or b"" for one in world.read(topic)) == [b"1", b"3", b"5", b"last", b"now"]
    with pytest.raises(IllegalSetting, match="was due already"):
        producer.cancel(ids[0])


def test_a_selector_keeps_what_belongs_together_in_one_partition_and_in_order(world: World) -> None:
    topic, producer = world.topic("selected", 3), world.delay_producer()

    def by_order(queues: Sequence[MessageQueue], order: int) -> MessageQueue:
        return queues[order % len(queues)]

    for step in range(4):
        for order in range(3):
            producer.send(topic, b"%d/%d" % (order, step), key=b"any", selector=by_order, arg=order)
    for order in range(3):
        producer.send(topic, b"%d/later" % order, key=b"any", delay=timedelta(seconds=1), selector=by_order, arg=order)
    world.until(lambda: len(world.read(topic)) == 15, "all")
    records = sorted((one for one in world.read(topic) if one.partition == 1), key=lambda one: one.offset)
    assert [one.value for one in records] == [b"1/0", b"1/1", b"1/2", b"1/3", b"1/later"]


@pytest.mark.parametrize("delay", [{"delay": timedelta(milliseconds=100)}, {"delay_level": 1}])
def test_a_target_that_schedulers_would_refuse_is_refused_at_once(world: World, delay: dict[str, Any]) -> None:
    world.topic("allowed")
    other = world.name(f"elsewhere-{next(iter(delay))}")
    world.produce(other, b"makes the topic")
    producer = world.delay_producer()
    with pytest.raises(TopicNotAllowed, match=r"allowed_real_topics .* it is '.+'; add the topic and restart"):
        producer.send(other, b"v", **delay)
    producer.send(other, b"at once")
    world.until(lambda: len(world.read(other)) == 2, "the message that no scheduler delivers")
    assert [one for one in world.read(world.names.quarantine) if one["REAL_TOPIC"] == other] == []
