"""A worker whose consumer has stopped reading begins afresh by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import pytest
from confluent_kafka import Message

from reconsume.bridge.scheduler import service
from reconsume.bridge.scheduler.queues import backlog
from reconsume.bridge.scheduler.source import Source
from reconsume.bridge.scheduler.stalls import StallWatch
from reconsume.bridge.scheduler.worker import Worker
from tests.integration.installation import installation
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


def test_what_waits_in_a_partition_that_is_not_read_any_more_is_delivered_all_the_same(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls, keep, give_up = threading.Event(), Source._keep, Worker.give_up
    given_up: list[str] = []

    def keep_nothing(source: Source, messages: Sequence[Message]) -> None:
        """As when librdkafka waits for an answer that never comes: the worker hears of nothing."""
        if given_up or not stalls.is_set():
            keep(source, messages)

    def told(worker: Worker, why: str) -> None:
        given_up.append(why)
        give_up(worker, why)

    monkeypatch.setattr(Source, "_keep", keep_nothing)
    monkeypatch.setattr(Worker, "give_up", told)
    monkeypatch.setattr(service, "StallWatch", partial(StallWatch, patience_ms=2_000))
    monkeypatch.setattr(backlog, "_EVERY_SECONDS", 0.5)
    with installation(bootstrap_servers) as one:
        group, lane = one.name("g"), one.settings.names.delay(1_000)
        headers = [("REAL_TOPIC", f"%RETRY%{group}".encode())]
        one.produce(lane, b"before", headers=headers)
        wait_until(lambda: len(one.retries(group)) == 1, "the first one")
        stalls.set()
        one.produce(lane, b"after", headers=headers)
        wait_until(lambda: len(one.retries(group)) == 2, "the second one")
        assert [record.value for record in one.retries(group)] == [b"before", b"after"]
    assert given_up
    assert f"{lane}-0" in given_up[0]
