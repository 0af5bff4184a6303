"""Namespaces: RocketMQ's wrapping of names, and the Kafka topics that come of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.namespaces import Namespace

SHOP = Namespace("shop")
NAMES = TopicNames()


@pytest.mark.rule("TN-10")
@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("flights", "shop%flights"),
        ("%RETRY%departures", "%RETRY%shop%departures"),
        ("%DLQ%departures", "%DLQ%shop%departures"),
    ],
)
def test_the_namespace_stands_before_the_name_and_after_the_kind(plain: str, wrapped: str) -> None:
    assert SHOP.wrap(plain) == wrapped
    assert SHOP.wrap(wrapped) == wrapped, "what is wrapped stays"
    assert SHOP.unwrap(wrapped) == plain
    assert Namespace().wrap(plain) == Namespace().unwrap(plain) == plain
    assert Namespace("other").unwrap(wrapped) == wrapped, "a name of another namespace stays"


@pytest.mark.rule("TN-10")
@pytest.mark.parametrize(
    ("given_name", "topic"),
    [
        ("flights", "shop.25flights"),
        ("shop%flights", "shop.25flights"),
        ("shop.25flights", "shop.25flights"),
        ("flights.late_1", "shop.25flights.late_1"),
        ("%DLQ%departures", "reconsume.DLQ.shop.25departures"),
        ("reconsume.DLQ.other", "reconsume.DLQ.other"),
        ("reconsume.flights", "shop.25reconsume.flights"),
    ],
)
def test_a_topic_of_a_user_gets_the_namespace_and_one_of_the_installation_does_not(given_name: str, topic: str) -> None:
    assert SHOP.kafka_topic(given_name, NAMES) == topic


def test_without_a_namespace_a_topic_is_itself() -> None:
    assert Namespace().kafka_topic("flights", NAMES) == "flights"
    with pytest.raises(IllegalName, match="is illegal in Kafka"):
        Namespace().kafka_topic("shop%flights", NAMES)


@pytest.mark.parametrize("topic", ["", "a b", "other%flights", "f" * 243])
def test_a_topic_that_kafka_cannot_hold_is_refused(topic: str) -> None:
    with pytest.raises(IllegalName, match="is illegal in Kafka"):
        SHOP.kafka_topic(topic, NAMES)


@pytest.mark.parametrize("name", [" ", "a%b", "%"])
def test_a_namespace_that_cannot_be_told_from_the_name_is_refused(name: str) -> None:
    with pytest.raises(IllegalName, match="is blank or holds '%'"):
        Namespace(name)


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="%"), min_size=1).filter(str.strip), st.text()
)
def test_wrapping_can_be_undone_and_done_twice(name: str, resource: str) -> None:
    namespace = Namespace(name)
    wrapped = namespace.wrap(resource)
    assert namespace.wrap(wrapped) == wrapped
    assert namespace.unwrap(wrapped) == namespace.unwrap(resource)
