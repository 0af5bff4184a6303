"""Broadcasting without a Kafka: what is dropped, what is saved, what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import ExitStack
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
from reconsume.consumers.broadcasting.broadcasting import BroadcastSender, DropCounter
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.delay_levels.errors import IllegalSetting
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
    for message in chunk_of(2, queue=queue):
        queue.finish(message)
    (tmp_path / "offsets.new").mkdir()
    sender.commit([queue])
    assert "offsets cannot be saved in" in caplog.text
    assert offsets.get("flights", 0) is None
    (tmp_path / "offsets.new").rmdir()
    sender.commit([queue])
    assert offsets.get("flights", 0) == queue.committed == Commit(2, "")
    (tmp_path / "offsets.json").unlink()
    sender.commit([queue])
    assert not (tmp_path / "offsets.json").exists(), "nothing has changed, so nothing is written"
    offsets.close()


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
