"""What Spark's Kafka source is asked for."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors.names import KINDS, kind_pattern
from reconsume.spark_connectors.source import TopicSource


class Reading:
    """A reader of Spark that only notes its options."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def format(self, _name: str) -> Reading:
        return self

    def options(self, **said: str) -> Reading:
        self.said = said
        return self

    def load(self) -> SimpleNamespace:
        return SimpleNamespace()


def source(**options: str) -> tuple[TopicSource, Reading]:
    reading = Reading()
    conf = SimpleNamespace(get=lambda *_: "", isModifiable=lambda _: False)
    spark: Any = SimpleNamespace(conf=conf, read=reading, sparkContext=SimpleNamespace(defaultParallelism=2))
    return TopicSource(spark, "localhost:9092", TopicNames("reconsume."), options), reading


def test_topics_of_others_whose_names_only_contain_ours_are_not_read() -> None:
    """Spark takes each topic in which it finds the pattern, and MirrorMaker puts the name of a cluster before ours."""
    here, reading = source()
    here.raw(pattern="|".join(kind_pattern("reconsume.", kind) for kind in KINDS))
    pattern = reading.said["subscribePattern"]
    ours = ("SEND_BACK", "QUARANTINE", "DELAY.1s", "RETRY.departures", "DLQ.departures", "PARKED.departures")
    names = [f"reconsume.{name}" for name in ours]
    others = [f"us-east.{name}" for name in names] + ["reconsume.SEND_BACK.old", "reconsume.QUARANTINE-2", "reconsumed"]
    assert [name for name in [*names, *others] if re.search(pattern, name)] == names


@pytest.mark.parametrize("name", ["failOnDataLoss", "failondataloss", "groupIdPrefix", "kafka.security.protocol"])
def test_a_second_read_of_whole_topics_keeps_what_says_how_to_read(name: str) -> None:
    here, _ = source(**{name: "x", "startingTimestamp": "5", "minPartitions": "7"})
    assert here.of_clients().options == {name: "x"}


@pytest.mark.parametrize(("options", "expected"), [({}, "10"), ({"kafka.fetch.max.wait.ms": "300"}, "300")])
def test_tasks_do_not_wait_at_the_end_of_a_partition_unless_the_user_wants_it(
    options: dict[str, str], expected: str
) -> None:
    """The tasks that read 9 partitions with few records took 5.5 s, and now take 1.5 s."""
    here, reading = source(**options)
    here.raw(["reconsume.DELAY.10s"])
    assert reading.said["kafka.fetch.max.wait.ms"] == expected
