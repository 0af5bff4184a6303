"""Messages in order: what a listener's answer does to its lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from reconsume.consumers.consume_settings import Limits
from reconsume.consumers.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses
from reconsume.consumers.listeners.orderly import Lane, OrderlyService
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import UNLIMITED
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress
from tests.unit.consumers.doubles import Clock, RecordingWriter, RunsNothing, loop_of, message_at, parts_of, safe_offset

SUCCESS = ConsumeOrderlyStatus.SUCCESS
COMMIT = ConsumeOrderlyStatus.COMMIT
ROLLBACK = ConsumeOrderlyStatus.ROLLBACK
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

Answer = Callable[[list[int], ConsumeOrderlyContext], object]


class Pauses:
    """A Kafka consumer that may be paused."""

    def pause(self, partitions: object) -> None: ...

    def resume(self, partitions: object) -> None: ...


@dataclass
class World(RunsNothing):
    """One partition, a listener that answers as told, and a pool that runs lanes when told to."""

    answer: Answer
    maximum: int | None = None
    batch_size: int = 1
    per_key: bool = False
    dead_letter_on: ExceptionClasses = ()
    clock: Clock = field(default_factory=Clock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    queue: ProcessQueue = field(default_factory=lambda: ProcessQueue("flights", 0))
    calls: list[list[int]] = field(default_factory=list)
    counts: list[list[int]] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.service = OrderlyService(
            **parts_of(self._listener, self.writer, self.clock),
            max_reconsume_times=self.maximum,
            batch_size=self.batch_size,
            dead_letter_on=self.dead_letter_on,
            per_key=self.per_key,
        )
        self.service.pool = self

    def submit(self, lane: Lane) -> None:
        self.lanes.append(lane)

    def read(self, *messages: Message) -> World:
        self.service.accept(self.queue, self.queue.begin(messages))
        return self

    def run(self) -> World:
        """Everything that may run now."""
        while self.lanes:
            self.service.consume(self.lanes.pop(0))
        return self

    def after(self, milliseconds: float) -> World:
        self.clock.now += milliseconds
        self.service.tick()
        return self.run()

    def _listener(self, messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        offsets = [message.kafka.offset for message in messages]
        self.calls.append(offsets)
        self.counts.append([message.reconsume_times for message in messages])
        return self.answer(offsets, context)  # type: ignore[return-value]


def flights(*offsets: int, key: Callable[[int], bytes | None] = lambda _: b"key") -> list[Message]:
    return [message_at(offset, key=key(offset)) for offset in offsets]


def failing(*offsets: int, times: int = 1) -> Answer:
    """Fails batches that begin with one of these, so many times each."""
    left = dict.fromkeys(offsets, times)

    def answer(batch: list[int], _context: ConsumeOrderlyContext) -> object:
        if left.get(batch[0], 0) > 0:
            left[batch[0]] -= 1
            return SUSPEND
        return SUCCESS

    return answer


def always(status: object, auto_commit: bool = True, suspend: int = -1) -> Answer:
    def answer(_batch: list[int], context: ConsumeOrderlyContext) -> object:
        context.auto_commit = auto_commit
        context.suspend_current_queue_time_millis = suspend
        if isinstance(status, BaseException):
            raise status
        return status

    return answer


def test_messages_of_a_partition_come_one_after_the_other() -> None:
    world = World(always(SUCCESS), batch_size=2).read(*flights(0, 1, 2)).run()
    assert world.calls == [[0, 1], [2]]
    assert (world.queue.size, safe_offset(world.queue)) == (0, 3)


@pytest.mark.rule("OR-01", "T-32")
@pytest.mark.parametrize("failure", [SUSPEND, None, ValueError("no dep_time"), SystemExit(1), "SUCCESS"], ids=repr)
def test_whatever_fails_is_given_again_in_its_place_and_nothing_is_sent_back(failure: object) -> None:
    world = World(always(failure), batch_size=2).read(*flights(0, 1, 2)).run()
    assert world.calls == [[0, 1]]
    assert world.service.is_suspended(world.queue)
    world.after(999)
    assert world.calls == [[0, 1]]
    world.after(1)
    assert world.calls == [[0, 1], [0, 1]]
    assert world.counts == [[0, 0], [1, 1]]
    assert world.writer.requests == []
    assert safe_offset(world.queue) == 0


@pytest.mark.rule("OR-02")
@pytest.mark.parametrize(("asked", "waits"), [(-1, 1_000), (1, 10), (0, 10), (-2, 10), (500, 500), (99_999, 30_000)])
def test_the_wait_is_what_the_context_says_within_bounds(asked: int, waits: int) -> None:
    world = World(always(SUSPEND, suspend=asked)).read(*flights(0)).run().after(waits - 1)
    assert len(world.calls) == 1
    assert len(world.after(1).calls) == 2


@pytest.mark.rule("OR-03")
def test_without_a_maximum_a_message_is_tried_for_ever() -> None:
    assert UNLIMITED == 2**31 - 1
    world = World(always(SUSPEND)).read(*flights(0)).run()
    for _ in range(100):
        world.after(1_000)
    assert world.counts[-1] == [100]
    assert world.writer.requests == []


@pytest.mark.rule("OR-04")
def test_the_count_goes_with_the_offset_so_that_a_restart_does_not_begin_at_0() -> None:
    world = World(always(SUSPEND)).read(*flights(5, 6)).run().after(1_000)
    point = world.queue.commit_point()
    assert point is not None
    assert point.offset == 5
    kept = decode_progress(point.offset, point.metadata)
    assert kept == KeptProgress(frozenset(), {5: 2})
    later = World(failing(5, times=1))
    later.queue.keep(kept, 5)
    later.read(*flights(5, 6)).run().after(1_000)
    assert (later.calls, later.counts) == ([[5], [5], [6]], [[2], [3], [0]])
    assert later.queue.commit_point() == (7, ""), "what is finished needs no count"


@pytest.mark.rule("OR-05")
def test_an_exhausted_message_goes_to_the_dead_letter_topic_at_once_and_the_next_waits_for_that() -> None:
    world = World(failing(0, times=9), maximum=2).read(*flights(0, 1)).run().after(1_000).after(1_000)
    assert world.counts == [[0], [1], [2]]
    [request] = world.writer.requests
    assert (request.delay_level, request.stored.reconsume_times, request.max_reconsume_times) == (-1, 2, 2)
    assert world.after(60_000).calls == [[0], [0], [0]], "not acknowledged yet"
    world.writer.waiting.pop()(None)
    assert world.run().calls[-1] == [1]
    assert safe_offset(world.queue) == 2


def test_an_acknowledgement_beside_new_messages_starts_one_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """The acknowledgement comes in the producer's thread, new messages in the polling one."""
    world = World(failing(0), maximum=0).read(*flights(0)).run()
    end, begun = world.service._end, []

    def read_and_begin() -> None:
        lane = world.read(*flights(1, 2, 3)).lanes.pop(0)
        begun.append((lane, world.service._begin(lane)[0]))

    meanwhile = threading.Thread(target=read_and_begin)

    def end_late(lane: Lane) -> None:
        meanwhile.start()
        meanwhile.join(0.3)
        end(lane)

    monkeypatch.setattr(world.service, "_end", end_late)
    world.writer.waiting.pop()(None)
    meanwhile.join()
    [(lane, batch)] = begun
    assert ([message.offset for message in batch], lane.working) == ([1], True)
    assert world.lanes == [], "no second listener while the first works"


