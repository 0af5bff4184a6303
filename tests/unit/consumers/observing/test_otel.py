"""Spans of calls and send-backs, as an exporter gets them."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, Message
from reconsume.consumers.listeners.listener_pool import cut_off
from reconsume.consumers.observing import otel
from reconsume.consumers.observing.otel import OpenTelemetryHook
from reconsume.consumers.partitions.process_queue import Chunk
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.properties import Header
from tests.unit.consumers.doubles import RETRY_TOPIC, RecordingWriter, message_at
from tests.unit.consumers.hooked import TIMEOUT_MS, World, answering, chunk_with, consumed_in_order, retry_chunk

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
TRACE_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736
TRACE_PARENT: Header = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


class Traced:
    """A world with the hook, and what was exported."""

    def __init__(self, *answers: SendBackFailed | None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("the listener's own")
        self.world = World([OpenTelemetryHook(provider)], writer=RecordingWriter(answers=list(answers)))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def consume(self, chunk: Chunk, answer: object = SUCCESS) -> Traced:
        self.world.concurrently(answering(answer)).consume(chunk)
        return self


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def test_a_call_is_a_span_by_the_conventions_for_kafka() -> None:
    [span] = Traced().consume(chunk_with(message_at(7, partition=2, headers=[TRACE_PARENT, ("UNIQ_KEY", b"id")]))).spans
    assert (span.name, span.kind, span.status.status_code) == ("process flights", SpanKind.CONSUMER, StatusCode.UNSET)
    assert attributes(span) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "flights",
        "messaging.destination.partition.id": "2",
        "messaging.consumer.group.name": "departures",
        "messaging.message.id": "id",
        "messaging.kafka.offset": 7,
        "messaging.kafka.message.key": "key",
        "reconsume.origin_topic": "flights",
        "reconsume.reconsume_times": 0,
        "reconsume.delay_level": 0,
        "reconsume.return_type": "SUCCESS",
        "reconsume.status": "CONSUME_SUCCESS",
        "reconsume.acknowledged": 1,
    }


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (message_at(0, body=None), "messaging.kafka.message.tombstone", True),
        (message_at(0, key=b"\xff"), "messaging.kafka.message.key", None),
        (message_at(0, key=None), "messaging.kafka.message.key", None),
    ],
)
def test_tombstones_are_told_and_keys_that_are_no_text_are_not(message: Message, name: str, value: object) -> None:
    [span] = Traced().consume(chunk_with(message)).spans
    assert attributes(span).get(name) == value


@pytest.mark.rule("ST-10", "T-36")
def test_a_message_is_in_the_trace_of_its_headers_also_as_a_retry() -> None:
    traced = Traced().consume(chunk_with(message_at(0, headers=[TRACE_PARENT])))
    traced.consume(retry_chunk(TRACE_PARENT, times=2))
    first, again = traced.spans
    for span in (first, again):
        assert parent_of(span) == (TRACE_ID, 0x00F067AA0BA902B7)
        assert [link.context.span_id for link in span.links] == [0x00F067AA0BA902B7]
    found = attributes(again)
    assert again.name == f"process {RETRY_TOPIC}"
    assert (found["messaging.destination.name"], found["reconsume.origin_topic"]) == (RETRY_TOPIC, "flights")
    assert (found["reconsume.reconsume_times"], found["reconsume.delay_level"]) == (2, 3)


def test_the_messages_of_a_batch_are_links_and_none_of_them_is_the_parent() -> None:
    other: Header = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    chunk = chunk_with(
        message_at(0, headers=[TRACE_PARENT]),
        message_at(1),
        message_at(2, headers=[other]),
        message_at(3, headers=[("traceparent", b"nonsense"), ("none", None)]),
    )
    [span] = Traced().consume(chunk).spans
    assert span.parent is None
    assert attributes(span)["messaging.batch.message_count"] == 4
    assert [(link.attributes or {})["messaging.kafka.offset"] for link in span.links] == [0, 2]
    assert "messaging.kafka.offset" not in attributes(span)


@pytest.mark.parametrize(
    ("answer", "error_type", "description"),
    [
        (LATER, "FAILED", "FAILED"),
        (None, "RETURNNULL", "RETURNNULL"),
        (ValueError("no dep_time"), "builtins.ValueError", "no dep_time"),
    ],
    ids=repr,
)
def test_a_failure_is_an_error_and_an_exception_an_event(answer: object, error_type: str, description: str) -> None:
    span = Traced(None).consume(chunk_with(message_at(0)), answer).spans[0]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)
    assert attributes(span)["error.type"] == error_type
    events = [(event.name, (event.attributes or {})["exception.message"]) for event in span.events]
    assert events == ([("exception", "no dep_time")] if isinstance(answer, ValueError) else [])


def test_a_success_that_took_too_long_is_an_error_named_time_out() -> None:
    traced = Traced()

    def slow(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        traced.world.clock.now += TIMEOUT_MS
        return SUCCESS

    traced.world.concurrently(slow).consume(chunk_with(message_at(0)))
    [span] = traced.spans
    assert (attributes(span)["error.type"], attributes(span)["reconsume.status"]) == ("TIME_OUT", "CONSUME_SUCCESS")


def test_the_span_is_current_in_a_plain_listener_and_only_there() -> None:
    traced = Traced()

    def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        traced.tracer.start_span("the listener's work").end()
        return SUCCESS

    traced.world.concurrently(listener).consume(chunk_with(message_at(0, headers=[TRACE_PARENT])))
    work, call = traced.spans
    assert parent_of(work) == identity(call)
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_so_it_is_in_coroutines_that_run_at_once() -> None:
    traced = Traced()
    both = asyncio.Barrier(2)

    async def listener(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        await both.wait()
        traced.tracer.start_span(f"work {messages[0].kafka.offset}").end()
        await both.wait()
        return SUCCESS

    async def run_two() -> None:
        service = traced.world.concurrently(listener)
        async with asyncio.TaskGroup() as tasks:
            for offset in (0, 1):
                tasks.create_task(service.consume_async(chunk_with(message_at(offset))))

    asyncio.run(run_two())
    by_name = {span.name: span for span in traced.spans if span.name.startswith("work")}
    calls = {
        attributes(span)["messaging.kafka.offset"]: span for span in traced.spans if span.kind is SpanKind.CONSUMER
    }
    assert [parent_of(by_name[f"work {offset}"]) for offset in (0, 1)] == [identity(calls[0]), identity(calls[1])]


@pytest.mark.rule("ST-10")
@pytest.mark.parametrize("error", [None, SendBackFailed("no inbox")])
def test_a_send_back_is_a_child_of_the_call_that_failed(error: SendBackFailed | None) -> None:
    traced = Traced()
    traced.consume(retry_chunk(TRACE_PARENT), LATER)
    traced.world.clock.now += 40
    traced.world.writer.waiting[0](error)
    call, back = traced.spans
    assert parent_of(back) == identity(call)
    assert (back.name, back.kind) == (f"send_back {RETRY_TOPIC}", SpanKind.CLIENT)
    found = attributes(back)
    assert (found["messaging.operation.name"], found["messaging.operation.type"]) == ("send_back", "settle")
    assert (found["reconsume.target"], found["reconsume.delay_level"], found["reconsume.reconsume_times"]) == (
        "RETRY",
        4,
        2,
    )
    assert back.start_time is not None
    assert back.end_time is not None
    assert back.end_time - back.start_time == 40_000_000
    expected = (StatusCode.UNSET, None) if error is None else (StatusCode.ERROR, "SendBackFailed")
    assert (back.status.status_code, found.get("error.type")) == expected


def test_a_dead_letter_of_an_orderly_listener_is_a_span_too() -> None:
    traced = Traced(None, None)
    traced.world.groups = Groups(by_name={"departures": SubscriptionGroupConfig(group_name="departures")})
    consumed_in_order(traced.world, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, maximum=0)
    call, *letters = traced.spans
    assert [(attributes(one)["reconsume.target"], parent_of(one)) for one in letters] == [
        ("DEAD_LETTER", identity(call))
    ] * 2


@pytest.mark.rule("ST-11")
def test_messages_with_trace_on_false_are_left_out() -> None:
    off: Header = ("TRACE_ON", b"false")
    traced = Traced(None, None, None)
    traced.consume(chunk_with(message_at(0, headers=[off])), LATER)
    assert len(traced.spans) == 0
    traced.consume(chunk_with(message_at(1, headers=[off]), message_at(2, headers=[("TRACE_ON", b"true")])), LATER)
    assert [attributes(span)["messaging.kafka.offset"] for span in traced.spans] == [2, 2]


def test_a_call_that_shutdown_cuts_off_ends_its_span_without_an_outcome() -> None:
    traced = Traced()
    began = asyncio.Event()

    async def waits(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        began.set()
        await asyncio.Event().wait()
        return SUCCESS

    async def cancel_it() -> None:
        task = asyncio.ensure_future(traced.world.concurrently(waits).consume_async(chunk_with(message_at(0))))
        await began.wait()
        cut_off(task)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    [span] = traced.spans
    assert "reconsume.return_type" not in attributes(span)
    assert span.status.status_code is StatusCode.UNSET


def test_without_opentelemetry_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[otel\]' in the checkout"):
        importlib.reload(otel)
