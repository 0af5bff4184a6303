"""How a worker joins its group."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.bridge.scheduler import service as module
from reconsume.bridge.scheduler.queues.backlog import PartitionHead
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.delay_levels.errors import KafkaNotReachable


@pytest.mark.parametrize("static", [True, False])
def test_a_worker_is_a_static_member_unless_the_setting_says_otherwise(static: bool) -> None:
    scheduler = SchedulerSettings(instance_id="one", static_membership=static, session_timeout_ms=9_000)
    settings = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9", scheduler=scheduler))._consumer_settings()
    assert settings.get("group.instance.id") == ("reconsume-scheduler-one" if static else None)
    assert (settings["session.timeout.ms"], settings["heartbeat.interval.ms"]) == (9_000, 1_000)


def test_withdrawals_are_read_when_the_brokers_time_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is weeks ahead they would all be over, and withdrawn messages would be delivered."""
    began: list[str] = []

    def unanswered() -> None:
        raise KafkaNotReachable("that is far enough")

    service = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9"))
    writer = SimpleNamespace(start=lambda: began.append("time"), close=lambda: None)
    monkeypatch.setattr(service, "_checks", SimpleNamespace(check=lambda: None))
    monkeypatch.setattr(service, "_follower", SimpleNamespace(wait_until_loaded=lambda *_: True))
    monkeypatch.setattr(service, "_cancels", SimpleNamespace(start=lambda: began.append("withdrawals")))
    monkeypatch.setattr(service, "_writer", lambda _positions: writer)
    monkeypatch.setattr(module, "PositionLog", lambda *_: SimpleNamespace(uncommitted=unanswered))
    with pytest.raises(KafkaNotReachable):
        service._work(threading.Event())
    assert began == ["time", "withdrawals"]


def test_a_worker_that_waits_for_the_groups_topic_says_so_and_stays_alive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition without a leader answers nothing, and a restart of the process would not help."""
    monkeypatch.setattr(module, "_GROUPS_SECONDS", 0.05, raising=False)
    service = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9"))
    stop, alive = threading.Event(), threading.Event()
    worker = threading.Thread(target=service._run, args=(stop,))
    monkeypatch.setattr(service, "_checks", SimpleNamespace(check=lambda: None))
    monkeypatch.setattr(service._observer, "alive", alive.set)
    worker.start()
    try:
        assert alive.wait(5), "no sign of life"
    finally:
        stop.set()
        worker.join()
    assert "topic reconsume.GROUPS" in caplog.text


@pytest.mark.parametrize("is_there", [True, False])
def test_a_list_without_the_topic_of_positions_is_looked_up_before_a_worker_gives_up(*, is_there: bool) -> None:
    """A broker that has just started may know no topics for a moment."""
    service, given_up = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9")), list[str]()
    found = {"reconsume.POSITIONS": 1} if is_there else {}
    service._admin = cast("Any", SimpleNamespace(topics=dict, partitions=lambda _topics: found))
    service._at_work = cast("Any", SimpleNamespace(give_up=given_up.append))
    service._see_topics()
    assert given_up == ([] if is_there else ["topic reconsume.POSITIONS is gone"])


@pytest.mark.parametrize("topic", ["reconsume.DELAY.10s", "reconsume.RETRY.g", "reconsume.PARKED.g"])
def test_a_deleted_topic_that_only_other_workers_wrote_to_is_not_created_again_at_once(topic: str) -> None:
    service = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9"))
    service._admin = cast("Any", SimpleNamespace(topics=lambda: {topic: 1, "reconsume.POSITIONS": 1}))
    service._see_topics()
    with pytest.raises(KafkaNotReachable, match="was deleted; it is created again in 20 s"):
        service._deletions.missed(topic)
    service._deletions.missed("reconsume.RETRY.new")


def test_a_worker_is_told_the_present_ids_of_its_topics_and_the_log_what_was_deleted_unread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Except for a parked topic, whose delivered records workers delete."""
    service, told = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9")), list[dict[str, str]]()
    first = {("reconsume.DELAY.10s", 1): 9, ("reconsume.PARKED.g", 0): 9}

    def end_offsets(partitions: list[Partition], *, earliest: bool) -> dict[Partition, int]:
        assert earliest
        return {where: first.get(where, 5) for where in partitions}

    ids = SimpleNamespace(topic_ids=lambda topics: dict.fromkeys(topics, "2"), end_offsets=end_offsets)
    service._admin = cast("Any", ids)
    service._delivered_parked = cast("Any", SimpleNamespace(delete=lambda _wheres: None))
    service._at_work = cast("Any", SimpleNamespace(saw_ids=told.append))
    topic, parked = "reconsume.DELAY.10s", "reconsume.PARKED.g"
    heads = [PartitionHead((topic, one), 10_000, 0, 0, None, 5) for one in (0, 1)]
    heads.append(PartitionHead((parked, 0), 0, 0, 0, None, 5))
    for _ in range(2):
        service._look_at_partitions(heads, {head.where: 20 for head in heads})
    assert told == [{topic: "2", parked: "2"}] * 2
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == [
        f"{topic}-1: up to 4 offsets were deleted before they were read; raise retention.ms of topic {topic}"
    ]
