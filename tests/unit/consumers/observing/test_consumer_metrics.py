"""What Prometheus scrapes of a consumer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, Message
from reconsume.consumers.observing.consumer_metrics import OTHERS, ConsumerMetrics
from reconsume.consumers.partitions.process_queue import Chunk
from reconsume.delay_levels.errors import SendBackFailed
from tests.unit.consumers.doubles import RETRY_TOPIC, RecordingWriter, chunk_of, message_at
from tests.unit.consumers.hooked import World, answering, chunk_with, consumed_in_order, retry_chunk

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


class Counted:
    """A world with the hook, and a look at its registry."""

    def __init__(self, *answers: SendBackFailed | None) -> None:
        self.registry = CollectorRegistry()
        self.world = World([ConsumerMetrics(self.registry)], writer=RecordingWriter(answers=list(answers)))

    def consume(self, chunk: Chunk, answer: object = SUCCESS, ack_index: int | None = None) -> Counted:
        self.world.concurrently(answering(answer, ack_index)).consume(chunk)
        return self

    def value(self, name: str, topic: str = "flights", physical_topic: str = "flights", **more: str) -> float | None:
        labels = {"group": "departures", "topic": topic, "physical_topic": physical_topic, **more}
        return self.registry.get_sample_value(f"reconsume_consumer_{name}", labels)


@pytest.mark.rule("ST-01")
@pytest.mark.parametrize(("ack_index", "ok", "failed"), [(None, 3, None), (0, 1, 2), (-1, None, 3)])
def test_messages_are_counted_as_ok_or_failed_by_the_ack_index(
    ack_index: int | None, ok: float | None, failed: float | None
) -> None:
    counted = Counted().consume(chunk_of(3), ack_index=ack_index)
    assert (counted.value("ok_total"), counted.value("failed_total")) == (ok, failed)
    assert counted.value("rt_seconds_count") == 1


@pytest.mark.rule("ST-01")
@pytest.mark.parametrize(
    ("status", "ok", "failed"),
    [(ConsumeOrderlyStatus.SUCCESS, 2, None), (ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, None, 2)],
)
def test_so_they_are_in_order(status: ConsumeOrderlyStatus, ok: float | None, failed: float | None) -> None:
    counted = Counted()
    consumed_in_order(counted.world, status)
    assert (counted.value("ok_total"), counted.value("failed_total")) == (ok, failed)


@pytest.mark.rule("ST-01", "ST-02", "T-36")
def test_a_retry_is_counted_under_its_origin_topic_and_the_one_that_was_read() -> None:
    counted = Counted().consume(retry_chunk()).consume(chunk_of(1), LATER)
    assert counted.value("ok_total", physical_topic=RETRY_TOPIC) == 1
    assert counted.value("failed_total") == 1
    assert counted.value("ok_total") is None


def test_time_and_messages_in_flight_are_those_of_the_listener() -> None:
    counted = Counted()
    seen: list[float | None] = []

    def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        seen.append(counted.value("in_flight"))
        counted.world.clock.now += 250
        return SUCCESS

    counted.world.concurrently(listener).consume(chunk_of(3))
    assert (seen, counted.value("in_flight")) == ([3.0], 0.0)
    assert counted.value("rt_seconds_sum") == 0.25
    assert counted.value("rt_seconds_bucket", le="0.1") == 0
    assert counted.value("rt_seconds_bucket", le="0.5") == 1


@pytest.mark.rule("ST-03")
def test_send_backs_are_counted_by_target_and_level_and_dead_letters_once_more() -> None:
    counted = Counted(None, None, SendBackFailed("no inbox"))
    for number in range(3):
        counted.consume(chunk_of(1), LATER)
        if number == 0:
            counted.world.groups = Groups(SystemConfig(message_delay_level="1s"))
    counted.world.groups = Groups(
        by_name={"departures": SubscriptionGroupConfig(group_name="departures", retry_max_times=0)}
    )
    counted.world.writer.answers.append(None)
    counted.consume(chunk_of(1), LATER)
    assert counted.value("sent_back_total", target="RETRY", level="3") == 1
    assert counted.value("sent_back_total", target="RETRY", level="1") == 1
    assert counted.value("sent_back_total", target="DEAD_LETTER", level="0") == 1
    assert counted.value("dead_letters_total") == 1
    assert counted.value("send_backs_failed_total") == 1


def test_a_wish_that_nobody_has_cut_yet_is_no_label() -> None:
    counted = Counted(None)
    counted.world.groups = Groups(SystemConfig(auto_create_subscription_group=False))
    counted.consume(chunk_of(1), LATER)
    assert counted.value("sent_back_total", target="UNDECIDED", level="0") == 1


def test_what_headers_say_of_their_origin_cannot_fill_the_memory() -> None:
    counted = Counted()
    for number in range(300):
        headers = [("RETRY_TOPIC", b"topic-%d" % number), ("RECONSUME_TIME", b"1")]
        counted.consume(chunk_with(message_at(0, topic=RETRY_TOPIC, headers=list(headers))))
    assert counted.value("ok_total", topic="topic-0", physical_topic=RETRY_TOPIC) == 1
    assert counted.value("ok_total", topic="topic-299", physical_topic=RETRY_TOPIC) is None
    assert counted.value("ok_total", topic=OTHERS, physical_topic=RETRY_TOPIC) == 100


def test_neither_can_topics_that_a_pattern_matches() -> None:
    counted = Counted()
    for number in range(300):
        counted.consume(chunk_with(message_at(0, topic=f"tenant-{number}")))
    assert counted.value("ok_total", topic="tenant-0", physical_topic="tenant-0") == 1
    assert counted.value("ok_total", topic=OTHERS, physical_topic="tenant-299") is None
    assert counted.value("ok_total", topic=OTHERS, physical_topic=OTHERS) == 100
    counted.consume(retry_chunk())
    assert counted.value("ok_total", topic=OTHERS, physical_topic=RETRY_TOPIC) == 1, "one for each group"


@pytest.mark.rule("ST-01")
def test_help_texts_name_rocketmqs_statistics() -> None:
    registry = CollectorRegistry()
    ConsumerMetrics(registry)
    text = " ".join(metric.documentation for metric in registry.collect())
    for name in ("CONSUME_OK_TPS", "CONSUME_FAILED_TPS", "CONSUME_RT"):
        assert name in text
