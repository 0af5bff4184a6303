"""Kafka's errors in our words: what may pass, what must be changed, what nobody knows."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from reconsume.bridge.kafka.client_settings import client_settings
from reconsume.bridge.kafka.errors import is_passing, translate
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, RecordTooLarge, TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (KafkaError._TRANSPORT, KafkaNotReachable, "no answer from Kafka"),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaNotReachable, "no answer from Kafka"),
        (KafkaError.UNKNOWN_LEADER_EPOCH, KafkaNotReachable, "no answer from Kafka"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaRefused, "no right to use the topic .*grant it"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaRefused, "no right to use the consumer group"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaRefused, r"do not accept this client .* check \[kafka\]"),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLarge, "MSG_SIZE_TOO_LARGE.* raise the topic.s max.message.bytes"),
        (KafkaError.RECORD_LIST_TOO_LARGE, RecordTooLarge, "make it smaller"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicNotReady, "reconsume topics apply.* `kafka-topics.sh --create"),
    ],
)
def test_each_kind_of_error_has_its_class_and_its_way_out(code: int, error: type[ReconsumeError], said: str) -> None:
    with pytest.raises(error, match=f"reading x: .*{said}"):
        raise translate(KafkaError(code), "reading x")


def test_a_missing_topic_is_reported_with_what_creates_it() -> None:
    missing, names = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), TopicNames()
    error = translate(missing, "subscribing to flights", names.remedy_if_missing("flights"))
    assert str(error) == (
        "subscribing to flights: the topic does not exist; "
        "create it (`kafka-topics.sh --create --topic flights`) or ask its owner"
    )


@pytest.mark.parametrize(
    ("topic", "remedy"),
    [
        ("flights", "`kafka-topics.sh --create --topic flights`"),
        ("reconsume.DELAY.10s", "`reconsume topics apply`"),
        ("reconsume.SEND_BACK", "`reconsume topics apply`"),
        ("reconsume.RETRY.g", "a scheduler creates it"),
        ("reconsume.DLQ.g", "a scheduler creates it"),
    ],
)
def test_each_topic_has_somebody_who_creates_it(topic: str, remedy: str) -> None:
    assert remedy in TopicNames().remedy_if_missing(topic)


def test_an_error_that_nobody_has_thought_of_is_no_verdict() -> None:
    """A new topic answers `no leaders` for a moment; a record must not go to the quarantine for that."""
    unknown = KafkaError(KafkaError._NOENT)
    assert not is_passing(unknown)
    assert isinstance(translate(unknown, "reading x"), KafkaNotReachable)


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        ({}, 1_000),
        ({"reconnect.backoff.max.ms": 3_000}, 3_000),
        ({"reconnect.backoff.ms": 2_000}, None),
        ({"reconnect.backoff.ms": 2_000, "reconnect.backoff.max.ms": 9_000}, 9_000),
    ],
)
def test_brokers_that_are_back_are_found_soon_unless_the_user_says_otherwise(
    given: dict[str, int], longest: int | None
) -> None:
    settings = client_settings(given, "c")
    assert settings.get("reconnect.backoff.max.ms") == longest
    Producer(settings).close()
