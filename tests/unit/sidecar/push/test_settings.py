"""Settings that cannot be are refused, with what to write instead; and what an app of Dapr subscribes to."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.answers import AppAnswer
from reconsume.sidecar.push.credentials import watch_token
from reconsume.sidecar.push.dapr import routes_of
from reconsume.sidecar.push.requests.requests import DaprRoute
from reconsume.sidecar.push.settings import Order, Profile, PushSettings
from reconsume.sidecar.push.subscription import PushSubscription
from reconsume.sidecar.settings import ProcessSettings

GIVEN: dict[str, Any] = {"group": "departures", "topics": ["flights"]}


def test_the_defaults() -> None:
    settings = PushSettings(**GIVEN)
    assert (settings.topics, settings.profile, settings.order) == ({"flights": "*"}, Profile.NATIVE, Order.KEY)
    assert (settings.timeout, settings.route_template) == (timedelta(seconds=30), "/events/{topic}")
    assert PushSettings(**GIVEN, profile="rocketmq-batch").timeout == timedelta(minutes=15)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"topics": []}, "name at least one"),
        ({"consume_from_where": "CONSUME_FROM_TIMESTAMP"}, "use CONSUME_FROM_FIRST_OFFSET or CONSUME_FROM_LAST_OFFSET"),
        ({"url": "http://app.example:80"}, "allow_remote_app"),
        ({"url": "http://10.0.0.1"}, "allow_remote_app"),
        ({"url": "http://127.0.0.1.example"}, "allow_remote_app"),
        ({"url": "ftp://127.0.0.1"}, "http:// or https://"),
        ({"url": "http://"}, "http:// or https://"),
        ({"url": "http://a..localhost"}, "label empty"),
        ({"url": "http://[::1"}, "with a host"),
        ({"url": "http://127.0.0.1/?x=1"}, "without query"),
        ({"url": "http://me:secret@127.0.0.1"}, "token_file"),
        ({"url": "me:secret@127.0.0.1"}, "token_file"),
        ({"url": "http://me:secret@127.0.0.1:99999"}, "token_file"),
        ({"url": "http://me:secret/x@127.0.0.1"}, "token_file"),
        ({"url": "http://me:secret@127.0.0.1/?x"}, "token_file"),
        ({"url": "http://me:secret℀@127.0.0.1"}, "token_file"),
        ({"url": "http://127.0.0.1:99999"}, "must have a port from 1 to 65535"),
        ({"url": "http://127.0.0.1:web"}, "must have a port from 1 to 65535"),
        ({"url": "http://127.0.0.1:0"}, "must have a port from 1 to 65535"),
        ({"ca_file": "ca"}, "https://"),
        ({"url": "https://localhost", "cert_file": "c"}, "go together"),
        ({"route": "events"}, "must be a path"),
        ({"route": "/a b"}, "must be a path"),
        ({"route": "/{key}"}, "{topic}"),
        ({"route": "/{"}, "{topic}"),
        ({"consume_message_batch_max_size": 2}, "rocketmq-batch"),
        (
            {"profile": "rocketmq-batch", "consume_message_batch_max_size": 2, "route": "/consume/{topic}"},
            "'/consume/{topic}' must not contain {topic}",
        ),
        ({"message_model": "BROADCASTING", "exactly_once": True}, "is never sent back"),
        ({"offset_store": "/var/lib/reconsume"}, "is for message_model BROADCASTING"),
        ({"dead_letter_on": ["ValueError"], "message_model": "BROADCASTING"}, "dead_letter_on is for message_model"),
        ({"dead_letter_on": "ValueError"}, "Input should be a valid tuple"),
        ({"dead_letter_on": [""]}, "at least 1 character"),
        ({"max_in_flight": 0}, "greater than or equal to 1"),
        ({"consume_timeout_seconds": 0}, "greater than 0"),
        ({"order": "topic"}, "'none', 'key' or 'partition'"),
        ({"maxInFlight": 5}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        PushSettings(**(GIVEN | more))
    assert told in str(refused.value)
    assert "secret" not in "".join(one["msg"] for one in refused.value.errors())


def test_a_group_has_one_subscription() -> None:
    with pytest.raises(ValidationError, match="'departures' has several subscriptions"):
        ProcessSettings(subscriptions=(PushSettings(**GIVEN), PushSettings(**GIVEN | {"topics": ["gates"]})))


@pytest.mark.parametrize(
    "more",
    [
        {"url": "http://localhost:1"},
        {"url": "http://[::1]:1"},
        {"url": "http://127.9.9.9"},
        {"url": "http://app", "unix_socket": "/run/app"},
        {"url": "https://app.example", "allow_remote_app": True},
        {"topics": [], "profile": "dapr"},
        {"topics": {"flights": "TagA || TagB"}},
        {"profile": "rocketmq-batch", "consume_message_batch_max_size": 2, "route": "/consume"},
        {"profile": "rocketmq-batch", "route": "/consume/{topic}"},
    ],
)
def test_what_can_be(more: dict[str, Any]) -> None:
    PushSettings(**(GIVEN | more))


@pytest.mark.parametrize("more", [{"url": "https://localhost", "ca_file": "/nowhere"}, {"token_file": "/nowhere"}])
def test_files_that_cannot_be_read_are_named_at_the_start(more: dict[str, Any]) -> None:
    with pytest.raises(IllegalSetting, match=r"/nowhere|No such file"):
        PushSubscription(PushSettings(**GIVEN, **more), {}, Life(), PushMetrics(CollectorRegistry()))


def subscribed(*said: object) -> AppAnswer:
    return AppAnswer(200, {}, json.dumps(list(said)).encode())


def test_the_routes_of_an_app_of_dapr() -> None:
    routes = routes_of(
        subscribed(
            {"pubsubname": "pubsub", "topic": "a", "route": "on-a", "metadata": {"rawPayload": "true"}},
            {"pubsubname": "pubsub", "topic": "b", "routes": {"default": "/on-b", "rules": []}},
            {"pubsubname": "another", "topic": "a", "routes": {"rules": [{"path": "/x"}]}},
        ),
        "pubsub",
    )
    assert routes == {"a": DaprRoute("a", "/on-a", raw_payload=True), "b": DaprRoute("b", "/on-b")}


def test_an_app_that_does_not_know_dapr_subscribes_to_nothing() -> None:
    assert routes_of(AppAnswer(404), "pubsub") == {}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            subscribed({"topic": "a", "routes": {"default": "/a", "rules": [{"match": "x", "path": "/b"}]}}),
            "routes.rules",
        ),
        (subscribed({"topic": "a", "route": "/a", "bulkSubscribe": {"enabled": True}}), "bulkSubscribe"),
        (subscribed({"topic": "a", "route": "/a"}, {"topic": "a", "route": "/b"}), "twice"),
        (subscribed({"route": "/a"}), "no topic"),
        (subscribed({"topic": "a"}), "no route"),
        (AppAnswer(200, {}, b"<html>"), "JSON list"),
        (AppAnswer(403, {}, b"[]"), "403"),
    ],
)
def test_what_an_app_of_dapr_may_not_ask_for(answer: AppAnswer, told: str) -> None:
    with pytest.raises(IllegalSetting, match=told):
        routes_of(answer, "pubsub")


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" first \n", encoding="ascii")
    token, dapr = watch_token(file, Profile.NATIVE), watch_token(file, Profile.DAPR)
    assert token.value() == [("authorization", "Bearer first")]
    assert dapr.value() == [("dapr-api-token", "first")]
    file.write_text("second!", encoding="ascii")
    os.utime(file, ns=(1, 1))
    assert token.value() == [("authorization", "Bearer second!")]
    file.unlink()
    assert token.value() == [("authorization", "Bearer second!")], "one that is being replaced"


@pytest.mark.parametrize("text", ["", "two words", "ä", "a\r\nb"])
def test_a_token_that_no_header_can_carry_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(IllegalSetting, match="token_file"):
        watch_token(file, Profile.NATIVE)


def test_the_start_is_the_consumers() -> None:
    first = PushSettings(**GIVEN, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    with pytest.raises(IllegalSetting, match=r"CONSUME_FROM_FIRST_OFFSET contradicts auto\.offset\.reset"):
        PushSubscription(first, {"auto.offset.reset": "latest"}, Life(), PushMetrics(CollectorRegistry()))
