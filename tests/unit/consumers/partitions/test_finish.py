"""A shutdown polls on while listeners run, and commits until the group takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.membership import MembershipLost
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.consume_settings import Limits
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from reconsume.consumers.push_consumer import PushConsumer
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import PlainSender
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.unit.consumers import doubles
from tests.unit.consumers.doubles import Clock, RecordingWriter, message_at, service_of

FLIGHTS = ("flights", 0)
NEW = ("flights", 1)
LATER = "commit, to be answered"


@dataclass
class Group:
    """A consumer that is polled, a pool whose one listener runs for some polls, and a commit that may be refused.

    Attributes:
        runs_for: polls until the listener comes back.
        refusals: how often committing is refused.
        on_poll: called in each poll.
        events: what happened, in order.
    """

    runs_for: int = 0
    refusals: int = 0
    on_poll: Callable[[], None] = lambda: None
    events: list[str] = field(default_factory=list)
    record: KafkaMessage | None = None

    def poll(self, _timeout: float) -> KafkaMessage | None:
        self.events.append("poll")
        self.runs_for -= 1
        self.on_poll()
        return self.record

    def subscribe(self, _topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.on_assign = callbacks["on_assign"]

    def memberid(self) -> str:
        return ""

    def consumer_group_metadata(self) -> None: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.events += [f"pause {one.topic}-{one.partition}" for one in partitions]

    def committed(self, partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        return partitions

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        if asynchronous:
            self.events.append(LATER)
            return None
        self.refusals -= 1
        if self.refusals >= 0:
            error = KafkaError(KafkaError.ILLEGAL_GENERATION)
            return [cast("Any", Refused(one.topic, one.partition, error)) for one in offsets]
        self.events += [f"commit {one.topic}-{one.partition} {one.offset}" for one in offsets]
        return offsets

    def close(self, _seconds: float = 0) -> bool:
        self.events.append("close")
        return True

    def submit(self, chunk: Chunk) -> None:
        self.events += [f"begin {one.offset}" for one in chunk]

    def stop(self) -> None:
        self.events.append("stop")

    def is_working(self) -> bool:
        return self.runs_for > 0


@dataclass
class Refused:
    topic: str
    partition: int
    error: KafkaError


class Written:
    """Everything that was sent back."""

    def flush(self, _seconds: float) -> int:
        return 0


def sending(group: Group) -> dict[str, Any]:
    consumer = GroupConsumer({}, lambda _settings: cast("Any", group))
    return {"log": SendBackLog("departures"), "writer": Written(), "consumer": consumer}


def loop_of(group: Group, await_seconds: float = 60) -> ConsumeLoop:
    service = service_of(lambda _messages, _context: None, RecordingWriter(), Clock())
    service.pool = cast("Any", group)
    sender = PlainSender(**sending(group))
    limits = Limits(1_000, 1_000_000, 2_000, 900_000, await_seconds)
    loop = doubles.loop_of(group, service, sender, limits=limits)
    loop.partitions.assigned([FLIGHTS])
    return loop


def queue_of(loop: ConsumeLoop, partition: int = 0) -> ProcessQueue:
    return loop.partitions.queues["flights", partition]


def done(loop: ConsumeLoop, offset: int) -> None:
    message = message_at(offset)
    queue_of(loop).begin([message])
    queue_of(loop).finish(message)


@pytest.mark.rule("FC-09")
def test_it_polls_until_the_listener_is_back_and_then_commits() -> None:
    group = Group(runs_for=3)
    loop = loop_of(group)
    group.on_poll = lambda: done(loop, 7) if group.runs_for == 0 else None
    loop.finish()
    assert group.events == ["stop", "pause flights-0", "poll", "poll", "poll", "commit flights-0 8"]


def test_what_finishes_meanwhile_is_committed_meanwhile_and_the_last_commit_is_waited_for() -> None:
    group = Group(runs_for=2)
    loop = loop_of(group)
    done(loop, 7)
    loop.finish()
    assert group.events == ["stop", "pause flights-0", "poll", LATER, "poll", "commit flights-0 8"]


def test_what_is_read_meanwhile_is_not_begun() -> None:
    group = Group(runs_for=2, record=KafkaMessage(topic="flights", partition=0, offset=9, value=b"body"))
    loop = loop_of(group)
    loop.finish()
    assert not [event for event in group.events if event.startswith(("begin", "commit"))]


def test_a_partition_that_comes_meanwhile_is_not_read() -> None:
    group = Group(runs_for=3)
    loop = loop_of(group)
    group.on_poll = lambda: loop.partitions.assigned([NEW]) if group.runs_for == 1 else None
    loop.finish()
    assert group.events.count("pause flights-1") == 1


def test_a_commit_that_a_rebalance_refuses_is_tried_again_after_a_poll() -> None:
    group = Group(refusals=2)
    loop = loop_of(group)
    done(loop, 7)
    loop.finish()
    assert group.events == ["stop", "pause flights-0", "poll", "poll", "commit flights-0 8"]


def test_it_waits_no_longer_than_it_may() -> None:
    group = Group(runs_for=1_000_000)
    loop = loop_of(group, await_seconds=0.05)
    loop.finish()
    assert group.runs_for > 0
    assert group.events[-1] == "poll"


def test_the_consumer_is_closed_even_if_the_last_commit_fails() -> None:
    class Broken(PlainSender):
        def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> None:
            del queues, seconds
            raise RuntimeError("no commit")

    group = Group()
    loop = loop_of(group)
    loop._sender = loop.partitions.sender = Broken(**sending(group))
    with pytest.raises(RuntimeError, match="no commit"):
        loop.end()
    assert group.events[-1] == "close"


class LateAssignment(Group):
    """A consumer that serves a waiting assignment while it closes, when librdkafka has ended its group."""

    is_closing = False

    def consumer_group_metadata(self) -> None:
        if self.is_closing:
            raise RuntimeError("Consumer group metadata not available")

    def close(self, *seconds: float) -> bool:
        if not seconds:  # as the pool, it gets some
            self.is_closing = True
            self.on_assign(self, [TopicPartition(*NEW)])
        return super().close()


def test_an_assignment_that_comes_with_the_close_ends_nothing() -> None:
    group = LateAssignment()
    loop = loop_of(group)
    loop.begin()
    loop.end()
    assert group.events[-1] == "close"


@pytest.mark.parametrize(("max_poll_seconds", "for_brokers"), [(5, 4.5), (300, 5)])
def test_the_commit_of_a_rebalance_has_the_time_that_listeners_leave(
    max_poll_seconds: float, for_brokers: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, given = loop_of(Group()), list[float]()
    conf = {"max.poll.interval.ms": int(max_poll_seconds * 1_000), "session.timeout.ms": 4_000}
    loop.partitions.settings = PushConsumer("departures", conf=conf)._settings
    monkeypatch.setattr(loop.partitions.sender, "leave", lambda _queues, seconds: given.append(seconds))
    loop.partitions.revoked([FLIGHTS])
    assert given == [pytest.approx(for_brokers, abs=0.1)]


def test_a_stop_shortens_the_wait_of_a_rebalance_for_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """They get the time of a shutdown, once: for the rebalance and for the end together."""
    group, left = Group(), list[float]()
    loop = loop_of(group, await_seconds=10)
    partitions = loop.partitions

    def leave(_queues: object, seconds_left: Callable[[], float]) -> bool:
        left.append(seconds_left())
        partitions.stop.set()
        left.append(seconds_left())
        return True

    monkeypatch.setattr(partitions.service, "leave", leave)
    partitions.revoked([FLIGHTS])
    assert left[0] > 100
    assert 9 < left[1] <= 10
    deadline = partitions.finish_by
    loop.finish()
    assert partitions.finish_by == deadline


def test_an_error_of_the_end_does_not_hide_why_the_loop_ended(caplog: pytest.LogCaptureFixture) -> None:
    """The consumer restarts after `MembershipLost`."""
    group = Group()
    loop = loop_of(group)
    loop._connections = cast("Any", SimpleNamespace(check=raiser(KafkaNotReachable("no connection"))))
    loop._sender = cast("Any", SimpleNamespace(leave=raiser(RuntimeError("no commit")), close=lambda: None))
    with pytest.raises(MembershipLost, match="no connection"):
        loop.run(threading.Event())
    assert group.events[-1] == "close"
    assert "no commit" in caplog.text


def raiser(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("ends_with", ["assigned", "revoked"])
def test_all_is_committed_before_a_rebalance_goes_on(ends_with: str) -> None:
    """A member that waits for its group cannot commit, and may be killed meanwhile."""
    group = Group()
    loop = loop_of(group)
    loop.partitions.assigned([NEW])
    done(loop, 7)
    getattr(loop.partitions, ends_with)([NEW] if ends_with == "revoked" else [])
    assert group.events == [LATER]
