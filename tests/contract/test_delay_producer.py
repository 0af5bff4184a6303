"""DelayProducer: on a level, at a moment, withdrawn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reconsume.consumers import MessageQueue
from reconsume.delay_levels.errors import IllegalSetting, TopicNotAllowed
from reconsume.delay_levels.wire.properties import Header, is_ours
from tests.contract.worlds import World

pytestmark = pytest.mark.timeout(120)

HEADERS: list[Header] = [("b", b"1"), ("a", None), ("b", b"\xff\x00"), ("b", b"1")]


def test_a_message_waits_on_its_level_and_comes_out_as_it_went_in(world: World) -> None:
    topic = world.topic("level")
    sent = world.delay_producer().send(topic, b"\x00v", key=b"k", headers=HEADERS, tags="late", delay_level=99)
    assert sent.stored.topic == world.names.delay(2_000), "99 is cut to the highest level"
    (one,) = world.until(lambda: world.read(topic), "the message")
    (waited,) = [record for record in world.read(sent.stored.topic) if record["UNIQ_KEY"] == sent.msg_id]
    assert (one.key, one.value) == (b"k", b"\x00v")
    assert [header for header in one.headers if not is_ours(header[0])][: len(HEADERS)] == HEADERS
    assert (one["TAGS"], one["DELAY"], one["UNIQ_KEY"]) == ("late", "4", sent.msg_id)
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
    for delay_ms in (3_500, 700, 2_100):
        producer.send(topic, b"%d" % delay_ms, delay=timedelta(milliseconds=delay_ms))
    producer.send(topic, b"now")
    world.until(lambda: len(world.read(topic)) == 4, "all four")
    assert [record.value for record in world.read(topic)] == [b"now", b"700", b"2100", b"3500"]


def test_a_withdrawn_message_never_comes(world: World) -> None:
    topic = world.topic("withdrawn")
    producer = world.delay_producer()
    gone = producer.send(topic, b"gone", delay=timedelta(seconds=3))
    producer.cancel(gone.msg_id)
    producer.send(topic, b"comes", delay=timedelta(seconds=5))
    world.until(lambda: world.read(topic), "the other one")
    assert [record.value for record in world.read(topic)] == [b"comes"]
    with pytest.raises(IllegalSetting, match="was due already"):
        producer.cancel(gone.msg_id)


def test_a_selector_chooses_the_partition_of_a_delayed_message(world: World) -> None:
    topic = world.topic("selected", 3)
    producer = world.delay_producer()
    for partition in (2, 0):
        producer.send(
            topic,
            b"v",
            delay_level=1,
            selector=lambda queues, arg: MessageQueue(topic, queues[arg].partition),
            arg=partition,
        )
    world.until(lambda: len(world.read(topic)) == 2, "both")
    assert sorted(record["REAL_QID"] or "" for record in world.read(topic)) == ["0", "2"]


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