@pytest.mark.rule("OR-05")
def test_with_a_maximum_of_0_the_first_failure_is_a_dead_letter() -> None:
    world = World(failing(0, times=9), maximum=0).read(*flights(0)).run()
    assert len(world.writer.requests) == 1


@pytest.mark.rule("OR-05")
def test_a_dead_letter_tells_its_cause() -> None:
    world = World(always(ValueError("no dep_time")), maximum=0).read(*flights(0)).run()
    cause = world.writer.requests[0].cause
    assert cause is not None
    assert (cause.exception_class, cause.message) == ("builtins.ValueError", "no dep_time")


@pytest.mark.rule("OR-06", "T-32")
def test_of_a_batch_the_exhausted_leave_once_and_only_the_others_are_given_again() -> None:
    kept = KeptProgress(frozenset(), {0: 2})
    world = World(failing(0, 1, times=2), maximum=2, batch_size=2)
    world.queue.keep(kept, 0)
    world.read(*flights(0, 1, 2)).run()
    assert (world.calls, world.counts) == ([[0, 1]], [[2, 0]])
    assert world.writer.origins == ["flights/0/0"]
    world.writer.waiting.pop()(None)
    world.after(1_000)
    assert (world.calls[1], world.counts[1]) == ([1, 2], [1, 0])
    assert world.writer.origins == ["flights/0/0"]


