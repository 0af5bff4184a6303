"""Settings of the drop-in: merged as confluent-kafka does, refused where they cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from reconsume.consumers.drop_in.settings import DropInSettings
from reconsume.delay_levels.errors import IllegalDelayLevels, IllegalName, IllegalSetting

GROUP = {"group.id": "departures"}


def of(*args: Any, **more: Any) -> DropInSettings:
    ours: dict[str, Any] = {
        "max_reconsume_times": None,
        "delay_levels": None,
        "topic_prefix": "reconsume.",
        "exactly_once": False,
        "dead_letter_on": (),
    }
    kwargs = more.pop("kwargs", {})
    return DropInSettings.of(args, kwargs, ours | more)


def test_keywords_win_over_the_dictionary_and_default_topic_config_over_both() -> None:
    given = GROUP | {"auto.offset.reset": "latest", "client.id": "one", "default.topic.config": {"acks": 1}}
    settings = of(given, kwargs={"client.id": "two", "default.topic.config": {"auto.offset.reset": "smallest"}})
    assert settings.conf["client.id"] == "two"
    assert settings.starts_at_beginning
    assert "default.topic.config" not in settings.conf
    assert given["client.id"] == "one"
    assert of(kwargs=GROUP).group == "departures"


@pytest.mark.parametrize(
    ("conf", "beginning", "cooperative"),
    [
        ({}, False, False),
        ({"auto.offset.reset": "earliest"}, True, False),
        ({"auto.offset.reset": "error"}, False, False),
        ({"group.protocol": "CONSUMER"}, False, True),
        ({"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}, False, True),
        ({"partition.assignment.strategy": "range,roundrobin"}, False, False),
    ],
)
def test_start_and_protocol_are_read_from_the_settings(
    conf: dict[str, Any], beginning: bool, cooperative: bool
) -> None:
    settings = of(GROUP | conf)
    assert (settings.starts_at_beginning, settings.cooperative) == (beginning, cooperative)
    assert settings.retry_topic == "reconsume.RETRY.departures"


def test_new_topics_are_looked_for_every_10_s_unless_the_user_says_otherwise() -> None:
    name = "topic.metadata.refresh.interval.ms"
    assert of(GROUP).conf[name] == 10_000
    assert of(GROUP | {name: 500}).conf[name] == 500


@pytest.mark.parametrize(
    ("conf", "more", "error", "match"),
    [
        (GROUP | {"isolation.level": "read_uncommitted"}, {}, IllegalSetting, "must be read_committed"),
        (GROUP | {"transactional.id": "mine"}, {}, IllegalSetting, "transactional.id is set by reconsume itself"),
        (GROUP | {"enable.idempotence": "False"}, {}, IllegalSetting, "enable.idempotence must be on"),
        (GROUP, {"exactly_once": True}, IllegalSetting, "enable.auto.commit False"),
        (GROUP | {"enable.auto.commit": "true"}, {"exactly_once": True}, IllegalSetting, "enable.auto.commit False"),
        (GROUP, {"max_reconsume_times": -1}, IllegalSetting, "max_reconsume_times must be from 0"),
        (GROUP, {"dead_letter_on": ValueError}, IllegalSetting, r"such as \(ValueError,\), got"),
        (GROUP, {"delay_levels": "1 parsec"}, IllegalDelayLevels, "parsec"),
        (GROUP, {"topic_prefix": "%"}, IllegalName, "topic_prefix"),
        ({"group.id": "x" * 300}, {}, IllegalName, "249"),
        ({}, {}, ValueError, "group.id must be set"),
        ([], {}, TypeError, "expected configuration dict"),
    ],
)
def test_what_cannot_work_is_refused(conf: Any, more: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        of(conf, **more)


@pytest.mark.parametrize("off", [False, "false", "False", "0"])
def test_exactly_once_takes_every_way_to_switch_auto_commit_off(off: Any) -> None:
    assert of(GROUP | {"enable.auto.commit": off}, exactly_once=True).conf["enable.auto.commit"] == off
