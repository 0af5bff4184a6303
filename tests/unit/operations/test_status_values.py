"""The status as values and as JSON, of a Kafka in memory. Rest: tests/integration/operations/test_status.py."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.operations.dead_letters import read_page
from reconsume.operations.lives.group_hours import count_retry_hours
from reconsume.operations.lives.group_waits import count_group_waits
from reconsume.operations.lives.message_life import read_life
from reconsume.operations.status import GroupStatus, collect_status
from reconsume.operations.waiting import list_waiting
from reconsume.testing import InMemoryKafka


def fail_one(kafka: InMemoryKafka) -> None:
    """A message of `flights` fails in `departures`, which tries it once more."""
    consumer = PushConsumer("departures", bootstrap_servers=kafka.bootstrap_servers, max_reconsume_times=1)
    consumer.subscribe("flights")
    consumer.register_message_listener(lambda _messages, _context: ConsumeConcurrentlyStatus.RECONSUME_LATER)
    consumer.start()
    kafka.produce("flights", b"UA1545")
    kafka.settle()


def test_what_waits_and_what_is_dead() -> None:
    with InMemoryKafka() as kafka:
        fail_one(kafka)
        cluster = Cluster(Settings(bootstrap_servers=kafka.bootstrap_servers))
        assert cluster.clock() == kafka.now.timestamp() * 1_000, "the clock that holds where the settings lead"
        assert cluster.admin is cluster.admin
        status = collect_status(cluster)
        [lane] = [one for one in status.waiting if one.waiting.number]
        assert (lane.topic, lane.waiting, lane.overdue) == ("reconsume.DELAY.10s", Count(1, True), Count(0, True))
        assert lane.next_due_ms == status.at_ms + 10_000
        kafka.advance(timedelta(seconds=10))
        status = collect_status(cluster)
    assert [one for one in status.waiting if one.waiting.number] == []
    assert status.groups == [GroupStatus("departures", Count(0, True), Count(1, True))]
    assert status.is_exact
    told = status.as_json()
    assert list(told) == ["at_ms", "waiting", "groups", "quarantined", "quarantined_exact", "leaderless"]
    assert told["groups"] == [
        {
            "group": "departures",
            "retry_lag": 0,
            "retry_lag_exact": True,
            "dead_letters": 1,
            "dead_letters_exact": True,
            "parked": 0,
            "parked_exact": True,
        }
    ]
    assert told["waiting"][0] == {
        "topic": "reconsume.SEND_BACK",
        "waiting": 0,
        "waiting_exact": True,
        "overdue": 0,
        "overdue_exact": True,
        "next_due_ms": None,
    }


def test_topics_that_only_look_like_ours_are_left_out() -> None:
    """Somebody has made them by hand; the status failed for all groups."""
    with InMemoryKafka() as kafka:
        for name in ("DLQ.my.group", "RETRY.my.group", "PARKED.my.group", "DELAY.my.lane", "DLQ."):
            kafka.create_topic(f"reconsume.{name}")
        status = collect_status(Cluster(Settings(bootstrap_servers=kafka.bootstrap_servers)))
    assert "my.group" not in str(status)


def lose(monkeypatch: pytest.MonkeyPatch, *lost_ones: Partition) -> None:
    """Take the leaders of some partitions away."""
    lost = set(lost_ones)
    offsets = KafkaAdmin.end_offsets

    def end_offsets(self: KafkaAdmin, asked: Iterable[Partition], **more: bool) -> dict[Partition, int]:
        if lost & set(asked := list(asked)):
            raise KafkaNotReachable("no leader")
        return offsets(self, asked, **more)

    monkeypatch.setattr(KafkaAdmin, "end_offsets", end_offsets)
    monkeypatch.setattr(KafkaAdmin, "leaderless", lambda _self, topics: {one for one in lost if one[0] in topics})


def test_a_partition_without_a_leader_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with InMemoryKafka() as kafka:
        for name in ("DLQ.arrivals", "RETRY.departures"):
            kafka.create_topic(f"reconsume.{name}")
        lose(monkeypatch, ("reconsume.DLQ.arrivals", 0), ("reconsume.DELAY.10s", 0))
        cluster = Cluster(Settings(bootstrap_servers=kafka.bootstrap_servers))
        status, waiting = collect_status(cluster), list_waiting(cluster)
        group = count_group_waits(cluster, "departures")
    none, unknown = Count(0, exact=True), Count(0, exact=False)
    assert status.groups == [GroupStatus("arrivals", none, unknown), GroupStatus("departures", none, none)]
    assert {one.topic: (one.waiting, one.overdue) for one in status.waiting if one.topic.endswith((".10s", ".1m"))} == {
        "reconsume.DELAY.10s": (unknown, unknown),
        "reconsume.DELAY.1m": (none, none),
    }
    assert status.leaderless == ["reconsume.DELAY.10s-0", "reconsume.DLQ.arrivals-0"]
    assert not waiting.is_whole
    assert not group.is_whole


def test_a_partition_without_a_leader_hides_no_other_step_or_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    with InMemoryKafka() as kafka:
        fail_one(kafka)
        kafka.advance(timedelta(seconds=10))
        cluster = Cluster(Settings(bootstrap_servers=kafka.bootstrap_servers))
        [letter] = read_page(cluster, "departures").records

        def offsets_at(admin: KafkaAdmin, asked: Iterable[Partition], at_ms: int) -> dict[Partition, int]:
            return admin.end_offsets(asked, earliest=at_ms < letter.stored_ms)  # this Kafka cannot search by time

        monkeypatch.setattr(KafkaAdmin, "offsets_at", offsets_at)
        whole = read_life(cluster, "departures", letter)
        lose(monkeypatch, (whole.steps[0].topic, whole.steps[0].partition))
        life = read_life(cluster, "departures", letter)
        assert count_retry_hours(cluster, "departures").is_exact
        lose(monkeypatch, ("reconsume.RETRY.departures", 0))
        assert not count_retry_hours(cluster, "departures").is_exact
    assert (whole.is_whole, life.is_whole) == (True, False)
    assert [one.kind for one in whole.steps] == ["waited", "waited", "delivered", "died"]
    assert life.steps == whole.steps[1:]