@pytest.mark.rule("OR-07")
def test_a_dead_letter_that_is_refused_is_given_to_the_listener_again() -> None:
    world = World(failing(0, times=2), maximum=0)
    world.writer.answers = [SendBackFailed("too large")]
    world.read(*flights(0, 1)).run()
    assert world.calls == [[0]]
    assert world.after(4_999).calls == [[0]], "5 s, as after every refused send-back"
    world.after(1)
    assert (world.calls, world.counts) == ([[0], [0]], [[0], [1]])
    world.writer.waiting.pop()(None)
    assert world.run().calls == [[0], [0], [1]]


@pytest.mark.rule("OR-08")
@pytest.mark.parametrize("status", [SUCCESS, COMMIT, ROLLBACK])
def test_with_auto_commit_all_but_suspend_acknowledge(status: ConsumeOrderlyStatus) -> None:
    world = World(always(status)).read(*flights(0, 1)).run()
    assert world.calls == [[0], [1]]
    assert safe_offset(world.queue) == 2


@pytest.mark.rule("OR-09")
def test_without_auto_commit_success_waits_for_a_commit() -> None:
    world = World(always(SUCCESS, auto_commit=False)).read(*flights(0, 1)).run()
    assert world.calls == [[0], [1]]
    assert safe_offset(world.queue) == 0
    world.answer = always(COMMIT, auto_commit=False)
    world.read(*flights(2)).run()
    assert safe_offset(world.queue) == 3


@pytest.mark.rule("OR-09")
def test_without_auto_commit_a_rollback_gives_all_again_that_was_not_committed() -> None:
    world = World(always(SUCCESS, auto_commit=False)).read(*flights(0, 1)).run()
    world.answer = always(ROLLBACK, auto_commit=False)
    world.read(*flights(2)).run()
    assert world.calls == [[0], [1], [2]]
    world.answer = always(COMMIT, auto_commit=False)
    world.after(1_000)
    assert world.calls[3:] == [[0], [1], [2]]
    assert world.counts[3:] == [[0], [0], [0]], "a rollback is no failure"
    assert safe_offset(world.queue) == 3


@pytest.mark.parametrize("last", [SUCCESS, COMMIT])
def test_a_full_partition_that_waits_for_commit_is_told_unless_it_gets_room(
    last: ConsumeOrderlyStatus, caplog: pytest.LogCaptureFixture
) -> None:
    """What a COMMIT leaves open does not stop the reading."""

    class Drains(World):
        def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
            del is_full, seconds
            self.answer = always(last, auto_commit=False)
            self.run()

    world = Drains(always(SUCCESS, auto_commit=False), per_key=True)
    world.read(*flights(0, 1, key=lambda offset: b"%d" % offset))
    world.service.consume(world.lanes.pop(0))
    limits = Limits(queue_records=2, queue_bytes=1_000, max_span=2_000, timeout_ms=1_000, await_termination_seconds=0)
    partitions = loop_of(Pauses(), world.service, world.service.sender, limits=limits).partitions
    partitions.queues[world.queue.where] = world.queue
    for _ in range(2):
        partitions.pause_and_resume()
    told = [text for text in caplog.messages if "COMMIT" in text]
    assert len(told) == (1 if last is SUCCESS else 0), told


@pytest.mark.rule("OR-11")
def test_a_lane_is_in_the_pool_once_however_often_it_is_fed() -> None:
    world = World(always(SUCCESS)).read(*flights(0)).read(*flights(1)).read(*flights(2))
    assert len(world.lanes) == 1


