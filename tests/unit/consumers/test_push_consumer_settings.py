"""What PushConsumer refuses, and what it says then."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.testing import InMemoryKafka


def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def consumer_with(name: str, value: Any) -> PushConsumer:
    return PushConsumer("departures", **{name: value})


@pytest.mark.rule("FC-01", "FC-02", "FC-03", "FC-05")
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("consume_message_batch_max_size", 1, 1_024),
        ("consume_thread_nums", 1, 1_000),
        ("pull_threshold_for_queue", 1, 65_535),
        ("pull_threshold_size_for_queue", 1, 1_024),
        ("consume_concurrently_max_span", 1, 65_535),
        ("max_reconsume_times", 0, 2**31 - 1),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(name: str, low: int, high: int) -> None:
    for wrong in (low - 1, high + 1):
        with pytest.raises(IllegalSetting, match=rf"{name} must be from {low} to {high}, not {wrong}"):
            consumer_with(name, wrong)
    for right in (low, high):
        consumer_with(name, right)


@pytest.mark.rule("EX-01")
@pytest.mark.parametrize("timeout", [timedelta(0), timedelta(seconds=-1)])
def test_a_timeout_of_nothing_is_refused(timeout: timedelta) -> None:
    with pytest.raises(IllegalSetting, match=r"consume_timeout must be longer than 0, not "):
        PushConsumer("departures", consume_timeout=timeout)


def test_a_shutdown_may_wait_for_ever_but_not_for_less_than_nothing() -> None:
    longest = PushConsumer("departures", await_termination_when_shutdown=timedelta.max)._settings.limits
    idle = threading.Thread(target=lambda: None)
    idle.start()
    idle.join(longest.await_termination_seconds)
    with pytest.raises(IllegalSetting, match="await_termination_when_shutdown must be 0 or longer, not -1 day"):
        PushConsumer("departures", await_termination_when_shutdown=timedelta(days=-1))


def test_the_signals_of_a_program_that_goes_on_after_run_are_its_own_again() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(IllegalSetting, match="needs a listener"):
        PushConsumer("departures").run()
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.rule("CC-18", "EX-01", "FC-01", "FC-02", "FC-03", "FC-05")
def test_the_defaults_are_rocketmqs() -> None:
    consumer = PushConsumer("departures")
    settings = consumer._settings
    limits = settings.limits
    assert settings.batch_size == 1
    assert limits.timeout_ms == 15 * 60_000
    assert (limits.queue_records, limits.queue_bytes, limits.max_span) == (1_000, 100 * 1024 * 1024, 2_000)
    assert settings.threads == 20
    assert limits.leave_seconds == 240, "below max.poll.interval.ms"


@pytest.mark.rule("NM-05")
@pytest.mark.parametrize(
    ("group", "why"),
    [("", "is blank"), ("  ", "is blank"), ("DEFAULT_CONSUMER", "is reserved"), ("%SYS%", "is reserved")],
)
def test_a_group_that_cannot_be_is_refused(group: str, why: str) -> None:
    with pytest.raises(IllegalSetting, match=why):
        PushConsumer(group)


@pytest.mark.rule("NM-04")
def test_a_group_whose_retry_topic_would_be_too_long_is_refused_before_anything_starts() -> None:
    with pytest.raises(IllegalSetting, match=r"Kafka allows 249; shorten the name"):
        PushConsumer("g" * 250)


def test_an_illegal_prefix_is_refused() -> None:
    with pytest.raises(IllegalSetting, match=r"topic_prefix 'a b' is illegal in Kafka"):
        PushConsumer("departures", topic_prefix="a b")


@pytest.mark.rule("LV-03")
@pytest.mark.parametrize("table", ["", "1s  5s", "1s 5", "5ms"])
def test_a_bad_level_table_is_refused(table: str) -> None:
    with pytest.raises(IllegalSetting, match="level"):
        PushConsumer("departures", delay_levels=table)


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({"auto.offset.reset": "none"}, r"auto\.offset\.reset 'none': use earliest or latest"),
        ({"isolation.level": "read_uncommitted"}, r"isolation\.level must be read_committed"),
        ({"partition.assignment.strategy": "range"}, r"'range': only cooperative-sticky, or group\.protocol"),
        ({"group.id": "other"}, r"group\.id is set by the consumer itself"),
        ({"enable.auto.commit": True}, r"enable\.auto\.commit is set by the consumer itself"),
        ({"on_commit": print}, r"on_commit is set by the consumer itself"),
        ({"default.topic.config": {"enable.auto.commit": True}}, r"enable\.auto\.commit is set by the consumer itself"),
        (
            {"default.topic.config": {"auto.offset.reset": "none"}},
            r"auto\.offset\.reset 'none': use earliest or latest",
        ),
        ({"default.topic.config": "smallest"}, r"default\.topic\.config must be a Mapping or None, got str"),
        ({"transactional.id": "mine"}, r"transactional\.id is set by reconsume itself"),
        ({"stats_cb": "print"}, r"stats_cb must be a function, got str"),
        ({1: 2}, r"names of settings such as 'client\.id', got 1"),
    ],
)
def test_a_kafka_setting_that_would_break_a_guarantee_is_refused(conf: dict[Any, Any], why: str) -> None:
    with pytest.raises(IllegalSetting, match=why):
        PushConsumer("departures", conf=conf)


def test_a_start_in_default_topic_config_is_the_consumers(caplog: pytest.LogCaptureFixture) -> None:
    """confluent-kafka would let it win over the `auto.offset.reset` that the consumer needs."""
    conf = {"default.topic.config": {"auto.offset.reset": "smallest"}, "enable.partition.eof": True}
    with InMemoryKafka() as kafka:
        kafka.produce("flights", b"UA1545")
        consumer = PushConsumer("departures", bootstrap_servers=kafka.bootstrap_servers, conf=conf)
        assert not {"default.topic.config", "auto.offset.reset"} & consumer._settings.conf.keys()
        consumer.subscribe("flights").register_message_listener(listener).start()
        assert [call.message.body for call in kafka.settle()] == [b"UA1545"]
    assert "consuming flights" not in caplog.text, "the end of a partition is no error"


@pytest.mark.rule("TN-01")
@pytest.mark.parametrize("topic", ["%RETRY%departures", "%DLQ%departures", "reconsume.RETRY.departures"])
def test_the_topics_of_groups_are_refused_by_their_rocketmq_names_and_the_own_retry_topic_by_any(topic: str) -> None:
    if topic == "%DLQ%departures":
        why = "subscribe to it by its name in Kafka, reconsume.DLQ.departures"
    else:
        why = "the consumer subscribes to its retry topic itself"
    with pytest.raises(IllegalSetting, match=why):
        PushConsumer("departures").subscribe(topic)


@pytest.mark.rule("NM-03")
@pytest.mark.parametrize("topic", ["", "flights|late", "a b", "f" * 250])
def test_a_topic_that_kafka_cannot_hold_is_refused(topic: str) -> None:
    with pytest.raises(IllegalSetting, match="is illegal in Kafka; use at most 249 letters"):
        PushConsumer("departures").subscribe(topic)


@pytest.mark.rule("TF-03")
def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(IllegalSetting, match="has no tag"):
        PushConsumer("departures").subscribe("flights", "||")


class Called:
    def __call__(self, messages: Any, context: Any) -> None: ...


def of_one(messages: Any) -> None: ...


def adapted(function: Callable[[Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(function)
    def called(messages: Any, _context: Any) -> None:
        function(messages)

    return called


def print_both(messages: Any, context: Any) -> None: ...


def generator(_messages: Any, _context: Any) -> Any:
    yield


async def async_generator(_messages: Any, _context: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (None, "the listener must be a function, not None"),
        ("listener", "the listener must be a function, not 'listener'"),
        (3, "the listener must be a function, not 3"),
        (Called, "the listener must be a function, not <class '.*Called'>"),
        (generator, "generator at .*> has a yield, so a call does not run it; return a status"),
        (async_generator, "async_generator at .*> has a yield"),
        (of_one, "of_one at .*> must take two arguments, messages and context: too many positional arguments"),
        (lambda: None, "must take two arguments, messages and context"),
        (lambda _a, _b, _c: None, "must take two arguments, .*: missing a required argument: '_c'"),
        (functools.partial(print_both, None, None), "must take two arguments"),
    ],
)
def test_a_listener_must_be_a_function_of_messages_and_context(wrong: Any, told: str) -> None:
    with pytest.raises(IllegalSetting, match=told):
        PushConsumer("departures").register_message_listener(wrong)


@pytest.mark.parametrize(
    "right",
    [
        *(listener, Called(), Called().__call__, adapted(of_one), print, Mock()),
        *(lambda *_: None, lambda _a, _b, _more=None: None, functools.partial(lambda _a, _b, _c: None, 1)),
    ],
)
def test_any_function_of_two_arguments_is_a_listener(right: Any) -> None:
    PushConsumer("departures").register_message_listener(right)


def test_starting_without_a_listener_is_refused_and_says_how_to_give_one() -> None:
    with pytest.raises(IllegalSetting, match=r"group 'departures' needs a listener: @consumer\.listener"):
        PushConsumer("departures").subscribe("flights").start()


def test_starting_without_a_subscription_is_refused_and_says_how_to_give_one() -> None:
    with pytest.raises(IllegalSetting, match=r"group 'departures' needs a topic: subscribe\(topic\)"):
        PushConsumer("departures").register_message_listener(listener).start()


def test_after_a_shutdown_nothing_can_be_changed_or_started() -> None:
    consumer = PushConsumer("departures").subscribe("flights").register_message_listener(listener)
    consumer.shutdown()
    again = "this consumer was started before; make a new one"
    with pytest.raises(IllegalSetting, match=f"start: {again}"):
        consumer.start()
    with pytest.raises(IllegalSetting, match=f"subscribe: {again}"):
        consumer.subscribe("flights")
    with pytest.raises(IllegalSetting, match=f"register_message_listener: {again}"):
        consumer.register_message_listener(listener)
    assert not consumer.running


def test_the_decorator_gives_the_function_back() -> None:
    assert PushConsumer("departures").listener(listener) is listener
