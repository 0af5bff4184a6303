"""Spans and metrics of consumers on a real Kafka, as an exporter and a scraper get them."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    MessageModel,
    PushConsumer,
    SendBackTarget,
    SendMessageBackContext,
)
from reconsume.consumers.observing.consumer_metrics import ConsumerMetrics
from reconsume.consumers.observing.otel import OpenTelemetryHook
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]

TRACE_PARENT: Header = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
PRODUCED_BY = (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
LABELS = ("group", "topic", "physical_topic", "target", "level")


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


class SentBack(ConsumeMessageHook):
    """Remembers the acknowledged send-backs."""

    def __init__(self) -> None:
        self.contexts: list[SendMessageBackContext] = []

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        self.contexts.append(context)


class Raises(ConsumeMessageHook):
    """Raises whatever it is told."""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        raise SystemExit(context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        raise SystemExit(context)

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        raise SystemExit(context)


def fails_twice(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return LATER if messages[0].reconsume_times < 2 else SUCCESS


@contextmanager
def scraped(registry: CollectorRegistry) -> Iterator[str]:
    """The address of a real `/metrics`."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def samples(address: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and the values of the labels, without those that Prometheus makes itself."""
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - ours
        text = answer.read().decode()
    return {
        (
            sample.name.removeprefix("reconsume_consumer_"),
            tuple(sample.labels[label] for label in LABELS if label in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket"))
    }


def parent_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


@pytest.mark.rule("ST-08", "ST-10")
@pytest.mark.parametrize("exactly_once", [False, True])
def test_all_tries_of_a_message_are_one_trace_and_each_send_back_a_child_of_its_try(
    here: Installation, exactly_once: bool
) -> None:
    group, topic = here.name(f"traced-{exactly_once}"), here.topic(f"traced-{exactly_once}")
    here.produce(topic, b"flight", headers=[TRACE_PARENT])
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    consumer = here.consumer(group, topic, fails_twice, exactly_once=exactly_once)
    with consumer.register_consume_message_hook(OpenTelemetryHook(provider)):
        wait_until(lambda: len(exporter.get_finished_spans()) == 5, "three calls and two send-backs")
    spans = exporter.get_finished_spans()
    retry_topic = here.settings.names.retry(group)
    calls = [span for span in spans if span.name.startswith("process")]
    backs = [span for span in spans if span.name.startswith("send_back")]
    assert [span.name for span in calls] == [f"process {topic}", *[f"process {retry_topic}"] * 2]
    assert [parent_of(span) for span in calls] == [PRODUCED_BY] * 3
    assert [parent_of(span) for span in backs] == [identity(span) for span in calls[:2]]
    told = [dict(span.attributes or {}) for span in calls]
    assert [one["reconsume.reconsume_times"] for one in told] == [0, 1, 2]
    assert [one["reconsume.return_type"] for one in told] == ["FAILED", "FAILED", "SUCCESS"]
    sent = [dict(span.attributes or {}) for span in backs]
    assert (
        [one["reconsume.delay_level"] for one in sent] == [one["reconsume.delay_level"] for one in told[1:]] == [3, 4]
    )


@pytest.mark.rule("ST-01", "ST-02", "T-36")
def test_metrics_add_up_under_the_origin_topic_and_the_topic_that_was_read(here: Installation) -> None:
    group, topic = here.name("counted"), here.topic("counted")
    here.produce(topic, b"late", b"dead", b"fine")

    def listener(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        body, times = messages[0].body, messages[0].reconsume_times
        return LATER if body == b"dead" or (body == b"late" and times == 0) else SUCCESS

    registry = CollectorRegistry()
    consumer = here.consumer(group, topic, listener, max_reconsume_times=1)
    consumer.register_consume_message_hook(ConsumerMetrics(registry))
    first, again = (group, topic, topic), (group, topic, here.settings.names.retry(group))
    with scraped(registry) as address:
        with consumer:
            wait_until(lambda: ("dead_letters_total", again) in samples(address), "a dead letter is counted")
            wait_until(lambda: ("ok_total", again) in samples(address), "a retry has succeeded")
        found = samples(address)
    seconds = [found.pop(("rt_seconds_sum", labels)) for labels in (first, again)]
    assert all(0 <= one < 60 for one in seconds)
    assert found == {
        ("ok_total", first): 1,
        ("failed_total", first): 2,
        ("ok_total", again): 1,
        ("failed_total", again): 1,
        ("rt_seconds_count", first): 3,
        ("rt_seconds_count", again): 2,
        ("in_flight", first): 0,
        ("in_flight", again): 0,
        ("sent_back_total", (*first, "RETRY", "3")): 2,
        ("sent_back_total", (*again, "DEAD_LETTER", "0")): 1,
        ("dead_letters_total", again): 1,
    }


@pytest.mark.rule("ST-08")
@pytest.mark.parametrize("exactly_once", [False, True])
def test_hooks_that_raise_change_nothing(here: Installation, exactly_once: bool) -> None:
    group, topic = here.name(f"raises-{exactly_once}"), here.topic(f"raises-{exactly_once}")
    here.produce(topic, b"flight", b"flight")
    listener = Deliveries(fails_twice)
    consumer = here.consumer(group, topic, listener, exactly_once=exactly_once)
    with consumer.register_consume_message_hook(Raises()):
        wait_until(lambda: len(listener.batches) == 6, "two messages were delivered three times")
        wait_until(lambda: here.committed(group, topic) == 2, "what was read first is committed")
        assert consumer.running
    assert here.dead_letters(group) == []


@pytest.mark.rule("ST-08")
def test_an_orderly_consumer_tells_its_tries_and_the_dead_letter(here: Installation) -> None:
    group, topic = here.name("in-order"), here.topic("in-order")
    here.produce(topic, b"flight")
    tries: list[int] = []
    sent_back = SentBack()

    async def listener(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        tries.append(messages[0].reconsume_times)
        context.suspend_current_queue_time_millis = 10
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

    registry = CollectorRegistry()
    consumer: PushConsumer = here.consumer(group, topic, listener, max_reconsume_times=2)
    consumer.register_message_listener(listener, orderly=True)
    consumer.register_consume_message_hook(ConsumerMetrics(registry)).register_consume_message_hook(sent_back)
    with consumer:
        [context] = wait_until(lambda: sent_back.contexts, "the dead letter is acknowledged")
    assert tries == [0, 1, 2]
    labels = {"group": group, "topic": topic, "physical_topic": topic}
    assert registry.get_sample_value("reconsume_consumer_failed_total", labels) == 3
    assert registry.get_sample_value("reconsume_consumer_dead_letters_total", labels) == 1
    assert (context.target, context.reconsume_times, context.error) == (SendBackTarget.DEAD_LETTER, 3, None)
    wait_until(lambda: here.dead_letters(group), "the dead letter")


@pytest.mark.rule("ST-08", "BP-01")
def test_what_a_broadcasting_consumer_drops_is_told_as_dropped(here: Installation, tmp_path: Path) -> None:
    group, topic = here.name("broadcast"), here.topic("broadcast")
    here.produce(topic, b"flight")
    sent_back = SentBack()
    consumer = here.consumer(
        group, topic, fails_twice, message_model=MessageModel.BROADCASTING, offset_store=tmp_path
    ).register_consume_message_hook(sent_back)
    with consumer:
        [context] = wait_until(lambda: sent_back.contexts, "the failure is told")
    assert (context.target, context.delay_level, context.reconsume_times) == (SendBackTarget.DROPPED, 0, 0)
    assert consumer.dropped == 1
