"""What hooks are told, and that they change nothing."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from reconsume.bridge.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumeReturnType,
    Message,
    MessageQueue,
    PushConsumer,
    SendBackTarget,
    SendMessageBackContext,
)
from reconsume.consumers.concurrently import ConcurrentlyService
from reconsume.consumers.hooked_sender import HookedSender, way_of
from reconsume.consumers.hooks import ConsumeHooks
from reconsume.consumers.listener import Listener, OrderlyListener
from reconsume.consumers.listener_pool import Chunk
from reconsume.consumers.orderly import Lane, OrderlyService
from reconsume.consumers.process_queue import ProcessQueue
from reconsume.delay_levels.errors import IllegalSetting, SendBackFailed
from reconsume.delay_levels.names import TopicNames
from reconsume.delay_levels.send_back import SendBackRequest
from tests.unit.consumers.doubles import RETRY_TOPIC, Clock, RecordingWriter, chunk_of, message_at, safe_offset

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
TIMEOUT_MS = 900_000.0


@dataclass
class Recording(ConsumeMessageHook):
    """Remembers what it was told; `order` is shared with others."""

    name: str = "hook"
    order: list[str] = field(default_factory=list)
    before: list[ConsumeMessageContext] = field(default_factory=list)
    after: list[ConsumeMessageContext] = field(default_factory=list)
    sent_back: list[SendMessageBackContext] = field(default_factory=list)

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        self.order.append(f"before {self.name}")
        self.before.append(context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.order.append(f"after {self.name}")
        self.after.append(context)

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        self.order.append(f"sent back {self.name}")
        self.sent_back.append(context)


class Raising(ConsumeMessageHook):
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        raise self.error(context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        raise self.error(context)

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        raise self.error(context)


@dataclass
class World:
    """A service with hooks, on doubles; `clock` counts for hooks and service alike."""

    hooks: Sequence[ConsumeMessageHook]
    clock: Clock = field(default_factory=Clock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    groups: Groups = field(default_factory=Groups)

    def __post_init__(self) -> None:
        self.dispatcher = ConsumeHooks("departures", self.hooks, TIMEOUT_MS, self.clock)
        self.sender = HookedSender(self.writer, self.dispatcher, lambda request: way_of(request, self.groups))

    def concurrently(self, listener: Listener, maximum: int | None = None) -> ConcurrentlyService:
        return ConcurrentlyService(
            "departures",
            listener,
            sender=self.sender,
            names=TopicNames(),
            max_reconsume_times=maximum,
            clock=self.clock,
            hooks=self.dispatcher,
        )

    def orderly(self, listener: OrderlyListener, maximum: int | None = None) -> OrderlyService:
        return OrderlyService(
            "departures",
            listener,
            sender=self.sender,
            names=TopicNames(),
            max_reconsume_times=maximum,
            batch_size=8,
            clock=self.clock,
            hooks=self.dispatcher,
        )


def answering(status: Any, ack_index: int | None = None) -> Listener:
    def listener(_messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus | None:
        if ack_index is not None:
            context.ack_index = ack_index
        if isinstance(status, BaseException):
            raise status
        return status  # type: ignore[no-any-return]

    return listener


def told(listener: Listener, size: int = 3) -> ConsumeMessageContext:
    """What a hook is told after one call."""
    hook = Recording()
    World([hook]).concurrently(listener).consume(chunk_of(size))
    assert len(hook.before) == len(hook.after) == 1
    return hook.after[0]


@pytest.mark.rule("ST-08")
def test_before_and_after_tell_group_queue_and_messages() -> None:
    hook, chunk = Recording(), chunk_of(2)
    World([hook]).concurrently(answering(SUCCESS)).consume(chunk)
    before = hook.before[0]
    assert (before.group, before.message_queue, before.messages) == (
        "departures",
        MessageQueue("flights", 0),
        chunk.messages,
    )
    assert (before.success, before.status, before.return_type, before.acknowledged) == (False, None, None, 0)
    assert hook.after[0].messages == chunk.messages
    with pytest.raises(FrozenInstanceError):
        before.success = True  # type: ignore[misc]


@pytest.mark.rule("ST-08")
@pytest.mark.parametrize(
    ("answer", "status", "return_type"),
    [
        (SUCCESS, SUCCESS, ConsumeReturnType.SUCCESS),
        (LATER, LATER, ConsumeReturnType.FAILED),
        (None, LATER, ConsumeReturnType.RETURNNULL),
        (ValueError("no dep_time"), LATER, ConsumeReturnType.EXCEPTION),
        (["no status"], LATER, ConsumeReturnType.FAILED),
    ],
    ids=repr,
)
def test_after_tells_how_the_listener_came_back(
    answer: object, status: ConsumeConcurrentlyStatus, return_type: ConsumeReturnType
) -> None:
    context = told(answering(answer))
    assert (context.status, context.return_type, context.success) == (status, return_type, answer is SUCCESS)
    assert context.acknowledged == (3 if answer is SUCCESS else 0)
    if isinstance(answer, ValueError):
        assert context.cause is not None
        assert context.cause.message == "no dep_time"


@pytest.mark.rule("ST-09")
@pytest.mark.parametrize(("ack_index", "acknowledged"), [(0, 1), (-1, 0), (9, 3)])
def test_a_success_is_one_whatever_the_ack_index_says(ack_index: int, acknowledged: int) -> None:
    context = told(answering(SUCCESS, ack_index))
    assert (context.success, context.acknowledged) == (True, acknowledged)


def test_an_ack_index_that_cannot_be_is_no_success() -> None:
    context = told(answering(SUCCESS, -2))
    assert (context.success, context.acknowledged, context.return_type) == (False, 0, ConsumeReturnType.FAILED)


@pytest.mark.rule("ST-08", "EX-03")
@pytest.mark.parametrize(("took_ms", "return_type"), [(TIMEOUT_MS - 1, "SUCCESS"), (TIMEOUT_MS, "TIME_OUT")])
def test_a_listener_that_takes_as_long_as_the_timeout_is_told_as_one(took_ms: float, return_type: str) -> None:
    hook = Recording()
    world = World([hook])

    def slow(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        world.clock.now += took_ms
        return SUCCESS

    world.concurrently(slow).consume(chunk_of(1))
    context = hook.after[0]
    assert (context.elapsed_ms, context.return_type, context.success) == (took_ms, ConsumeReturnType[return_type], True)


@pytest.mark.rule("ST-02", "TN-04")
def test_a_retry_shows_the_retry_topic_and_its_messages_the_origin_topic() -> None:
    hook, queue = Recording(), ProcessQueue(RETRY_TOPIC, 0)
    headers = [("RETRY_TOPIC", b"flights"), ("RECONSUME_TIME", b"2")]
    message = message_at(0, topic=RETRY_TOPIC, headers=list(headers))
    queue.begin([message])
    World([hook]).concurrently(answering(SUCCESS)).consume(Chunk(queue, (message,)))
    assert hook.before[0].message_queue.topic == "%RETRY%departures"
    assert (hook.before[0].messages[0].topic, hook.before[0].messages[0].reconsume_times) == ("flights", 2)


class Pool:
    """Holds lanes until they are asked for."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []

    def submit(self, lane: Lane) -> None:
        self.lanes.append(lane)

    def close(self, seconds: float) -> bool:
        del seconds
        return True


