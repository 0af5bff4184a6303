"""Which topics a consumer's names and patterns mean."""

from __future__ import annotations

import pytest

from reconsume.consumers.subscriptions.subscription import Subscriptions, TagExpression
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.namespaces import Namespace

NAMES = TopicNames()
OURS = [
    *(NAMES.send_back, NAMES.quarantine, NAMES.groups, NAMES.cancel, NAMES.delay(0), NAMES.delay(10_000)),
    *(NAMES.retry("departures"), NAMES.retry("other"), NAMES.dead_letter("departures")),
]


def subscribed(*given: tuple[str, str], namespace: str = "") -> Subscriptions:
    subscriptions = Subscriptions(NAMES, Namespace(namespace))
    for topic, expression in given:
        subscriptions.add(topic, expression)
    return subscriptions


@pytest.mark.parametrize("pattern", ["^.*", r"^reconsume\..*", "^re.*|__.*"])
def test_a_pattern_never_matches_a_topic_of_ours_or_of_kafka(pattern: str) -> None:
    assert subscribed((pattern, "*")).among([*OURS, "__consumer_offsets", "reconsume.flights"]) == ["reconsume.flights"]


def test_a_topic_of_ours_can_be_named() -> None:
    letters = NAMES.dead_letter("departures")
    assert subscribed((letters, "*"), ("^.*", "*")).among([*OURS, "flights"]) == ["flights", letters]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("^flights", ["flights"]),
        ("^flights.*", ["flights", "flights-eu"]),
        ("^.*-eu$", ["flights-eu", "trains-eu"]),
        ("^(flights|trains-eu)", ["flights", "trains-eu"]),
        ("^nothing", []),
    ],
)
def test_a_pattern_is_for_the_whole_name(pattern: str, matches: list[str]) -> None:
    assert subscribed((pattern, "*")).among(["flights", "flights-eu", "trains-eu"]) == matches


@pytest.mark.rule("TF-03")
def test_a_topic_takes_its_own_tags_else_those_of_the_first_pattern_that_matches() -> None:
    subscriptions = subscribed(("^f.*", "A"), ("^flights.*", "B"), ("flights", "C"))
    found = {topic: subscriptions.get(topic) for topic in ("flights", "flights-eu", "trains")}
    assert found == {"flights": TagExpression.parse("C"), "flights-eu": TagExpression.parse("A"), "trains": None}


def test_the_last_expression_for_a_name_or_a_pattern_holds() -> None:
    subscriptions = subscribed(("flights", "A"), ("flights", "B"), ("^t.*", "A"), ("^t.*", "B"))
    assert subscriptions.get("flights") == subscriptions.get("trains") == TagExpression.parse("B")
    assert list(subscriptions) == ["flights"]


@pytest.mark.rule("TN-10")
def test_names_and_patterns_are_meant_inside_the_namespace() -> None:
    subscriptions = subscribed(("trains", "*"), ("^fl.*", "*"), namespace="shop")
    existing = ["shop.25flights", "shop.25trains", "flights", "trains", "shop.flights", "other.25flights", *OURS]
    assert subscriptions.among(existing) == ["shop.25flights", "shop.25trains"]


def test_whether_there_are_any_and_whether_they_depend_on_what_there_is() -> None:
    assert [bool(one) for one in (subscribed(), subscribed(("f", "*")), subscribed(("^f", "*")))] == [False, True, True]
    assert [one.has_patterns for one in (subscribed(("f", "*")), subscribed(("^f", "*")))] == [False, True]


@pytest.mark.parametrize("pattern", ["^(", "^[", "^*", "^a{99999999999999999999}"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(IllegalSetting, match="is not a regular expression"):
        subscribed((pattern, "*"))
