"""What hooks are told, and that they change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeOrderlyStatus,
    ConsumeReturnType,
    Message,
    MessageQueue,
    SendBackTarget,
)
from reconsume.consumers.listener import Listener
from reconsume.consumers.sending.send_back_log import way_of
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest
from tests.unit.consumers.doubles import RecordingWriter, chunk_of
from tests.unit.consumers.hooked import TIMEOUT_MS, Recording, World, answering, consumed_in_order, retry_chunk

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


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
        tuple(chunk),
    )
    assert (before.success, before.status, before.return_type, before.acknowledged) == (False, None, None, 0)
    assert hook.after[0].messages == tuple(chunk)
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
    hook = Recording()
    World([hook]).concurrently(answering(SUCCESS)).consume(retry_chunk(times=2))
    assert hook.before[0].message_queue.topic == "%RETRY%departures"
    assert (hook.before[0].messages[0].topic, hook.before[0].messages[0].reconsume_times) == ("flights", 2)


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
    [message] = retry_chunk(times=times)
    request = SendBackRequest(group, message.all_headers, message.stored, wish, maximum)
    assert way_of(request, groups)[:3] == (target, level, count)


@pytest.mark.parametrize("error", [None, SendBackFailed("no inbox")])
def test_a_send_back_is_told_when_it_has_ended(error: SendBackFailed | None) -> None:
    hook, chunk = Recording(), chunk_of(1)
    world = World([hook], groups=GROUPS)
    world.concurrently(answering(ValueError("no dep_time"))).consume(chunk)
    assert hook.sent_back == [], "not acknowledged yet"
    world.clock.now += 40
    world.writer.waiting[0](error)
    [context] = hook.sent_back
    assert (context.group, context.message, context.error) == ("departures", chunk[0], error)
    assert (context.target, context.delay_level, context.reconsume_times) == (SendBackTarget.RETRY, 3, 1)
    assert context.elapsed_ms == 40
    assert context.cause is not None
    assert context.cause.exception_class == "builtins.ValueError"


def test_a_timeout_and_an_exhausted_message_of_an_orderly_listener_are_send_backs() -> None:
    hook, chunk = Recording(), chunk_of(1)
    world = World([hook], writer=RecordingWriter(answers=[None, None, None]), groups=GROUPS)
    chunk.queue.start(chunk, world.clock())
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