def consumed_in_order(world: World, answer: object, *, auto_commit: bool = True, maximum: int | None = None) -> None:
    def listener(_messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        context.auto_commit = auto_commit
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]

    service, pool, queue = world.orderly(listener, maximum), Pool(), ProcessQueue("flights", 0)
    service.attach(pool)
    service.accept(queue, queue.begin([message_at(0), message_at(1)]))
    service.consume(pool.lanes.pop())


@pytest.mark.rule("ST-08", "ST-09")
@pytest.mark.parametrize(
    ("answer", "auto_commit", "status", "return_type", "acknowledged"),
    [
        (ConsumeOrderlyStatus.SUCCESS, True, ConsumeOrderlyStatus.SUCCESS, "SUCCESS", 2),
        (ConsumeOrderlyStatus.COMMIT, False, ConsumeOrderlyStatus.COMMIT, "SUCCESS", 2),
        (ConsumeOrderlyStatus.ROLLBACK, False, ConsumeOrderlyStatus.ROLLBACK, "FAILED", 0),
        (ConsumeOrderlyStatus.ROLLBACK, True, ConsumeOrderlyStatus.ROLLBACK, "FAILED", 2),
        (SUSPEND, True, SUSPEND, "FAILED", 0),
        (None, True, SUSPEND, "RETURNNULL", 0),
        (ValueError("no dep_time"), True, SUSPEND, "EXCEPTION", 0),
        ("SUCCESS", True, SUSPEND, "FAILED", 0),
    ],
)
def test_the_same_for_an_orderly_listener(
    answer: object, auto_commit: bool, status: ConsumeOrderlyStatus, return_type: str, acknowledged: int
) -> None:
    hook = Recording()
    consumed_in_order(World([hook]), answer, auto_commit=auto_commit)
    context = hook.after[0]
    assert (context.status, context.return_type) == (status, ConsumeReturnType[return_type])
    assert context.acknowledged == acknowledged
    assert context.success == (return_type == "SUCCESS")
    assert len(hook.before) == len(hook.after) == 1


