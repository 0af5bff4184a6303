"""Arguments of a wrong type, and reconsume's own topics: the whole public API gives a clear error, before any work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import Message as KafkaMessage

import reconsume.consumers as c
import reconsume.spark_connectors as spark_api
from reconsume import testing
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors import replay
from reconsume.spark_connectors.reconcile import reconcile_stream
from reconsume.testing import InMemoryKafka

NO_CONF: Final = SimpleNamespace(isModifiable=lambda _name: False)
SPARK: Final = type("SparkSession", (), {"createDataFrame": None, "conf": NO_CONF})()
PLAN: Final = replay.ReplayPlan("/plan", "p", 0, "true", "retry", "reconsume.", 2)
SERVERS: Final = "localhost:9092"
OWN: Final = (
    *("reconsume.DELAY.1s", "reconsume.SEND_BACK", "reconsume.RETRY.others", "reconsume.GROUPS", "reconsume.CANCEL"),
    *("reconsume.QUARANTINE", "reconsume.POSITIONS", "reconsume.WITHDRAWN"),
)
"""Of the installation, and nobody's to consume."""
ANYTHING: Final[Any] = object()

HAVE_NO_ARGUMENTS_TO_CHECK: Final = {
    *("AIOConsumer", "Message", "RetryMessage", "Call", "Record", "Waiting"),  # the drop-in's; made by us
    *("CircuitChange", "ConsumeMessageContext", "SendMessageBackContext", "SendResult", "MessageQueue"),  # made by us
    *("CircuitState", "ConsumeConcurrentlyStatus", "ConsumeFromWhere", "ConsumeOrderlyStatus", "ConsumeReturnType"),
    *("MessageModel", "SendBackTarget"),  # enumerations
    *("ConsumeConcurrentlyContext", "ConsumeOrderlyContext"),  # judged when the listener returns: test_slips.py
    *("ConsumeMessageHook", "MessageQueueSelector", "CircuitMetrics"),  # the user's; Prometheus looks at a registry
    *("SCHEMA", "Reconciliation"),
}


def numbered(cases: list[tuple[Callable[..., object], str]]) -> list[str]:
    return [f"{number}: {told}" for number, (_, told) in enumerate(cases)]


def push(**more: Any) -> Callable[[], object]:
    return lambda: c.PushConsumer(**{"group": "departures"} | more)


def subscribe(*arguments: Any) -> Callable[[], object]:
    return lambda: c.PushConsumer("departures").subscribe(*arguments)


def drop_in(**more: Any) -> Callable[[], object]:
    return lambda: c.Consumer({"group.id": "departures", "bootstrap.servers": SERVERS}, **more)


def producer(**more: Any) -> Callable[[], object]:
    return lambda: c.DelayProducer(**more)


def breaker(**more: Any) -> Callable[[], object]:
    return lambda: c.CircuitBreaker(**more)


def in_memory(**more: Any) -> Callable[[], object]:
    return lambda: InMemoryKafka(**more)


