"""What goes into one transaction, and what becomes of messages whose transaction fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from reconsume.bridge.writing.exactly_once import Failed, Offsets, OutcomeUnknown
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import FailedMessage
from reconsume.consumers.sending.transactional_sender import TransactionalSender
from reconsume.delay_levels.errors import GroupIsFull, KafkaNotReachable, PartitionLost, ReconsumeError, SendBackFailed
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.consumers.doubles import message_at

Written = tuple[list[str], dict[tuple[str, int], tuple[int, KeptProgress]], object]


@dataclass
class Kafka:
    """An ExactlyOnceWriter that does as it is told.

    Attributes:
        errors: what the next transactions fail with.
        refused: bodies that no broker takes.
        alone: happens before a message is written alone.
        full: whether the group has reached its `maxWaiting`.
        written: what was committed: origins, offsets, the group metadata.
        answers: what the next look-ups of a transaction give, or fail with.
        asked: of which partitions they were.
        known: what the sender has told of its commits.
        open: while it is cleared, transactions wait.
        lost: happens before a look-up finds a partition lost.
        most: how many messages the brokers take in time.
        slowly: what becomes of a larger transaction, after ten seconds.
        now: milliseconds that have passed.
    """

    errors: list[Exception] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    alone: Callable[[], None] = lambda: None
    full: bool = False
    written: list[Written] = field(default_factory=list)
    answers: list[bool | Exception] = field(default_factory=list)
    asked: list[set[tuple[str, int]]] = field(default_factory=list)
    known: dict[tuple[str, int], int] = field(default_factory=dict)
    tried: int = 0
    open: threading.Event = field(default_factory=threading.Event)
    generation: int = 1
    lost: Callable[[], None] = lambda: None
    most: int = 500
    slowly: ReconsumeError = field(default_factory=lambda: KafkaNotReachable("too slow"))
    now: float = 0.0

    def metadata(self) -> int:
        return self.generation

    def send_back(self, failed: Sequence[Failed], offsets: Offsets, metadata: Any) -> None:
        self.tried += 1
        assert self.open.wait(PATIENCE)
        if len(failed) == 1:
            self.alone()
        if len(failed) > self.most:
            self.now += 10_000
            raise self.slowly
        unknown = None
        if self.errors:
            unknown = self.errors.pop(0)
            if not (isinstance(unknown, OutcomeUnknown) and True in self.answers):
                raise unknown
        if self.full and any(one.request.stored.reconsume_times == 0 for one in failed):
            raise GroupIsFull("the limit is 1")
        if any(one.value in self.refused for one in failed):
            raise SendBackFailed("too large")
        origins = [one.request.stored.origin_message_id for one in failed]
        positions = {where: (one.offset, decode_progress(*one)) for where, one in offsets.items()}
        self.written.append((origins, positions, metadata))
        if unknown is not None:
            raise unknown

    def was_committed(self, offsets: Offsets) -> bool:
        self.asked.append(set(offsets))
        answer = self.answers.pop(0)
        if isinstance(answer, PartitionLost):
            self.lost()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def note(self, offsets: Offsets) -> None:
        self.known |= {where: one.offset for where, one in offsets.items()}

    @property
    def sent(self) -> list[str]:
        return [origin for origins, _, _ in self.written for origin in origins]


@dataclass
class Results:
    """What `on_done` was told, by offset; finishes as the services do."""

    queue: ProcessQueue
    told: dict[int, SendBackFailed | None] = field(default_factory=dict)


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    one = Kafka()
    one.open.set()
    yield one
    one.open.set()


@pytest.fixture
def sender(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[TransactionalSender]:
    monkeypatch.setattr("reconsume.consumers.sending.transactional_sender._AGAIN_SECONDS", 0.05)
    one = sender_of(kafka, kafka.metadata)
    with polled(one):
        yield one
        kafka.open.set()
    one.close()


def sender_of(kafka: Kafka, group_metadata: Callable[[], Any]) -> TransactionalSender:
    return TransactionalSender(
        log=SendBackLog("departures"),
        writer=cast("Any", kafka),
        group_metadata=group_metadata,
        known=cast("Any", kafka),
        elapsed=lambda: kafka.now,
    )


@contextmanager
def polled(sender: TransactionalSender) -> Iterator[None]:
    """A thread that turns as the poll loop does."""
    stop = threading.Event()

    def turn() -> None:
        while not stop.wait(0.001):
            sender.serve()

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def queue_of(count: int, partition: int = 0) -> ProcessQueue:
    queue = ProcessQueue("flights", partition)
    queue.begin([message_at(offset, partition=partition, body=b"%d" % offset) for offset in range(count)])
    return queue


def fail(sender: TransactionalSender, queue: ProcessQueue, *offsets: int, body: bytes = b"%d") -> Results:
    results = Results(queue)
    for offset in offsets:
        value = body % offset if b"%d" in body else body
        message = message_at(offset, partition=queue.partition, body=value)

        def done(failed: FailedMessage, error: SendBackFailed | None) -> None:
            results.told[failed.message.offset] = error
            if error is None:
                queue.finish(failed.message)

        FailedMessage(queue, message, 0, None, None, done).begin(sender)
    return results


def test_a_send_back_and_the_offset_after_it_are_one(kafka: Kafka, sender: TransactionalSender) -> None:
    queue = queue_of(1)
    results = fail(sender, queue, 0)
    wait_until(lambda: results.told, "it is sent back")
    assert results.told == {0: None}
    assert kafka.written == [(["flights/0/0"], {("flights", 0): (1, KeptProgress())}, 1)]
    assert queue.to_commit is None
    assert kafka.known == {("flights", 0): 1}


def test_one_behind_an_unfinished_message_is_noted_beside_the_offset(kafka: Kafka, sender: TransactionalSender) -> None:
    results = fail(sender, queue_of(3), 2)
    wait_until(lambda: results.told, "it is sent back")
    assert kafka.written == [(["flights/0/2"], {("flights", 0): (0, KeptProgress(frozenset({2})))}, 1)]


def test_what_fails_while_a_transaction_is_written_goes_into_the_next_all_of_it(
    kafka: Kafka, sender: TransactionalSender
) -> None:
    kafka.open.clear()
    first, second = queue_of(3), queue_of(3, partition=1)
    fail(sender, first, 0)
    wait_until(lambda: kafka.tried == 1, "a transaction is open")
    fail(sender, first, 1, 2)
    results = fail(sender, second, 0, 1)
    kafka.open.set()
    wait_until(lambda: len(results.told) == 2, "all are sent back")
    assert [origins for origins, _, _ in kafka.written] == [
        ["flights/0/0"],
        ["flights/0/1", "flights/0/2", "flights/1/0", "flights/1/1"],
    ]
    assert kafka.written[1][1] == {("flights", 0): (3, KeptProgress()), ("flights", 1): (2, KeptProgress())}


def test_what_succeeded_is_committed_in_a_transaction_too(kafka: Kafka, sender: TransactionalSender) -> None:
    queue = queue_of(2)
    queue.finish(message_at(0))
    sender.commit([queue])
    wait_until(lambda: kafka.written, "it is committed")
    assert kafka.written == [([], {("flights", 0): (1, KeptProgress())}, 1)]
    sender.commit([queue])
    assert queue.to_commit is None


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "undone"])
def test_what_may_have_been_written_is_looked_up_before_anything_else_is(
    *, committed: bool, kafka: Kafka, sender: TransactionalSender
) -> None:
    kafka.errors = [OutcomeUnknown({}, KafkaNotReachable("no answer"))]
    kafka.answers = [KafkaNotReachable("away"), committed]
    queue = queue_of(2)
    first = fail(sender, queue, 0)
    wait_until(lambda: kafka.tried == 1, "it is tried")
    later = fail(sender, queue, 1)
    wait_until(lambda: first.told and later.told, "both are sent back")
    assert (first.told, later.told) == ({0: None}, {1: None})
    assert sorted(kafka.sent) == ["flights/0/0", "flights/0/1"], "each once"
    assert kafka.answers == []
    assert queue.to_commit is None


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "undone"])
def test_partitions_that_went_meanwhile_tell_nothing_of_a_transaction(*, committed: bool, kafka: Kafka) -> None:
    """Their next owners may have committed there, so what stands there now is no answer."""
    kafka.errors = [OutcomeUnknown({}, KafkaNotReachable("no answer"))]
    kafka.answers = [PartitionLost("somebody else has committed for some of them"), committed]
    gone, kept = queue_of(1), queue_of(1, partition=1)

    def goes() -> None:
        gone.drop()
        one.forget([gone])

    kafka.lost = goes
    one = sender_of(kafka, kafka.metadata)
    first, second = fail(one, gone, 0), fail(one, kept, 0)
    with polled(one):
        wait_until(lambda: second.told, "the one that is still ours is sent back")
        one.close()
    assert kafka.asked == [{("flights", 0), ("flights", 1)}, {("flights", 1)}]
    assert kafka.sent == (["flights/0/0", "flights/1/0"] if committed else ["flights/1/0"])
    assert first.told == ({0: None} if committed else {})


def test_nothing_is_asked_of_a_transaction_whose_partitions_are_all_gone(
    kafka: Kafka, sender: TransactionalSender
) -> None:
    kafka.errors = [OutcomeUnknown({}, KafkaNotReachable("no answer"))]
    kafka.open.clear()
    gone = queue_of(1)
    results = fail(sender, gone, 0)
    wait_until(lambda: kafka.tried == 1, "a transaction is open")
    sender.forget([gone])
    kafka.open.set()
    later = fail(sender, queue_of(1, partition=1), 0)
    wait_until(lambda: later.told, "another partition goes on")
    assert (kafka.asked, kafka.sent, results.told) == ([], ["flights/1/0"], {})


def test_an_offset_that_stands_there_already_is_not_committed_again(kafka: Kafka, sender: TransactionalSender) -> None:
    """It would look committed, whatever became of the transaction."""
    kafka.open.clear()
    queue, other = queue_of(2), queue_of(1, partition=1)
    first = fail(sender, queue, 0)
    wait_until(lambda: kafka.tried == 1, "a transaction is open")
    sender.commit([queue])
    results = fail(sender, other, 0)
    queue.finish(message_at(0))
    sender.commit([queue])
    kafka.open.set()
    wait_until(lambda: first.told and results.told, "both are sent back")
    assert [set(positions) for _, positions, _ in kafka.written] == [{("flights", 0)}, {("flights", 1)}]


def test_at_a_shutdown_what_is_not_known_is_left(kafka: Kafka, sender: TransactionalSender) -> None:
    kafka.errors = [OutcomeUnknown({}, KafkaNotReachable("no answer"))]
    kafka.answers = [KafkaNotReachable("away")] * 1_000
    queue = queue_of(1)
    results = fail(sender, queue, 0)
    wait_until(lambda: kafka.tried == 1, "it is tried")
    assert not sender.settle([queue], 0.2)
    sender.leave([queue], 0.01)
    assert (results.told, kafka.sent, kafka.tried) == ({}, [], 1)


@pytest.mark.parametrize("error", [PartitionLost("rebalanced"), KafkaNotReachable("away")], ids=repr)
def test_what_was_not_written_is_tried_again(error: ReconsumeError, kafka: Kafka, sender: TransactionalSender) -> None:
    kafka.errors = [error]
    results = fail(sender, queue_of(2), 0, 1)
    wait_until(lambda: len(results.told) == 2, "both are sent back")
    assert sorted(kafka.sent) == ["flights/0/0", "flights/0/1"]
    assert results.told == {0: None, 1: None}


@pytest.mark.parametrize(
    "slowly", [KafkaNotReachable("too slow"), OutcomeUnknown({}, KafkaNotReachable("no answer"))], ids=repr
)
def test_a_transaction_that_cannot_be_written_in_time_is_followed_by_smaller_ones(
    slowly: ReconsumeError, kafka: Kafka
) -> None:
    kafka.most, kafka.slowly, kafka.answers = 2, slowly, [False] * 10
    one = sender_of(kafka, kafka.metadata)
    results = fail(one, queue_of(8), *range(8))
    with polled(one):
        wait_until(lambda: len(results.told) == 8, "all are sent back")
        one.close()
    assert sorted(kafka.sent) == [f"flights/0/{offset}" for offset in range(8)], "each once"
    assert set(results.told.values()) == {None}
    assert kafka.tried < 12, "it learns"


def test_after_quick_transactions_they_are_large_again(kafka: Kafka) -> None:
    kafka.most = 2
    one = sender_of(kafka, kafka.metadata)
    first = fail(one, queue_of(8), *range(8))
    with polled(one):
        wait_until(lambda: len(first.told) == 8, "all are sent back")
        kafka.most, later = 500, queue_of(1_500, partition=1)
        second = fail(one, later, *range(1_500))
        wait_until(lambda: len(second.told) == 1_500, "all are sent back")
        one.close()
    assert max(len(origins) for origins, _, _ in kafka.written) > 250


def test_large_messages_go_a_few_at_a_time_and_one_larger_than_the_limit_alone(kafka: Kafka) -> None:
    one = sender_of(kafka, kafka.metadata)
    fail(one, queue_of(8), *range(8), body=b"x" * 1_500_000)
    fail(one, queue_of(1, partition=1), 0, body=b"x" * 5_000_000)
    with polled(one):
        wait_until(lambda: len(kafka.sent) == 9, "all are sent back")
        one.close()
    assert [len(origins) for origins, _, _ in kafka.written] == [2, 2, 2, 2, 1]


def test_one_that_is_refused_is_told_and_the_others_do_not_suffer(kafka: Kafka, sender: TransactionalSender) -> None:
    kafka.refused = {b"1"}
    kafka.open.clear()
    queue = queue_of(4)
    results = fail(sender, queue, 0, 1, 2)
    kafka.open.set()
    wait_until(lambda: len(results.told) == 3, "all are told")
    assert {offset: error is None for offset, error in results.told.items()} == {0: True, 1: False, 2: True}
    assert sorted(kafka.sent) == ["flights/0/0", "flights/0/2"]
    assert queue.commit_point() == (1, kafka_note(queue)), "the refused one is not done"


def fail_together(kafka: Kafka, sender: TransactionalSender, count: int, retries: int = 0) -> Results:
    """Let messages fail during another transaction, so that they are one batch; the last ones again."""
    kafka.open.clear()
    fail(sender, queue_of(1, partition=1), 0, body=b"before")
    wait_until(lambda: kafka.tried == 1, "a transaction is open")
    results = fail(sender, queue_of(count), *range(count))
    for one in sender._pending[count - retries :]:
        one.request = one.request._replace(stored=one.request.stored._replace(reconsume_times=1))
    kafka.full = retries > 0
    kafka.open.set()
    return results


@pytest.mark.parametrize("error", [PartitionLost("rebalanced"), KafkaNotReachable("away")], ids=repr)
def test_an_outage_after_a_refusal_is_met_once_and_not_by_each_message(
    error: ReconsumeError, kafka: Kafka, sender: TransactionalSender
) -> None:
    def alone() -> None:
        if kafka.tried > 4:
            raise error

    kafka.refused, kafka.alone = {b"0"}, alone
    results = fail_together(kafka, sender, 100)
    wait_until(lambda: len(results.told) == 100, "all are told")
    assert kafka.tried == 6, "before, all, 0, 1, 2 which meets the outage, and all others"
    assert sorted(kafka.sent) == sorted(["flights/1/0", *(f"flights/0/{one}" for one in range(1, 100))]), "each once"
    assert [offset for offset, told in results.told.items() if told is not None] == [0]


def test_a_shutdown_waits_for_one_message_of_a_refused_batch(kafka: Kafka, sender: TransactionalSender) -> None:
    kafka.refused, kafka.alone = {b"0"}, lambda: time.sleep(0.2)
    results = fail_together(kafka, sender, 100)
    wait_until(lambda: results.told, "they are sent one by one")
    tried = kafka.tried
    sender.close()
    assert kafka.tried - tried <= 2, "one may begin before it is told to end"
    assert len(sender._pending) + len(results.told) == 100, "the others stay uncommitted"


def test_a_rebalance_waits_no_longer_than_it_said_for_a_refused_batch(kafka: Kafka) -> None:
    """The polling thread writes it, message by message; the others are read again by the next owner."""
    kafka.refused, kafka.alone = {b"0"}, lambda: time.sleep(0.1)
    sender, queue = sender_of(kafka, kafka.metadata), queue_of(100)
    results = fail(sender, queue, *range(100))
    queue.drop()
    sender.leave([queue], 0.2)
    sender.close()
    assert 1 <= len(results.told) < 50
    assert kafka.tried == 1 + len(results.told), "all together, then one by one"


def test_retries_of_a_full_group_stay_one_transaction(kafka: Kafka, sender: TransactionalSender) -> None:
    """They make room, and one first failure among them must not slow them down."""
    results = fail_together(kafka, sender, 100, retries=99)
    wait_until(lambda: len(results.told) == 100, "all are told")
    assert isinstance(results.told[0], GroupIsFull)
    assert kafka.written[-1][0] == [f"flights/0/{one}" for one in range(1, 100)]
    assert kafka.tried == 4, "before, all, the retries, the first failure"


def kafka_note(queue: ProcessQueue) -> str:
    point = queue.commit_point()
    assert point is not None
    assert decode_progress(point.offset, point.metadata).done == {2}
    return point.metadata


def test_a_partition_that_leaves_is_settled_before_it_goes(kafka: Kafka, sender: TransactionalSender) -> None:
    queue, other = queue_of(3), queue_of(1, partition=1)
    kafka.open.clear()
    fail(sender, other, 0)
    wait_until(lambda: kafka.tried == 1, "a transaction is open")
    results = fail(sender, queue, 0)
    queue.finish(message_at(1))
    queue.drop()
    threading.Timer(0.05, kafka.open.set).start()
    sender.leave([queue], 10)
    assert results.told == {0: None}
    assert kafka.written[-1][1][("flights", 0)] == (2, KeptProgress())


def test_what_cannot_be_settled_in_time_is_given_up(
    kafka: Kafka, sender: TransactionalSender, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.errors = [KafkaNotReachable("away")] * 100
    queue = queue_of(1)
    results = fail(sender, queue, 0)
    queue.drop()
    sender.leave([queue], 0.2)
    told = "1 failed messages were not sent back before their partitions moved"
    wait_until(lambda: told in caplog.text, "the warning")
    kafka.errors = []
    fail_later = fail(sender, queue_of(1, partition=1), 0)
    wait_until(lambda: fail_later.told, "another partition goes on")
    assert (kafka.sent, results.told) == (["flights/1/0"], {})


def test_what_is_in_a_transaction_when_it_is_given_up_is_told_too(
    kafka: Kafka, sender: TransactionalSender, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.open.clear()
    kafka.errors = [KafkaNotReachable("away")]
    queue = queue_of(1)
    fail(sender, queue, 0)
    wait_until(lambda: kafka.tried == 1, "its transaction is open")
    queue.drop()
    sender.leave([queue], 0.01)
    kafka.open.set()
    told = "1 failed messages were not sent back before their partitions moved"
    wait_until(lambda: told in caplog.text, "the warning")
    assert kafka.sent == []


def test_nothing_is_sent_for_a_partition_that_is_lost(kafka: Kafka, sender: TransactionalSender) -> None:
    kafka.open.clear()
    first, lost = queue_of(1, partition=1), queue_of(2)
    fail(sender, first, 0)
    wait_until(lambda: kafka.tried == 1, "a transaction is open")
    fail(sender, lost, 0)
    sender.forget([lost])
    results = fail(sender, lost, 1)
    kafka.open.set()
    fail_later = fail(sender, queue_of(1, partition=2), 0)
    wait_until(lambda: fail_later.told, "a later one is sent back")
    assert sorted(kafka.sent) == ["flights/1/0", "flights/2/0"]
    assert results.told == {}


def test_the_metadata_is_taken_before_the_messages_are(kafka: Kafka) -> None:
    """Else a partition could be lost between the two, and its messages would go out with the new generation."""
    queue = queue_of(1)
    asked: list[int] = []

    def metadata() -> int:
        asked.append(queue.size)
        if len(asked) == 1:
            one.forget([queue])
        return 1

    one = sender_of(kafka, metadata)
    with polled(one):
        fail(one, queue, 0)
        later = fail(one, queue_of(1, partition=1), 0)
        wait_until(lambda: later.told, "the other is sent back")
    one.close()
    assert kafka.sent == ["flights/1/0"]


def test_an_unexpected_end_is_told_to_the_poll_loop(kafka: Kafka, sender: TransactionalSender) -> None:
    kafka.errors = [RuntimeError("a bug")]
    fail(sender, queue_of(1), 0)
    sender._thread.join(PATIENCE)
    with pytest.raises(RuntimeError, match="a bug"):
        sender.commit([])