@pytest.mark.rule("ST-08")
def test_hooks_are_told_in_the_order_of_their_registration() -> None:
    order: list[str] = []
    world = World([Recording("one", order), Recording("two", order)], writer=RecordingWriter(answers=[None]))
    world.concurrently(answering(LATER)).consume(chunk_of(1))
    assert order == ["before one", "before two", "after one", "after two", "sent back one", "sent back two"]


GROUPS = Groups(
    SystemConfig(message_delay_level="1s 5s 10s 30s"),
    {
        "departures": SubscriptionGroupConfig(group_name="departures", retry_max_times=2),
        "none": SubscriptionGroupConfig(group_name="none", retry_queue_nums=0),
    },
)


@pytest.mark.parametrize(
    ("group", "times", "wish", "maximum", "target", "level", "count"),
    [
        ("departures", 0, 0, None, SendBackTarget.RETRY, 3, 1),
        ("departures", 1, 9, None, SendBackTarget.RETRY, 4, 2),
        ("departures", 2, 0, None, SendBackTarget.DEAD_LETTER, 0, 3),
        ("departures", 2, 0, 5, SendBackTarget.RETRY, 4, 3),
        ("departures", 0, -1, None, SendBackTarget.DEAD_LETTER, 0, 1),
        ("none", 0, 0, None, SendBackTarget.DROPPED, 0, 0),
        ("unknown", 0, 7, None, SendBackTarget.UNDECIDED, 7, 1),
    ],
)
def test_a_send_back_tells_where_the_rule_takes_it(
    group: str, times: int, wish: int, maximum: int | None, target: SendBackTarget, level: int, count: int
) -> None:
    groups = Groups(
        SystemConfig(message_delay_level="1s 5s 10s 30s", auto_create_subscription_group=False), GROUPS.by_name
    )
    headers = [("RETRY_TOPIC", b"flights"), ("RECONSUME_TIME", b"%d" % times)]
    message = message_at(0, topic=RETRY_TOPIC, headers=list(headers))
    request = SendBackRequest(group, message.all_headers, message.stored, wish, maximum)
    assert way_of(request, groups) == (target, level, count)


@pytest.mark.parametrize("error", [None, SendBackFailed("no inbox")])
def test_a_send_back_is_told_when_it_has_ended(error: SendBackFailed | None) -> None:
    hook, chunk = Recording(), chunk_of(1)
    world = World([hook], groups=GROUPS)
    world.concurrently(answering(ValueError("no dep_time"))).consume(chunk)
    assert hook.sent_back == [], "not acknowledged yet"
    world.clock.now += 40
    world.writer.waiting[0](error)
    [context] = hook.sent_back
    assert (context.group, context.message, context.error) == ("departures", chunk.messages[0], error)
    assert (context.target, context.delay_level, context.reconsume_times) == (SendBackTarget.RETRY, 3, 1)
    assert context.elapsed_ms == 40
    assert context.cause is not None
    assert context.cause.exception_class == "builtins.ValueError"


def test_a_timeout_and_an_exhausted_message_of_an_orderly_listener_are_send_backs() -> None:
    hook, chunk = Recording(), chunk_of(1)
    world = World([hook], writer=RecordingWriter(answers=[None, None, None]), groups=GROUPS)
    chunk.queue.start(chunk.messages, world.clock())
    world.clock.now += TIMEOUT_MS + 1
    world.concurrently(answering(SUCCESS)).expire(chunk.queue, TIMEOUT_MS)
    consumed_in_order(world, None, maximum=0)
    assert [(one.target, one.message.kafka.offset) for one in hook.sent_back] == [
        (SendBackTarget.RETRY, 0),
        (SendBackTarget.DEAD_LETTER, 0),
        (SendBackTarget.DEAD_LETTER, 1),
    ]
    assert hook.sent_back[0].cause is not None
    assert "consume timeout" in hook.sent_back[0].cause.message