CONSTRUCTORS: Final[list[tuple[Callable[[], object], str]]] = [
    (push(group=None), "group must be a str, got NoneType"),
    (push(group=["a"]), "group must be a str, got list"),
    (push(bootstrap_servers=["a:1", "b:1"]), "bootstrap_servers must be a str, got list"),
    (push(bootstrap_servers=""), "bootstrap_servers '': the list is empty; write host:port, comma-separated"),
    (push(bootstrap_servers="kafka:99999"), "'kafka:99999' must be host:port, with a port from 1 to 65535"),
    (push(conf="earliest"), "conf must be a Mapping or None, got str"),
    (push(conf={"bootstrap.servers": "kafka:9092"}), "conf has bootstrap.servers, .*; use the argument bootstrap_s"),
    (push(conf={"metadata.broker.list": "kafka:9092"}), "conf has metadata.broker.list, .* the argument"),
    (push(message_model="BROADCASTING"), "message_model must be a MessageModel, got str"),
    (push(offset_store=5), "offset_store must be a str or a PathLike or None, got int"),
    (push(consume_from_where="CONSUME_FROM_FIRST_OFFSET"), "consume_from_where must be a ConsumeFromWhere or None"),
    (push(consume_timestamp=5), "consume_timestamp must be a str or a datetime or None"),
    (push(namespace=None), "namespace must be a str, got NoneType"),
    (push(max_reconsume_times="3"), "max_reconsume_times must be an int, got str"),
    (push(max_reconsume_times=True), "max_reconsume_times must be an int, got bool"),
    (push(consume_message_batch_max_size="8"), "consume_message_batch_max_size must be an int, got str"),
    (push(consume_thread_nums=2.5), "consume_thread_nums must be an int, got float"),
    (push(consume_timeout=60), r"consume_timeout must be a timedelta, such as timedelta\(seconds=10\), got int"),
    (push(pull_threshold_for_queue="9"), "pull_threshold_for_queue must be an int, got str"),
    (push(pull_threshold_size_for_queue=None), "pull_threshold_size_for_queue must be an int, got NoneType"),
    (push(consume_concurrently_max_span="9"), "consume_concurrently_max_span must be an int, got str"),
    (push(exactly_once="yes"), "exactly_once must be a bool, got str"),
    (push(circuit_breaker=True), "circuit_breaker must be a CircuitBreaker or None, got bool"),
    (push(delay_levels=["1s", "5s"]), "delay_levels must be a str, such as '1s 5s 10s', got list"),
    (push(dead_letter_on=ValueError), "dead_letter_on must be a tuple of exception classes"),
    (push(await_termination_when_shutdown=5), "await_termination_when_shutdown must be a timedelta"),
    (push(topic_prefix=None), "topic_prefix must be a str, got NoneType"),
    (push(conf={"max.poll.interval.ms": None}), "max.poll.interval.ms must be a number"),
    (push(conf={"max.poll.interval.ms": float("inf")}), "max.poll.interval.ms must be a number"),
    (subscribe(["a", "b"]), "topic must be a str, got list"),
    (subscribe(None), "topic must be a str, got NoneType"),
    (subscribe("flights", ["a"]), "sub_expression must be a str or None, got list"),
    *((subscribe(topic), f"topic '{topic}' is one of reconsume's own; subscribe to a topic of yours") for topic in OWN),
    (lambda: c.PushConsumer("g").register_message_listener("f"), "listener must be a function"),  # type: ignore[call-overload]
    (lambda: c.PushConsumer("g").register_message_listener(print, orderly="yes"), "orderly must be a bool, got str"),  # type: ignore[call-overload]
    (lambda: c.PushConsumer("g").register_consume_message_hook(print), "hook must be a ConsumeMessageHook"),  # type: ignore[arg-type]
    (lambda: c.PushConsumer("g").listener(5), "listener must be a function"),  # type: ignore[call-overload]
    (drop_in(max_reconsume_times="3"), "max_reconsume_times must be an int, got str"),
    (drop_in(delay_levels=["1s"]), "delay_levels must be a str, such as '1s 5s 10s', got list"),
    (drop_in(dead_letter_on="ValueError"), "dead_letter_on must be a tuple of exception classes"),
    (drop_in(topic_prefix=5), "topic_prefix must be a str, got int"),
    (drop_in(exactly_once=1), "exactly_once must be a bool, got int"),
    (producer(bootstrap_servers=["a:1"]), "bootstrap_servers must be a str, got list"),
    (producer(bootstrap_servers=","), "bootstrap_servers ',': the list is empty"),
    (producer(conf="x"), "conf must be a Mapping or None, got str"),
    (producer(conf={"bootstrap.servers": "kafka:9092"}), "conf has bootstrap.servers, .*; use the argument"),
    (producer(send_msg_timeout=3), "send_msg_timeout must be a timedelta"),
    (producer(retry_times_when_send_failed="2"), "retry_times_when_send_failed must be an int, got str"),
    (producer(delay_levels=5), "delay_levels must be a str, such as '1s 5s 10s', got int"),
    (producer(topic_prefix=None), "topic_prefix must be a str, got NoneType"),
    (breaker(failure_share="0.9"), "failure_share must be an int or a float, got str"),
    (breaker(minimum_calls="20"), "minimum_calls must be an int, got str"),
    (breaker(window=60), "window must be a timedelta"),
    (breaker(open_for=5), "open_for must be a timedelta"),
    (breaker(open_for_at_most=60), "open_for_at_most must be a timedelta"),
    (breaker(probes=1.5), "probes must be an int, got float"),
    (breaker(on_change="f"), "on_change must be a function, got str"),
    (breaker(on_change=asyncio.sleep), "on_change must be a plain function: it is not awaited"),
    (lambda: c.reconsume_times(None), "message must be a Message, got NoneType"),  # type: ignore[arg-type]
    (lambda: c.origin("flights"), "message must be a Message, got str"),  # type: ignore[arg-type]
    (lambda: c.polled_from(None), "message must be a Message, got NoneType"),  # type: ignore[arg-type]
    (lambda: c.polled_from(KafkaMessage()), r"message must be a record from poll\(\)"),
    (lambda: c.origin(KafkaMessage()), r"message must be a record from poll\(\)"),
    (in_memory(message_delay_level=["1s"]), "message_delay_level must be a str, got list"),
    (in_memory(allowed_real_topics="orders"), "allowed_real_topics must be a list of str, such as .*, got str"),
    (in_memory(topic_prefix=5), "topic_prefix must be a str, got int"),
    (in_memory(start="2026-01-01"), "start must be a datetime"),
    (in_memory(start=datetime(2026, 1, 1)), "start .* has no time zone"),  # noqa: DTZ001 - it is refused
]


