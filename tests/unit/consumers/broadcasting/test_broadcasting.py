"""Broadcasting without a Kafka: what is dropped, what is saved, what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka import connections
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.consumers import ConsumeConcurrentlyStatus, MessageModel, PushConsumer
from reconsume.consumers.assembly import LoopBuilder
from reconsume.consumers.broadcasting.broadcasting import BroadcastSender, DropCounter, PartitionFinder
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.progress.metadata import encode_progress
from tests.unit.consumers.doubles import Clock, RecordingWriter, chunk_of, service_of


def failing(sender: BroadcastSender, clock: Clock) -> ConcurrentlyService:
    def listener(*_: object) -> ConsumeConcurrentlyStatus:
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    return service_of(listener, sender, clock)


@pytest.mark.rule("BP-01")
def test_what_fails_or_times_out_is_dropped_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dropped, clock = DropCounter(), Clock()
    offsets = LocalOffsets.open(tmp_path)
    sender = BroadcastSender(log=SendBackLog("departures"), offsets=offsets, dropped=dropped)
    service, queue = failing(sender, clock), ProcessQueue("flights", 0)
    late = chunk_of(1, queue=queue, start=0)
    queue.start(late, 0)
    clock.now = timedelta(hours=1).total_seconds() * 1000
    service.expire(queue, timedelta(minutes=15).total_seconds() * 1000)
    service.consume(chunk_of(1, queue=queue, start=1))
    assert dropped.count == 2
    assert queue.commit_point() == Commit(2, "")
    offsets.close()
    assert "broadcasting: <Message flights-0@1> failed and is dropped (2 so far)" in caplog.text


@pytest.mark.rule("BP-02")
def test_offsets_are_saved_when_they_have_changed_and_again_when_the_disk_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = LocalOffsets.open(tmp_path)
    sender = BroadcastSender(log=SendBackLog("departures"), offsets=offsets, dropped=DropCounter())
    queue = ProcessQueue("flights", 0)
    offsets.save({queue.where: Commit(0, "")})
    for message in chunk_of(2, queue=queue):
        queue.finish(message)
    (tmp_path / "offsets.new").mkdir()
    sender.commit([queue])
    assert "offsets cannot be saved in" in caplog.text
    assert offsets.get("flights", 0) == Commit(0, "")
    (tmp_path / "offsets.new").rmdir()
    sender.commit([queue])
    assert offsets.get("flights", 0) == queue.committed == Commit(2, "")
    (tmp_path / "offsets.json").unlink()
    sender.commit([queue])
    assert not (tmp_path / "offsets.json").exists(), "nothing has changed, so nothing is written"
    offsets.close()


@dataclass
class Flights:
    """A cluster with one topic of one partition; also the subscription to it."""

    topic_id: str | None
    end: int = 8_000
    is_deleted: bool = False

    def existing(self, _admin: object) -> dict[str, int]:
        return {} if self.is_deleted else {"flights": 1}

    def get(self, topic: str) -> str | None:
        return "*" if topic == "flights" else None

    def remedy_if_missing(self, topic: str) -> str:
        return f"create {topic}"

    def __iter__(self) -> Any:
        return iter(["flights"])

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {} if self.topic_id is None else dict.fromkeys(topics, self.topic_id)

    def end_offsets(self, partitions: Collection[tuple[str, int]], *, earliest: bool = False) -> Any:
        return dict.fromkeys(partitions, 0 if earliest else self.end)


def start_of(directory: Path, topic_id: str | None, reached: int | None = None) -> int:
    """Return where a consumer starts that is restarted, and let it reach an offset."""
    cluster, offsets = cast("Any", Flights(topic_id)), LocalOffsets.open(directory)
    where = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    start = PartitionFinder(cluster, cluster, offsets, where)()["flights", 0]
    assert (found := offsets.get("flights", 0)) is not None
    assert found.offset == start
    if reached is not None:
        offsets.save({("flights", 0): Commit(reached, encode_progress(reached, [reached + 1], {}))})
    offsets.close()
    return start


def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert start_of(tmp_path, "a", reached=5_000) == 8_000
    assert start_of(tmp_path, "a") == 5_000
    assert start_of(tmp_path, None) == 5_000, "no answer is no other topic"
    assert start_of(tmp_path, "b") == 0
    assert "topic flights was recreated" in caplog.text
    assert "done1" not in (tmp_path / "offsets.json").read_text(), "finished offsets of the old topic are dropped"
    assert start_of(tmp_path, "b", reached=7) == 0
    assert start_of(tmp_path, "b") == 7


def test_a_deleted_topic_is_read_no_more_and_forgotten(tmp_path: Path) -> None:
    """A broker that does not know it for a while is no reason."""
    cluster, offsets = Flights("a"), LocalOffsets.open(tmp_path)
    offsets.save({("of an earlier subscription", 0): Commit(1, "")}, {"of an earlier subscription": "x"})
    given = cast("Any", cluster)
    find = PartitionFinder(given, given, offsets, ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET))
    found = find()
    for cluster.is_deleted in (True, False, *[True] * 5):
        assert find() is found == {("flights", 0): 8_000}
    assert find() == {}
    offsets.commit({("flights", 0): Commit(9_000, "")})
    assert offsets.topics() == {"of an earlier subscription"}, "a message that ends now saves nothing"
    assert json.loads((tmp_path / "offsets.json").read_text())["ids"] == {"of an earlier subscription": "x"}
    cluster.is_deleted = False
    assert find() == {("flights", 0): 0}, "it is new"
    offsets.close()


def test_a_file_without_ids_of_topics_stays_valid(tmp_path: Path) -> None:
    old = {"version": 1, "offsets": {"flights": {"0": {"offset": 5_000, "metadata": ""}}}}
    (tmp_path / "offsets.json").write_text(json.dumps(old))
    assert start_of(tmp_path, "a") == 5_000
    assert start_of(tmp_path, "b") == 0


def test_exactly_once_is_refused() -> None:
    with pytest.raises(IllegalSetting, match="exactly_once needs CLUSTERING"):
        PushConsumer("departures", exactly_once=True, message_model=MessageModel.BROADCASTING)


class Idle:
    """A consumer that reads nothing."""

    def poll(self, _timeout: float) -> None: ...


def test_a_consumer_that_librdkafka_has_left_alone_asks_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no membership to lose, but its connections."""
    monkeypatch.setattr(connections, "_PATIENCE_MS", 0)
    given: dict[str, Any] = {}

    def broadcasting(_builder: LoopBuilder, conf: Mapping[str, Any]) -> tuple[GroupConsumer, RecordingWriter]:
        given.update(conf)
        return GroupConsumer(conf, lambda _settings: cast("Any", Idle())), RecordingWriter()

    monkeypatch.setattr(LoopBuilder, "_broadcasting", broadcasting)
    one = PushConsumer("departures", message_model=MessageModel.BROADCASTING)
    one.register_message_listener(lambda _messages, _context: None)
    with ExitStack() as closing:
        parts = one._settings, one._registration, one._subscriptions, cast("Any", None), threading.Event()
        loop = LoopBuilder(*parts, closing, one._dropped).build()
        loop.run_once()
        for _ in range(2):
            given["stats_cb"](json.dumps({"brokers": {}}))
        with pytest.raises(MembershipLost, match="looked for no broker"):
            loop.run_once()