@pytest.mark.rule("ST-08")
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_hook_that_raises_changes_nothing_and_the_next_one_is_told(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    hook, chunk = Recording(), chunk_of(2)
    world = World([Raising(error), hook], writer=RecordingWriter(answers=[None]))
    seen: list[Message] = []

    def listener(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        seen.extend(messages)
        context.ack_index = 0
        return SUCCESS

    world.concurrently(listener).consume(chunk)
    assert (len(seen), world.writer.origins, safe_offset(chunk.queue)) == (2, ["flights/0/1"], 2)
    assert (len(hook.before), len(hook.after), len(hook.sent_back)) == (1, 1, 1)
    assert "hook Raising.consume_message_before raised, which changes nothing" in caplog.text


def test_a_hook_that_raises_changes_nothing_in_order() -> None:
    hook = Recording()
    consumed_in_order(World([Raising(SystemExit), hook]), ConsumeOrderlyStatus.SUCCESS)
    assert hook.after[0].acknowledged == 2


def test_what_a_hook_raises_is_logged_once_a_minute_with_how_often_it_was(caplog: pytest.LogCaptureFixture) -> None:
    world = World([Raising(ValueError)])
    service = world.concurrently(answering(SUCCESS))
    with caplog.at_level(logging.ERROR):
        service.consume(chunk_of(1))
        service.consume(chunk_of(1))
        assert [record.args for record in caplog.records] == [("Raising.consume_message_before", 0)]
        world.clock.now = 60_000
        service.consume(chunk_of(1))
    assert [record.args for record in caplog.records][1:] == [("Raising.consume_message_before", 3)]


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


class Setting(ConsumeMessageHook):
    def __init__(self) -> None:
        self.found = ""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        VARIABLE.set(f"offset {context.messages[0].kafka.offset}")

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        del context
        self.found = VARIABLE.get()


def test_a_context_variable_set_before_holds_in_the_listener_and_after_it() -> None:
    seen: list[str] = []
    hook = Setting()

    def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        seen.append(VARIABLE.get())
        return SUCCESS

    contextvars.copy_context().run(World([hook]).concurrently(listener).consume, chunk_of(1))
    assert (seen, hook.found) == (["offset 0"], "offset 0")


def test_so_too_for_coroutines_that_run_at_once() -> None:
    seen: dict[int, str] = {}
    both = asyncio.Barrier(2)

    async def listener(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        await both.wait()
        seen[messages[0].kafka.offset] = VARIABLE.get()
        return SUCCESS

    async def run_two() -> None:
        service = World([Setting()]).concurrently(listener)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.consume_async(chunk_of(1)))
            tasks.create_task(service.consume_async(chunk_of(1, start=1)))

    asyncio.run(run_two())
    assert seen == {0: "offset 0", 1: "offset 1"}


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_shutdown_cancels_is_told_without_an_outcome(orderly: bool) -> None:
    hook = Recording()
    world = World([hook])
    began = asyncio.Event()

    async def waits(_messages: Sequence[Message], _context: object) -> Any:
        began.set()
        await asyncio.Event().wait()

    async def cancel_it() -> None:
        if orderly:
            service, pool, queue = world.orderly(waits), Pool(), ProcessQueue("flights", 0)
            service.attach(pool)
            service.accept(queue, queue.begin([message_at(0)]))
            task = asyncio.ensure_future(service.consume_async(pool.lanes.pop()))
        else:
            task = asyncio.ensure_future(world.concurrently(waits).consume_async(chunk_of(1)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    [context] = hook.after
    assert (context.return_type, context.status, context.success) == (None, None, False)


class Coroutine(ConsumeMessageHook):
    async def consume_message_after(self, context: ConsumeMessageContext) -> None:  # type: ignore[override]
        """Nobody would await it."""


@pytest.mark.parametrize(
    ("hook", "what"), [(print, "must be a ConsumeMessageHook"), (Coroutine(), "must be a plain function")]
)
def test_what_is_no_hook_is_refused(hook: Any, what: str) -> None:
    with pytest.raises(IllegalSetting, match=what):
        PushConsumer("departures").register_consume_message_hook(hook)