@pytest.mark.parametrize(("call", "told"), CONSTRUCTORS, ids=numbered(CONSTRUCTORS))
def test_of_clients(call: Callable[[], object], told: str) -> None:
    with pytest.raises(IllegalSetting, match=told):
        call()


@pytest.fixture(scope="module")
def kafka() -> Iterator[InMemoryKafka]:
    with InMemoryKafka() as one:
        one.create_topic("flights")
        yield one


IN_MEMORY: Final[list[tuple[Callable[[Any], object], str]]] = [
    (lambda kafka: kafka.advance(10), r"by must be a timedelta, such as timedelta\(seconds=10\), got int"),
    (lambda kafka: kafka.create_topic(["a"]), "topic must be a str, got list"),
    (lambda kafka: kafka.create_topic("a", "3"), "partitions must be an int, got str"),
    (lambda kafka: kafka.create_topic("a", 0), "partitions must be from 1"),
    (lambda kafka: kafka.create_topic("reconsume.DELAY.1s"), "exists already"),
    (lambda kafka: kafka.produce(["flights"], "x"), "topic must be a str, got list"),
    (lambda kafka: kafka.produce("flights", 5), "value must be a str or a bytes or None, got int"),
    (lambda kafka: kafka.produce("flights", {"a": 1}), "value must be a str or a bytes or None, got dict"),
    (lambda kafka: kafka.produce("flights", "x", key=5), "key must be a str or a bytes or None, got int"),
    (lambda kafka: kafka.produce("flights", "x", headers="a=1"), "headers must be a list of pairs"),
    (lambda kafka: kafka.produce("flights", "x", headers=["a"]), "headers must be pairs of a str and bytes"),
    (lambda kafka: kafka.produce("flights", "x", headers={"a": 1}), "headers must be pairs of a str and bytes"),
    (lambda kafka: kafka.produce("flights", "x", tags=["a"]), "tags must be a str or None, got list"),
    (lambda kafka: kafka.produce("flights", "x", partition="0"), "partition must be an int, got str"),
    (lambda kafka: kafka.calls(5), "group must be a str or None, got int"),
    (lambda kafka: kafka.records(["flights"]), "topic must be a str, got list"),
    (lambda kafka: kafka.retries(None), "group must be a str, got NoneType"),
    (lambda kafka: kafka.dead_letters(["g"]), "group must be a str, got list"),
    (lambda kafka: kafka.waiting(["g"]), "group must be a str or None, got list"),
    (lambda kafka: kafka.committed("g", ["flights"]), "topic must be a str, got list"),
    (lambda kafka: kafka.committed("g", "flights", "0"), "partition must be an int, got str"),
    (lambda kafka: kafka.set_group(["g"]), "group must be a str, got list"),
    (lambda kafka: kafka.set_group("g", retryMaxTimes="three"), "retryMaxTimes"),
]


@pytest.mark.parametrize(("call", "told"), IN_MEMORY, ids=numbered(IN_MEMORY))
def test_of_the_kafka_in_memory(kafka: InMemoryKafka, call: Callable[[Any], object], told: str) -> None:
    with pytest.raises(IllegalSetting, match=told):
        call(kafka)


SENDS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"topic": ["flights"]}, "topic must be a str, got list"),
    ({"topic": "reconsume.DELAY.1s"}, "is one of reconsume's own; send to a topic of yours"),
    ({"body": {"a": 1}}, "body must be a bytes or a str or None, got dict"),
    ({"key": 5}, "key must be a bytes or a str or None, got int"),
    ({"headers": {"a": b"1"}}, "headers must be a list of pairs, such as .*, got dict"),
    ({"headers": ["a"]}, "headers must be pairs of a str and bytes"),
    ({"tags": ["a"]}, "tags must be a str or None, got list"),
    ({"keys": ["a"]}, "keys must be a str or None, got list"),
    ({"tags": "\ud800"}, "tags must be text that UTF-8 can hold; character 0 is half of a pair"),
    ({"key": "k\udfff"}, "key must be text that UTF-8 can hold; character 1 is half of a pair"),
    ({"delay_level": "3"}, "delay_level must be an int, got str"),
    ({"deliver_at": "tomorrow"}, "deliver_at must be a datetime or an int"),
    ({"delay": 5}, "delay must be a timedelta, got int"),
    ({"selector": "first"}, "selector must be a function, got str"),
]