@pytest.mark.rule("OR-13", "EX-07")
def test_there_is_no_timeout() -> None:
    def answer(_batch: list[int], _context: ConsumeOrderlyContext) -> object:
        world.service.expire(world.queue, 0)
        return SUCCESS

    world = World(answer)
    world.read(*flights(0)).run()
    assert world.writer.requests == []
    assert safe_offset(world.queue) == 1


@pytest.mark.rule("OR-14")
def test_a_partition_is_given_away_only_when_no_listener_works_on_it() -> None:
    left: list[bool] = []

    def answer(_batch: list[int], _context: ConsumeOrderlyContext) -> object:
        world.queue.drop()
        left.append(world.service.leave([world.queue], lambda: 0))
        return SUCCESS

    world = World(answer)
    world.read(*flights(0, 1)).run()
    assert left == [False]
    assert world.service.leave([world.queue], lambda: 0)
    assert world.calls == [[0]], "nothing new begins on it"
    assert safe_offset(world.queue) == 1, "what was done while it left is done"


@pytest.mark.rule("OR-11", "OR-14")
def test_a_partition_that_was_lost_and_comes_back_waits_for_the_listener_that_still_runs() -> None:
    again, began, alone = ProcessQueue("flights", 0), list[int](), list[bool]()

    def answer(_batch: list[int], _context: ConsumeOrderlyContext) -> object:
        if not began:
            world.queue.drop()
            world.service.leave([world.queue], lambda: 0)
            world.service.accept(again, again.begin(flights(0, 1)))
            began.append(len(world.lanes))
            alone.append(world.service.leave([again], lambda: 0))
            world.service.accept(again, flights(0, 1))
        return SUCCESS

    world = World(answer)
    world.read(*flights(0)).run()
    assert began == [0], "nobody is called for it yet"
    assert alone == [False], "nor has it left with the newer messages"
    assert world.calls == [[0], [0], [1]]
    assert safe_offset(again) == 2


@pytest.mark.rule("OR-14")
def test_a_failure_that_comes_after_the_partition_went_holds_up_nobody() -> None:
    def answer(_batch: list[int], _context: ConsumeOrderlyContext) -> object:
        world.queue.drop()
        world.service.leave([world.queue], lambda: 0)
        return SUSPEND

    world = World(answer, maximum=0)
    world.read(*flights(0)).run()
    again = ProcessQueue("flights", 0)
    assert not world.service.is_suspended(again)
    assert world.writer.requests == [], "the next owner decides"
    world.answer = always(SUCCESS)
    world.service.accept(again, again.begin(flights(0)))
    world.run()
    assert safe_offset(again) == 1


def by_parity(offset: int) -> bytes:
    return b"odd" if offset % 2 else b"even"


def test_in_key_order_a_failing_key_holds_up_its_followers_and_nobody_else() -> None:
    world = World(failing(0, times=1), per_key=True).read(*flights(0, 1, 2, 3, key=by_parity)).run()
    assert world.calls == [[0], [1], [3]]
    assert not world.service.is_suspended(world.queue), "the other keys are read on"
    assert world.read(*flights(4, 5, key=by_parity)).run().calls[3:] == [[5]]
    point = world.queue.commit_point()
    assert point is not None
    assert decode_progress(point.offset, point.metadata) == KeptProgress(frozenset({1, 3, 5}), {0: 1})
    world.after(1_000)
    assert world.calls[4:] == [[0], [2], [4]]
    assert safe_offset(world.queue) == 6


def test_in_key_order_messages_without_a_key_wait_for_nobody() -> None:
    world = World(failing(0, times=1), per_key=True).read(*flights(0, 1, 2, key=lambda _: None)).run()
    assert world.calls == [[0], [1], [2]]
    assert world.after(1_000).calls[3:] == [[0]]


def test_in_key_order_keys_that_are_done_cost_no_memory() -> None:
    world = World(always(SUCCESS), per_key=True)
    world.read(*flights(*range(100), key=lambda offset: b"%d" % offset)).run()
    assert world.service._lanes == {}
