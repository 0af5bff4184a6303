"""Batches that grow while they are written: only by records that need no question."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.scheduler.delivery import due_batch
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.scheduler.targets.targets import ListedTopics, Targets
from reconsume.bridge.scheduler.targets.timers import Timers
from reconsume.delay_levels.wire.names import TopicNames

NAMES = TopicNames()
LANE = NAMES.delay(1_000)
PLAIN = "%RETRY%plain"


class NoAdmin:
    """Fails any question."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


@pytest.fixture
def router() -> Router:
    groups = Groups(by_name={"paused": SubscriptionGroupConfig(group_name="paused", retry_paused=True)})
    there = ListedTopics({NAMES.retry(name): 1 for name in ("plain", "paused", "new")} | {"orders": 3})
    admin = cast("Any", NoAdmin())
    targets = Targets(NAMES, ["orders"], admin, admin, lambda: groups, listed=there)
    for known in (PLAIN, "%RETRY%paused", "orders"):
        targets.find(known.encode())
    return Router(NAMES, targets, lambda: groups, cast("Timers", None))


def due(*real_topics: str | None, partition: int = 0) -> DueRun:
    records = [
        Message(
            topic=LANE,
            partition=partition,
            offset=offset,
            key=b"k",
            value=b"v%d" % offset,
            timestamp=(TIMESTAMP_LOG_APPEND_TIME, 1),
            headers=[("a", b"b")] if real_topic is None else [("REAL_TOPIC", real_topic.encode()), ("REAL_QID", b"0")],
        )
        for offset, real_topic in enumerate(real_topics)
    ]
    queue = PartitionQueue(LANE, partition, 1_000)
    queue.extend(records)
    return DueRun(queue, queue.due(10_000, len(records)))


def routed(router: Router, run: DueRun, count: int) -> list[Delivery]:
    batch: list[Delivery] = []
    router.route((message for _, message in run.records[:count]), batch, LANE)
    return batch


@pytest.mark.parametrize("other", ["%RETRY%paused", "%RETRY%new", "orders", None])
def test_a_batch_ends_before_a_record_that_is_not_plain(
    router: Router, other: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_batch, "PART", 2)
    runs = [due(*[PLAIN] * 3), due(*[PLAIN] * 3, other, PLAIN, partition=1), due(PLAIN, partition=2)]
    batch = DueBatch(runs, routed(router, runs[0], 2), router)

    assert [len(part) for part in batch.parts()] == [1, 2, 1]
    assert batch.is_cut
    ended, deliveries = batch.end()
    assert [(run.queue.partition, len(run.records)) for run in ended] == [(0, 3), (1, 3)]
    assert [one.value for one in deliveries] == [b"v0", b"v1", b"v2"] * 2


@pytest.mark.parametrize("topic", [NAMES.send_back, NAMES.parked("plain")])
def test_records_of_the_inbox_and_of_parked_topics_are_not_plain(router: Router, topic: str) -> None:
    assert router.route_plain([message for _, message in due(PLAIN).records], topic) == []


def test_plain_records_are_delivered_as_all_others(router: Router) -> None:
    run = due(PLAIN, PLAIN)
    assert router.route_plain([message for _, message in run.records], LANE) == routed(router, run, 2)


def test_a_batch_that_was_ended_grows_no_more(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_batch, "PART", 2)
    run = due(*[PLAIN] * 6)
    batch = DueBatch([run], routed(router, run, 2), router)
    left_behind = batch.parts()
    next(left_behind)
    ended, deliveries = batch.end()

    assert list(left_behind) == []
    assert [len(one.records) for one in ended] == [4]
    assert len(deliveries) == len(batch.deliveries) == 4
    assert not batch.is_cut