@pytest.mark.parametrize(("more", "told"), SENDS)
def test_of_a_delay_producer(kafka: InMemoryKafka, more: dict[str, Any], told: str) -> None:
    with (
        c.DelayProducer(bootstrap_servers=kafka.bootstrap_servers) as one,
        pytest.raises(IllegalSetting, match=told),
    ):
        one.send(**{"topic": "flights", "body": b"1"} | more)


def test_of_a_withdrawal(kafka: InMemoryKafka) -> None:
    with (
        c.DelayProducer(bootstrap_servers=kafka.bootstrap_servers) as one,
        pytest.raises(IllegalSetting, match="msg_id must be a str, got int"),
    ):
        one.cancel(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("topics", [["flights", 5], *([topic] for topic in OWN)])
def test_of_a_drop_ins_subscription(kafka: InMemoryKafka, topics: list[Any]) -> None:
    told = "each of topics must be a str, got int" if 5 in topics else "is one of reconsume's own"
    with (
        c.Consumer({"group.id": "g", "bootstrap.servers": kafka.bootstrap_servers}) as one,
        pytest.raises(IllegalSetting, match=told),
    ):
        one.subscribe(topics)


def test_a_drop_in_may_name_its_own_retry_topic_and_a_dead_letter_topic(kafka: InMemoryKafka) -> None:
    with c.Consumer({"group.id": "g", "bootstrap.servers": kafka.bootstrap_servers}) as one:
        one.subscribe(["flights", one.retry_topic, "reconsume.DLQ.others"])


@pytest.mark.parametrize("where", [SERVERS, None], ids=["real", "in memory"])
def test_one_text_in_place_of_a_list_is_refused_as_confluent_kafka_does(
    kafka: InMemoryKafka, where: str | None
) -> None:
    with (
        c.Consumer({"group.id": "g", "bootstrap.servers": where or kafka.bootstrap_servers}) as one,
        pytest.raises(TypeError, match="expected list of topic unicode strings"),
    ):
        one.subscribe("flights")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"message": None}, "message must be a Message from poll.., or a list of them, got NoneType"),
        ({"message": "flights"}, "message must be a Message from poll.., or a list of them, got str"),
        ({"message": ["flights"]}, "message must be a Message or a TopicPartition, got str"),
        ({"message": KafkaMessage()}, "message must be a record from poll.., got one without topic"),
        ({"delay_level": "3"}, "delay_level must be an int, got str"),
        ({"cause": 5}, "cause must be an exception or a text, got int"),
    ],
)
def test_of_a_send_back(kafka: InMemoryKafka, arguments: dict[str, Any], told: str) -> None:
    polled = KafkaMessage(topic="flights", partition=0, offset=0, value=b"1")
    with (
        c.Consumer({"group.id": "g", "bootstrap.servers": kafka.bootstrap_servers}) as one,
        pytest.raises(IllegalSetting, match=told),
    ):
        one.send_message_back(**{"message": polled} | arguments)


def read(function: Callable[..., Any], *arguments: Any, **more: Any) -> Callable[[], object]:
    return lambda: function(SPARK, SERVERS, *arguments, **more)


