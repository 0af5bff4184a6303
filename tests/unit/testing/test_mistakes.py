"""Mistakes of a test: each is told, with the way out, and none makes the test wait."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reconsume.consumers import Consumer, DelayProducer, PushConsumer
from reconsume.delay_levels.errors import IllegalDelayLevels, IllegalName, IllegalSetting
from reconsume.testing import InMemoryKafka
from reconsume.testing.pytest_plugin import in_memory_kafka

__all__ = ["in_memory_kafka"]

SECOND = timedelta(seconds=1)


def test_mistakes_are_told(in_memory_kafka: InMemoryKafka) -> None:
    in_memory_kafka.produce("flights", "UA1545")
    with pytest.raises(IllegalSetting, match="'flights' exists already"):
        in_memory_kafka.create_topic("flights", 2)
    with pytest.raises(IllegalSetting, match=r"'reconsume\.DELAY\.9h': topic .* does not exist"):
        in_memory_kafka.produce("reconsume.DELAY.9h", "UA1545")
    with pytest.raises(IllegalSetting, match="use a positive timedelta"):
        in_memory_kafka.advance(-SECOND)
    with pytest.raises(IllegalSetting, match="retryMaxTimes"):
        in_memory_kafka.set_group("departures", retryMaxTimes=-1)
    for misspelled in ("retryMaxTimez", "retry_max_times"):
        with pytest.raises(
            IllegalSetting, match=rf"group 'departures': unknown {misspelled}; known here: .*retryMaxTimes"
        ):
            in_memory_kafka.set_group("departures", **{misspelled: 3})
    with pytest.raises(IllegalSetting, match="topic flights has no partition 7, only 0 to 0"):
        in_memory_kafka.produce("flights", "UA1545", partition=7)
    with pytest.raises(IllegalSetting, match="partition must be from -1 to"):
        in_memory_kafka.produce("flights", "UA1545", partition=-2)
    with pytest.raises(IllegalSetting, match=r"advance: \d+ days, .* goes beyond the year 9999"):
        in_memory_kafka.advance(timedelta.max)
    assert in_memory_kafka.advance(SECOND) == []


def test_mistakes_of_an_installation_are_told() -> None:
    with pytest.raises(IllegalDelayLevels, match="level 1: '10x' is not a duration"):
        InMemoryKafka(message_delay_level="10x")
    with pytest.raises(IllegalName, match="topic_prefix 'a b' is illegal"):
        InMemoryKafka(topic_prefix="a b")
    with pytest.raises(IllegalSetting, match=r"allowed_real_topics: .*'\[' is not a regular expression"):
        InMemoryKafka(allowed_real_topics=["["])


def test_a_closed_kafka_keeps_its_records_and_no_client_waits_for_it() -> None:
    with InMemoryKafka() as kafka:
        kafka.produce("flights", "UA1545")
    kafka.close()
    assert [one.value for one in kafka.records("flights")] == [b"UA1545"]
    for act in (
        kafka.settle,
        lambda: kafka.advance(SECOND),
        lambda: kafka.produce("flights", "UA1545"),
        lambda: kafka.set_group("departures", retryMaxTimes=3),
    ):
        with pytest.raises(IllegalSetting, match="this InMemoryKafka is closed"):
            act()
    for late in (
        lambda: PushConsumer("late", bootstrap_servers=kafka.bootstrap_servers),
        lambda: Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "late"}),
        lambda: DelayProducer(bootstrap_servers=kafka.bootstrap_servers),
    ):
        with pytest.raises(IllegalSetting, match=r"kafka-\d+\.\S+ is an InMemoryKafka that is closed, or of another"):
            late()