SPARKS: Final[list[tuple[Callable[[], object], str]]] = [
    (lambda: spark_api.packages(4), "version must be a str or None, got int"),  # type: ignore[arg-type]
    (lambda: spark_api.configure(SPARK), "builder must be SparkSession.builder, got SparkSession"),
    (
        lambda: spark_api.configure(type("Builder", (), {"getOrCreate": None})(), jars_dir=5),  # type: ignore[arg-type]
        "jars_dir must be a str or a PathLike or None, got int",
    ),
    (lambda: spark_api.read_retries(SERVERS, SPARK), "spark must be a SparkSession, got str"),  # type: ignore[arg-type]
    (lambda: spark_api.read_retries(SPARK, ["a:1"]), "bootstrap_servers must be a str, got list"),  # type: ignore[arg-type]
    (read(spark_api.read_messages, "flights"), r"topics must be a list of str, such as \['flights'\], got str"),
    (read(spark_api.read_messages, [5]), "each of topics must be a str, got int"),
    *((read(spark_api.read_messages, [topic]), "is one of reconsume's own: use read_delays") for topic in OWN[:3]),
    (read(spark_api.read_messages, ["flights"], options="x"), "options must be a Mapping or None, got str"),
    (read(spark_api.read_retries, "departures"), "groups must be a list of str, such as .*departures.*, got str"),
    (read(spark_api.read_retries, [5]), "each of groups must be a str, got int"),
    (read(spark_api.read_retries, topic_prefix=5), "topic_prefix must be a str, got int"),
    (read(spark_api.read_dead_letters, "departures"), "groups must be a list of str"),
    (read(spark_api.read_dead_letters, topics="orders.DLT"), "topics must be a list of str"),
    (read(spark_api.read_delays, 10_000), "delays_ms must be a list of int, such as .*, got int"),
    (read(spark_api.read_delays, "10s"), "delays_ms must be a list of int, such as .*, got str"),
    (read(spark_api.read_delays, ["10s"]), "each of delays_ms must be an int, got str"),
    (read(spark_api.read_kinds, "retry"), "kinds must be a list of str, such as .*, got str"),
    (read(spark_api.create_views, topic_prefix=5), "topic_prefix must be a str, got int"),
    (read(spark_api.create_views, options=5), "options must be a Mapping or None, got int"),
    (lambda: spark_api.Tolerances(late=60), "late must be a timedelta"),  # type: ignore[arg-type]
    (lambda: spark_api.reconcile(SERVERS, SPARK), "spark must be a SparkSession, got str"),  # type: ignore[arg-type]
    (read(spark_api.reconcile, since="2026-01-01"), "since must be a datetime or None"),
    (read(spark_api.reconcile, until=5), "until must be a datetime or None"),
    (read(spark_api.reconcile, delay_levels=["1s"]), "delay_levels must be a str or None, got list"),
    (read(spark_api.reconcile, tolerances=timedelta(1)), "tolerances must be a Tolerances or None"),
    (read(spark_api.reconcile, origins="yes"), "origins must be a bool, got str"),
    (read(spark_api.reconcile, ledger=5), "ledger must be a str or a PathLike, got int"),
    (read(spark_api.reconcile, ledger=""), "ledger must name a folder, got ''"),
    (read(spark_api.reconcile, ledger="/l", ledger_keep=7), "ledger_keep must be a timedelta or None, such as"),
    (read(spark_api.reconcile, ledger="/l", ledger_keep=timedelta(0)), "ledger_keep 0:00:00: must be more than 0"),
    (read(spark_api.reconcile, ledger="/l", until=datetime(2999, 1, 1, tzinfo=UTC)), "until 2999.* is in the future"),
    (read(reconcile_stream, "/l", every=5), "every must be a timedelta or None, such as"),
    (read(reconcile_stream, " "), "ledger must name a folder, got ' '"),
    (read(replay.plan_replay, "/plan", groups="departures"), "groups must be a list of str"),
    (read(replay.plan_replay, "/plan", topics="a.DLT"), "topics must be a list of str"),
    (read(replay.plan_replay, ""), "folder must name a folder, got ''"),
    (read(replay.plan_replay, "/plan", where=["a"]), "where must be a str, got list"),
    (read(replay.plan_replay, "/plan", max_replays="2"), "max_replays must be an int, got str"),
    (read(replay.run_replay, "/plan"), "plan must be a ReplayPlan, got str"),
    (read(replay.run_replay, PLAN, rate="10"), "rate must be an int or a float or None, got str"),
    (read(replay.replay_stream, Path("/plan"), "name", groups="departures"), "groups must be a list of str"),
    (read(replay.replay_stream, "", "name"), "folder must name a folder, got ''"),
    (read(replay.replay_stream, "/plan", "name", rate="10"), "rate must be an int or a float or None, got str"),
]


@pytest.mark.parametrize(("call", "told"), SPARKS, ids=numbered(SPARKS))
def test_of_the_spark_connectors(call: Callable[[], object], told: str) -> None:
    with pytest.raises(IllegalSetting, match=told):
        call()


def test_every_public_name_is_in_these_tables_or_has_nothing_to_check() -> None:
    names = {*c.__all__, *testing.__all__, *spark_api.__all__}
    here = Path(__file__).read_text()
    assert {name for name in names - HAVE_NO_ARGUMENTS_TO_CHECK if f".{name}" not in here} <= {"InMemoryKafka"}
    assert names >= HAVE_NO_ARGUMENTS_TO_CHECK
